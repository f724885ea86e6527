"""Kernels of recursive models, as the executor runs them, against node by node in float64."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.compiler.building.cpu import executor
from hbtvm.compiler.recursion.samples import sample, shape_of
from hbtvm.errors import UnsupportedModel
from hbtvm.recursive.cell import Cell
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.recursive.host import RecursiveHost
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.strategies.recursive import matrices
from hbtvm.strategies.recursive.levels import Levels, classes_of
from hbtvm.strategies.recursive.nests import nests_of
from hbtvm.strategies.recursive.normalise import normalised
from tests.recursive.random_cells import random_structures
from tests.recursive_kernels import TARGET, VOCABULARY, cell_of, compare, configured, drawn, opened

pytestmark = pytest.mark.usefixtures("unchecked_kernels")


def test_products_of_what_each_child_gives_are_refused() -> None:
    @rec.cell(children=None, state={"h": 8}, inputs={"word": rec.embedding("words")})
    def odd(node: Any, w: Any) -> Any:
        return {"h": node.word + rec.total(rec.relu(w.U @ rec.tanh(node.children.h)))}

    cell = odd.bind({"words": np.ones((VOCABULARY, 8)), "U": np.eye(8)})
    with pytest.raises(UnsupportedModel, match="products for each of any number of children"):
        classes_of(cell)


def test_what_threads_share_by_default() -> None:
    found = {}
    for name, hidden in (("tree_lstm", 256), ("dag_rnn", 256)):
        classes = classes_of(cell_of(name, hidden))
        for rows, levels in ((1, 10), (10, 18), (100, 24)):
            workload = Levels().workload(classes, rows, 64, levels, 2)
            config = Levels().default(workload, TARGET)
            assert Levels().space(workload, TARGET).contains(config)
            found[name, rows] = config["share"]
    assert [found["tree_lstm", rows] for rows in (1, 10, 100)] == ["panels", "panels", "structures"]
    assert [found["dag_rnn", rows] for rows in (1, 10, 100)] == ["panels", "structures", "structures"]


@pytest.mark.parametrize("name", ["tree_gru", "mv_rnn"])
@pytest.mark.parametrize("share", ["structures", "nodes", "panels"])
def test_threads_give_the_same_bits(share: str, name: str) -> None:
    cell = cell_of(name, 32)
    structures = drawn(2, cell.inputs["word"].optional)
    hosts = opened(cell, configured(order="panels", share=share), threads=2)
    compare(cell, hosts, structures)
    structures = replace(structures, inputs={name: structures.inputs[name] for name in cell.inputs})
    for host in hosts.values():
        np.testing.assert_array_equal(host.run(structures, 1), host.run(structures, 2))


@pytest.mark.parametrize("hidden, block", [(23, 256), (50, 256), (100, 32), (108, 256)])
def test_products_of_matrices_in_blocks_and_parts(
    hidden: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "_BLOCK", block)
    cell = cell_of("mv_rnn", hidden)
    for share in ("none", "panels"):
        hosts = opened(cell, configured(order="panels", tile=1, share=share), threads=2)
        compare(cell, hosts, drawn(2, False))
        structures = replace(drawn(2, False), inputs={k: drawn(2, False).inputs[k] for k in cell.inputs})
        for host in hosts.values():
            alone = host.run(structures, 1)
            for _ in range(20):  # the order of the threads varies
                np.testing.assert_array_equal(host.run(structures, 2), alone)


def _matrices_and_vectors(hidden: int) -> Cell:
    """Return a cell with a value that adds a product of a constant and a product of states."""

    @rec.cell(
        children=2,
        state={"h": hidden, "M": (hidden, hidden)},
        inputs={"word": rec.embedding("words", optional=True)},
    )
    def mixed(node: Any, w: Any) -> Any:
        a, b = node.children
        h = rec.tanh(w.U @ a.h + a.M @ b.h + node.word)
        return {"h": h, "M": w.V @ (a.M + b.M) + 0.1 * rec.outer(h, node.word)}

    rng = np.random.default_rng(0)
    shapes = {"words": (VOCABULARY, hidden), "U": (hidden, hidden), "V": (hidden, hidden)}
    return mixed.bind({name: rng.normal(size=shape) / hidden**0.5 for name, shape in shapes.items()})


@pytest.mark.parametrize("share", ["nodes", "panels"])
@pytest.mark.parametrize(
    "name, hidden", [("mixed", 112), ("mv_rnn", 100), ("tree_lstm", 33), ("tree_gru", 130)]
)
def test_parts_of_a_step_do_not_depend_on_each_other(name: str, hidden: int, share: str) -> None:
    cell = _matrices_and_vectors(hidden) if name == "mixed" else cell_of(name, hidden)
    structures = drawn(2, cell.inputs["word"].optional)
    structures = replace(structures, inputs={key: structures.inputs[key] for key in cell.inputs})
    tiles = {"tile": 1, "tail": 0} if share == "panels" else {}
    for host in opened(cell, configured(order="panels", share=share, **tiles), threads=2).values():
        alone = host.run(structures, 1)
        for parts in (2, 3):  # the last part first
            host.poison(True, parts)
            np.testing.assert_array_equal(host.run(structures), alone)
            host.poison(False)


@pytest.mark.parametrize("name, children", [("tree_lstm", 2), ("tree_gru", None), ("lstm", 1)])
def test_several_levels_at_a_time(name: str, children: int | None) -> None:
    cell = cell_of(name, 32, children)
    hosts = opened(cell, configured(share="nodes", depth=2), threads=2)
    host = hosts["h"]
    (kernels,) = host.entry.kernels
    assert kernels.depth == 2
    trees, graphs = sample(cell, 12, seed=4), drawn(children, cell.inputs["word"].optional)
    compare(cell, hosts, trees)
    np.testing.assert_array_equal(host.run(trees, 1), host.run(trees, 2))
    # Of a graph, nodes may be in several subtrees: it goes level by level.
    level = replace(host.entry, kernels=(replace(kernels, depth=1),))
    by_level = RecursiveHost(load_library(executor(TARGET)), level, 2)
    graphs = replace(graphs, inputs={"word": graphs.inputs["word"]})
    np.testing.assert_array_equal(host.run(graphs), by_level.run(graphs))


def test_terms_that_do_not_vanish_count_for_children_only() -> None:
    @rec.cell(children=3, state={"h": 8}, inputs={"word": rec.embedding("words", optional=True)})
    def odd(node: Any, w: Any) -> Any:
        gates = rec.sigmoid(w.U @ node.children.h + node.word)
        return {"h": rec.tanh(rec.total(gates)) - rec.most(rec.exp(node.children.h)) * 0.1 + node.word}

    rng = np.random.default_rng(0)
    cell = odd.bind({"words": rng.normal(size=(VOCABULARY, 8)), "U": rng.normal(size=(8, 8))})
    for order in ("nodes", "panels"):
        compare(cell, opened(cell, configured(order=order)), drawn(3, True))


def test_any_number_of_children_with_terms_that_do_not_vanish() -> None:
    @rec.cell(children=None, state={"h": 8}, inputs={"word": rec.embedding("words", optional=True)})
    def odd(node: Any, w: Any) -> Any:
        return {"h": rec.tanh(w.U @ rec.total(rec.sigmoid(node.children.h)) - rec.most(-node.children.h))}

    rng = np.random.default_rng(0)
    cell = odd.bind({"words": rng.normal(size=(VOCABULARY, 8)), "U": rng.normal(size=(8, 8))})
    compare(cell, opened(cell, configured(leaf="compute", first=0)), drawn(None, True))


def test_vectors_as_inputs() -> None:
    @rec.cell(children=2, state={"h": 12, "g": 20}, inputs={"x": rec.vector(5), "y": rec.vector(32)})
    def mixed(node: Any, w: Any) -> Any:
        s = rec.total(node.children.h)
        g = rec.relu(w.A @ node.x + w.B @ rec.total(node.children.g) + w.b)
        return {"h": rec.tanh(w.C @ node.y + w.D @ s + node.y[4:16]), "g": g}

    rng = np.random.default_rng(0)
    shapes = {"A": (20, 5), "B": (20, 20), "C": (12, 32), "D": (12, 12), "b": (20,)}
    cell = mixed.bind({name: 0.3 * rng.normal(size=shape) for name, shape in shapes.items()})
    structures = drawn(2, True)
    nodes = len(structures.first) - 1
    inputs = {"x": (nodes, 5), "y": (nodes, 32)}
    structures = Structures(
        structures.starts,
        structures.first,
        structures.child,
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in inputs.items()},
    )
    for order, vectors in itertools.product(("nodes", "panels"), (1, 2)):
        compare(cell, opened(cell, configured(order=order, vectors=vectors, leaf="compute")), structures)


@pytest.mark.parametrize("children", [3, None])
def test_terms_of_sums_that_other_children_are_in(children: int | None) -> None:
    # A child that is not there adds nothing, though the others are not zero there.
    @rec.cell(children=children, state={"h": 5}, inputs={"word": rec.embedding("words")})
    def made(node: Any, w: Any) -> Any:
        kept = rec.total(node.children.h) if children is None else node.children[1].h
        return {"h": rec.tanh(w.U @ rec.total(node.children.h - kept) + node.word)}

    rng = np.random.default_rng(0)
    cell = made.bind({"U": rng.normal(size=(5, 5)), "words": rng.normal(size=(7, 5))})
    for seed in range(3):
        compare(cell, opened(cell, configured(leaf="compute", first=0)), random_structures(cell, seed))


def test_tables_of_states_that_are_the_same_for_all_leaves() -> None:
    @rec.cell(children=2, state={"h": 5, "c": 5, "d": 5}, inputs={"word": rec.embedding("words")})
    def made(node: Any, w: Any) -> Any:
        s, c = rec.total(node.children.h), rec.total(node.children.c)
        return {"h": rec.tanh(s + node.word), "c": rec.softmax(s) + c, "d": rec.tanh(s + c)}

    @made.leaf
    def _leaf(node: Any, w: Any) -> Any:
        return {"h": node.word, "c": w.c, "d": w.c - w.c}

    rng = np.random.default_rng(0)
    cell = made.bind({"c": rng.normal(size=5), "words": rng.normal(size=(7, 5))})
    compare(cell, opened(cell, configured(leaf="table", first=0)), random_structures(cell, 0))


@pytest.mark.parametrize("children", [2, None])
def test_sums_of_products_are_products_of_sums(children: int | None) -> None:
    """A GRU that resets each child's state apart."""

    @rec.cell(children=children, state={"h": 20}, inputs={"word": rec.embedding("words", optional=True)})
    def gru(node: Any, w: Any) -> Any:
        h = node.children.h
        r = rec.sigmoid(w.Ur @ h + node.word)
        a, b = rec.split(rec.total(w.U @ (r * h)), 2)
        return {"h": rec.tanh(a + node.word) * rec.sigmoid(b + rec.total(w.V @ r))}

    rng = np.random.default_rng(0)
    shapes = {"words": (VOCABULARY, 20), "Ur": (20, 20), "U": (40, 20), "V": (20, 20)}
    cell = gru.bind({name: 0.3 * rng.normal(size=shape) for name, shape in shapes.items()})
    values, _ = normalised(cell, cell.inner)
    assert [one.op for one in values.list].count("matmul") == 2 + 1 + (children or 1)
    for order in ("nodes", "panels"):
        compare(cell, opened(cell, configured(order=order)), drawn(children, True))


