"""The executor of recursive models from Python: structures of all kinds, sharing, readouts, refusals."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from hbtvm.errors import InputError, PackageError
from hbtvm.runtime.native.library import Library, load_library
from hbtvm.runtime.native.objects.build import c_compiler, executor_library
from hbtvm.runtime.recursive.entry import Program, RecursionEntry, Share, Step, StepArgument
from hbtvm.runtime.recursive.host import RecursiveHost
from hbtvm.runtime.recursive.structures import Structures
from tests.recursive_cells import WIDTH, WORDS, drawn, entry, kernels, reference, reference_levels

SIZES = [1, 40, 0, 7, 120, 2, 1, 33]
COLUMNS = WIDTH - 5


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library(executor_library(c_compiler()))


def one_node(**inputs: Any) -> Structures:
    given = {"word": np.array([3], np.int32), "bias": np.ones((1, WIDTH), np.float32)}
    return Structures(np.array([0, 1]), np.zeros(2, np.int32), np.zeros(0, np.int32), {**given, **inputs})


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("share", ["none", "structures", "nodes", "panels"])
def test_states_of_all_nodes(library: Library, share: Share, steps: bool) -> None:
    made = entry(kernels(1, share, 2, steps=steps), over="nodes")
    host = RecursiveHost(library, made)
    host.check()
    rng = np.random.default_rng(0)
    for kind in ("tree", "graph", "chain"):
        for order in ("first", "last", "any"):
            structures = drawn(rng, SIZES, kind, order)
            found = host.run(structures)
            assert found.dtype == np.float32 and found.shape == (sum(SIZES), COLUMNS)
            np.testing.assert_allclose(found, reference(structures), atol=2e-6)


@pytest.mark.parametrize("steps", [True, False])
@pytest.mark.parametrize("share", ["none", "structures", "nodes"])
@pytest.mark.parametrize("depth", [2, 3, 1000])
def test_several_levels_at_a_time(library: Library, depth: int, share: Share, steps: bool) -> None:
    host = RecursiveHost(library, entry(kernels(1, share, 2, steps=steps, depth=depth), over="nodes"))
    by_level = RecursiveHost(library, entry(kernels(1, share, 2, steps=steps), over="nodes"))
    rng = np.random.default_rng(depth)
    for kind in ("tree", "chain", "graph"):
        for order in ("first", "last", "any"):
            structures = drawn(rng, SIZES * (4 if kind == "tree" else 1), kind, order)
            found = host.run(structures)
            np.testing.assert_allclose(found, reference(structures), atol=5e-6)
            if kind == "graph":
                # Nodes with several parents: as if nobody had asked for more levels.
                assert found.tobytes() == by_level.run(structures).tobytes()


@pytest.mark.parametrize("children", [3, 5, None])
def test_places_for_children(library: Library, children: int | None) -> None:
    host = RecursiveHost(library, entry(children=children, over="nodes"))
    structures = drawn(np.random.default_rng(1), SIZES, "graph", "any")
    np.testing.assert_allclose(host.run(structures), reference(structures), atol=2e-6)


def test_a_node_with_thousands_of_children(library: Library) -> None:
    """The table of children of its level is not as wide for all nodes of the level."""
    rng, leaves, inner = np.random.default_rng(2), 20_000, 600
    lists = [[] for _ in range(leaves)] + [[int(rng.integers(leaves))] for _ in range(inner)]
    lists[leaves + 300] = list(range(leaves))
    nodes = len(lists)
    inputs = {"word": np.full(nodes, -1), "bias": np.full((nodes, WIDTH), 1e-5)}
    structures = Structures(
        np.array([0, nodes]), np.cumsum([0, *map(len, lists)]), np.concatenate(lists).astype(int), inputs
    )
    host = RecursiveHost(library, entry(kernels(1, "nodes", 2), children=None, over="nodes"))
    for threads in (1, 2):
        found = host.run(structures, threads)
        np.testing.assert_allclose(
            found[leaves:, 0], reference(structures)[leaves:, 0], rtol=1e-3
        )  # of 20,000 numbers


@pytest.mark.parametrize(
    "share, depth",
    [("structures", 1), ("nodes", 1), ("panels", 1), ("structures", 2), ("nodes", 2), ("nodes", 4)],
)
def test_results_do_not_depend_on_threads(library: Library, share: Share, depth: int) -> None:
    made = entry(kernels(4, share, 3, depth=depth), over="nodes")
    structures = drawn(np.random.default_rng(3), SIZES * 3, "tree", "any")
    expected = RecursiveHost(library, made, 1).run(structures)
    for threads in (0, 2, 3, 4):
        host = RecursiveHost(library, made, threads)
        for _ in range(5):
            assert host.run(structures).tobytes() == expected.tobytes()
        assert host.run(structures, 2).tobytes() == expected.tobytes()


def test_large_batches_are_cut_into_groups(library: Library) -> None:
    """Groups of structures whose states are a few megabytes, each of which begins anew at the first row."""
    structures = drawn(np.random.default_rng(4), [300] * 200, "tree", "first")
    for share, threads, depth in (
        ("none", 1, 1), ("none", 1, 2), ("structures", 2, 1), ("nodes", 2, 1), ("nodes", 2, 2)
    ):  # fmt: skip
        made = kernels(1, share, threads, depth=depth)  # type: ignore[arg-type]
        host = RecursiveHost(library, entry(made, over="roots"))
        is_child = np.zeros(60_000, bool)
        is_child[structures.child[structures.child >= 0]] = True
        if share == "none" and depth == 1:
            expected = reference(structures)[~is_child]
        np.testing.assert_allclose(host.run(structures), expected, atol=2e-6)


def test_levels(library: Library) -> None:
    host = RecursiveHost(library, entry())
    rng = np.random.default_rng(5)
    for kind in ("tree", "graph", "chain"):
        for order in ("first", "last", "any"):
            structures = drawn(rng, SIZES, kind, order)
            row, start = host.levels(structures)
            levels = reference_levels(structures)
            assert np.array_equal(np.diff(start), np.bincount(levels)) and start[0] == 1
            expected = np.empty(len(levels), int)
            expected[np.argsort(levels, kind="stable")] = 1 + np.arange(len(levels))
            assert np.array_equal(row, expected)


def test_long_chains(library: Library) -> None:
    rng = np.random.default_rng(6)
    host = RecursiveHost(library, entry())
    for order in ("first", "last", "any"):
        structures = drawn(rng, [5000], "chain", order)
        assert len(host.levels(structures)[1]) == 5001
        root = np.setdiff1d(np.arange(5000), structures.child)
        np.testing.assert_allclose(host.run(structures), reference(structures)[root], atol=2e-6)


@pytest.mark.parametrize("over", ["roots", "nodes", "total", "mean", "most"])
@pytest.mark.parametrize("shape", [(48,), (1,), (3, 7), ()])
def test_readouts(library: Library, over: Any, shape: tuple[int, ...]) -> None:
    """Vectors and matrices without their padding, whose rows are each padded to 16 numbers."""
    rng = np.random.default_rng(7)
    structures = drawn(rng, SIZES, "graph", "any")
    states = reference(structures, WIDTH)
    columns = shape[-1] if shape else 1
    if len(shape) == 2:
        states = states.reshape(-1, 3, 16)[:, :, :7].reshape(-1, 21)
    states = states[:, :21] if len(shape) == 2 else states[:, :columns]
    is_child = np.zeros(len(states), bool)
    is_child[structures.child[structures.child >= 0]] = True
    per_structure = [states[a:b] for a, b in zip(structures.starts[:-1], structures.starts[1:], strict=True)]
    nothing = np.zeros(states.shape[1])
    expected = {
        "roots": states[~is_child],
        "nodes": states,
        "total": [one.sum(0) for one in per_structure],
        "mean": [one.mean(0) if len(one) else nothing for one in per_structure],
        "most": [one.max(0) if len(one) else nothing for one in per_structure],
    }[over]
    for share in ("none", "structures"):
        host = RecursiveHost(library, entry(kernels(1, share, 2), over=over, shape=shape))  # type: ignore[arg-type]
        assert host.width == max(1, int(np.prod(shape)))
        np.testing.assert_allclose(host.run(structures), expected, atol=2e-5)


def test_a_second_state_is_read(library: Library) -> None:
    structures = drawn(np.random.default_rng(8), SIZES, "tree")
    found = RecursiveHost(library, entry(over="nodes", state=16, shape=(20,))).run(structures)
    np.testing.assert_allclose(found, reference(structures, WIDTH)[:, 16:36], atol=2e-6)


def test_no_structures_and_empty_ones(library: Library) -> None:
    nothing = {"word": np.zeros(0, np.int32), "bias": np.zeros((0, WIDTH), np.float32)}
    for starts, results in (([0], 0), ([0, 0, 0], 2)):
        structures = Structures(np.array(starts), np.zeros(1, int), np.zeros(0, int), nothing)
        for over in ("roots", "total", "most"):
            found = RecursiveHost(library, entry(kernels(1, "nodes", 2), over=over)).run(structures)
            assert found.shape == (0 if over == "roots" else results, COLUMNS) and not found.any()


def test_arrays_of_other_types(library: Library) -> None:
    host = RecursiveHost(library, entry(over="nodes"))
    given = drawn(np.random.default_rng(9), SIZES, "tree")
    expected = host.run(given)
    wide = np.repeat(given.inputs["bias"], 2, axis=1)[:, ::2]
    inputs = {"word": given.inputs["word"].astype(np.int64), "bias": wide.astype(np.float64)}
    other = Structures(
        given.starts.astype(np.int32), given.first.astype(np.uint16), given.child.tolist(), inputs
    )
    assert np.array_equal(host.run(other), expected)


def test_kernels_for_the_nearest_number_of_structures(library: Library) -> None:
    one, ten = kernels(1), kernels(10)
    host = RecursiveHost(library, entry(one, ten))
    assert [host.choice(n) for n in (1, 3, 4, 10, 500)] == [0, 0, 1, 1, 1]


def cycle(first: list[int], child: list[int]) -> Structures:
    n = len(first) - 1
    inputs = {"word": np.zeros(n, int), "bias": np.zeros((n, WIDTH))}
    return Structures(np.array([0, 1, n]), np.array(first), np.array(child), inputs)


@pytest.mark.parametrize(
    "structures, text",
    [
        (np.zeros((2, 3)), "expected structures.*got ndarray"),
        (cycle([0, 0, 1, 2], [2, 1]), "structure 1, node [01]: it depends on itself"),
        (cycle([0, 0, 1, 1], [1]), "structure 1, node 0: it depends on itself"),
        (cycle([0, 1, 1], [0]), "structure 0, node 0: it depends on itself"),
        (cycle([0, 0, 1], [0]), "structure 1, node 0: a child is not a node of this structure"),
        (cycle([0, 0, 1], [-2]), "structure 1, node 0: a child is not a node of this structure"),
        (cycle([0, 0, 1], [7]), "structure 1, node 0: a child is not a node of this structure"),
        (cycle([0, 0, 0, 4], [1, 1, 1, 1]), "structure 1, node 1: it has more than 3 children"),
        (cycle([0, 0, 2, 1], [1]), "structure 1, node 0: starts and first should rise"),
        (cycle([0, 0, 9], [1]), "structure 1: starts and first should rise"),
        (one_node(word=np.array([WORDS])), "structure 0, node 0: 'word' is out of range; expected a number"),
        (one_node(word=np.array([-2])), f"expected a number from -1 .for none. to {WORDS - 1}"),
        (one_node(word=np.array([0.5])), "input 'word' should hold whole numbers, got float64"),
        (one_node(word=np.array([2**40])), "input 'word' has a number that int32 does not hold"),
        (one_node(word=np.array([1, 2])), r"input 'word' should have shape \(1,\), got \(2,\)"),
        (one_node(bias=np.zeros((1, 3))), r"input 'bias' should have shape \(1, 48\), got \(1, 3\)"),
        (one_node(bias=np.array([["a"]])), "input 'bias' should hold numbers"),
        (one_node(other=np.zeros(1)), "the model has no input 'other'"),
        (Structures(np.zeros(1), np.zeros(1, int), np.zeros(0, int)), "starts should hold whole numbers"),
        (Structures(np.array([0, 0]), np.zeros(1, int), np.zeros(0, int)), "input 'word' is missing"),
        (Structures(np.zeros(0, int), np.zeros(1, int), np.zeros(0, int)), "one number more than"),
        (Structures(np.zeros((1, 1), int), np.zeros(1, int), np.zeros(0, int)), "should have one axis"),
    ],
)  # fmt: skip
def test_refusals_name_structure_and_node(library: Library, structures: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        RecursiveHost(library, entry()).run(structures)


def test_missing_values_are_numbers_like_others(library: Library) -> None:
    found = RecursiveHost(library, entry()).run(one_node(bias=np.full((1, WIDTH), np.nan)))
    assert np.isnan(found).all()


def test_several_callers_at_once(library: Library) -> None:
    host = RecursiveHost(library, entry(kernels(1, "nodes", 2), over="nodes"))
    given = [drawn(np.random.default_rng(i), SIZES[i % 3 :], "tree", "any") for i in range(6)]
    expected = [host.run(one).tobytes() for one in given]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: host.run(one).tobytes(), given * 20))
    assert found == expected * 20


@pytest.mark.parametrize("share", ["structures", "nodes"])
def test_a_forked_child(library: Library, share: Share) -> None:
    host = RecursiveHost(library, entry(kernels(1, share, 2), over="nodes"))
    structures = drawn(np.random.default_rng(10), SIZES, "tree")
    expected = host.run(structures).tobytes()
    child = os.fork()
    if not child:
        os._exit(11 if host.run(structures).tobytes() == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11


def test_functions_that_take_something_else(library: Library) -> None:
    step = Step("gather", 4, (StepArgument("state"), StepArgument("out")))
    changed = kernels(1)
    changed = type(changed)(**{**changed.__dict__, "inner": Program((step,))})
    host = RecursiveHost(library, entry(changed))
    with pytest.raises(ValueError, match="kernels for 1 structures, 'gather' takes other arguments"):
        host.check()


def test_a_library_without_the_function(library: Library) -> None:
    def of(function: str, code: bytes) -> RecursionEntry:
        changed = kernels(1)
        step = Step(function, 4, (StepArgument("out"),))
        return entry(type(changed)(**{**changed.__dict__, "inner": Program((step,)), "library": code}))

    with pytest.raises(PackageError, match="a library of kernels can't be loaded"):
        RecursiveHost(library, of("surprise", kernels(1).library))
    with pytest.raises(PackageError, match="a library of kernels can't be loaded"):
        RecursiveHost(library, of("gather", b"\x7fELF and no more"))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_structures_may_change_between_calls(library: Library, dtype: type) -> None:
    """What is kept beside them follows what is written to arrays, and what is put in their place."""
    host = RecursiveHost(library, entry(kernels(1, "none", 2), over="nodes"))
    drawn_once = drawn(np.random.default_rng(6), [20, 5], "tree", "first")
    structures = replace(drawn_once, inputs={**drawn_once.inputs})
    inputs = cast(dict[str, Any], structures.inputs)
    inputs["word"] = inputs["word"].astype(dtype)
    for change in (
        lambda: None,
        lambda: inputs["word"].fill(2),
        lambda: inputs.update(word=np.full(25, 4, dtype)),
        lambda: inputs["bias"].fill(0.25),
    ):
        change()
        np.testing.assert_allclose(host.run(structures), reference(structures), atol=2e-6)
    inputs["more"] = np.zeros(25)
    with pytest.raises(InputError, match="no input 'more'"):
        host.run(structures)
    del inputs["more"]
    # Another model with the same inputs, and a copy by pickle.
    other = RecursiveHost(library, entry(kernels(1, "none", 2), over="nodes"))
    for one in (structures, pickle.loads(pickle.dumps(structures))):
        np.testing.assert_allclose(other.run(one), reference(one), atol=2e-6)
        np.testing.assert_allclose(host.run(one), reference(one), atol=2e-6)