@pytest.mark.parametrize(("h", "k"), [(16, 32), (20, 33), (70, 5)])
@pytest.mark.parametrize("order", ["nodes", "panels"])
def test_values_that_are_whole(h: int, k: int, order: str) -> None:
    @rec.cell(
        children=2,
        state={"h": h, "M": (h, k), "s": k},
        inputs={"word": rec.embedding("words", optional=True)},
    )
    def matrices(node: Any, w: Any) -> Any:
        a, b = node.children
        outer = rec.outer(a.h, node.word) + b.M
        both = rec.concat([a.M, rec.tanh(outer)])
        square = w.left @ both @ w.right + a.M @ (w.square @ w.right)
        s = rec.softmax(w.narrow @ rec.concat([node.word, b.s, a.h[1:]]))
        h_ = rec.tanh(square @ s[0:k] + w.flat @ (0.1 * rec.outer(b.s, s[3:])).reshape((k * k,)))
        return {"h": h_, "M": rec.sigmoid(square)[0:h], "s": s[0:k]}

    shapes = {
        "words": (VOCABULARY, k), "left": (h, 2 * h), "right": (k, k), "square": (k, k),
        "narrow": (k + 3, 2 * k + h - 1), "flat": (h, k * k),
    }  # fmt: skip
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=shape) / np.sqrt(shape[-1]) for name, shape in shapes.items()}
    cell = matrices.bind(weights)
    compare(cell, opened(cell, configured(order=order, tile=2, tail=1)), drawn(2, True))


def test_gates_of_one_product_are_products_of_one_operand() -> None:
    cell = cell_of("tree_lstm", 16)
    values, found = normalised(cell, cell.inner)
    products = [one for one in values.list if one.op == "matmul"]
    # i, o and u of the sum of states; f of each child; none of the inputs, which are tables.
    assert len(products) == 5
    assert len({one.of[1] for one in products}) == 3
    nests = nests_of(values.list, {16 * i: number for i, number in enumerate(found.values())})
    assert [len(nest.products) for nest in nests.nests] == [0, 5]


def test_leaves_have_no_products_with_children() -> None:
    cell = cell_of("tree_gru", 16)
    values, _ = normalised(cell, cell.inner, childless=True)
    assert not [one for one in values.list if one.op in ("matmul", "child", "children", "total")]


def test_samples_fit_the_cell() -> None:
    cell = cell_of("tree_lstm", 4)
    structures = sample(cell, 5, seed=3)
    rec.check(structures, cell)
    assert len(structures) == 5
    nodes, levels = shape_of(structures)
    assert nodes >= 2 and 2 <= levels <= 52
    assert shape_of(sample(cell_of("lstm", 4, 1), 2)) == (32, 32)
