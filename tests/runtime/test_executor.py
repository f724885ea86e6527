"""One kernel on any number of rows: tiles, chunks, threads, alignment, and what is refused."""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import hbtvm
from hbtvm.compiler.building.cpu import executor as executor_code
from hbtvm.errors import PackageError
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.native import library as library_module
from hbtvm.runtime.native.description import Described, Stage
from hbtvm.runtime.native.executor import Executor, OneKernel, Shape
from hbtvm.runtime.native.library import Library, load_kernels, load_library
from hbtvm.runtime.package.file import KernelEntry
from tests.runtime_models import TARGET, kernel, random_rows, trained

MODELS = ("lgb_two", "lgb_three_nan", "sk_forest_three_nan")
"""One output; three groups of outputs; three outputs to a leaf."""

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@functools.cache
def code() -> Library:
    return load_library(executor_code(TARGET))


@pytest.fixture(scope="module", params=MODELS)
def made(request: Any) -> tuple[Any, list[KernelEntry]]:
    graph = trained(request.param)[1]
    knobs = {"tree_tile": 2}
    return graph, [kernel(graph, rows, config=knobs) for rows in (1, 64)]


def executor(entry: KernelEntry, threads: int = 1, parallel: Any = "rows", grain: int = 1) -> OneKernel:
    entry = replace(entry, parallel=parallel, grain=grain, threads=threads)
    return OneKernel(code(), load_kernels([entry.library])[0], entry, 1 if parallel == "none" else threads)


def opened(entry: KernelEntry, **described: Any) -> Executor:
    """An executor of one kernel, with what it knows of its model."""
    signature = entry.signature
    stage = Stage([(entry, load_kernels([entry.library])[0])], (), signature.outputs)
    return Executor(code(), [stage], Described(signature.n_features, **described))


def expected(graph: Any, X: np.ndarray) -> np.ndarray:
    """The plain sums that make the reference's margins."""
    ensemble = graph.anchor
    return (margins(ensemble, X) - ensemble.base_score) * ensemble.divisor


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("parallel", ["none", "rows", "trees"])
def test_any_number_of_rows(made: Any, threads: int, parallel: Any) -> None:
    graph, entries = made
    X = random_rows(5000)
    want = expected(graph, X)
    for entry, grain in itertools.product(entries, (1, 3)):
        run = executor(entry, threads=threads, parallel=parallel, grain=grain).run
        R = entry.signature.row_tile
        for n in sorted({0, 1, max(R - 1, 1), R, R + 1, 2 * R, 3 * R - 1, 4 * R + 1, 300, 5000}):
            got = run(X[:n])
            assert got.shape == (n, graph.anchor.n_outputs)
            assert got.dtype == np.float64
            np.testing.assert_allclose(got, want[:n], rtol=1e-5, atol=1e-6)


def test_threads_that_share_rows_change_no_bit(made: Any) -> None:
    X = random_rows(6000)
    for entry in made[1]:
        want = executor(entry).run(X)
        for threads in (2, 3, 7):
            run = executor(entry, threads=threads).run
            # The first calls find out how long a row tile takes, later ones know.
            assert all(np.array_equal(run(X), want) for _ in range(5))


@pytest.mark.parametrize("parallel", ["rows", "trees"])
def test_several_blocks_of_scores(parallel: Any) -> None:
    """More scores than a block holds."""
    graph = trained("sk_forest_three_nan")[1]
    X = random_rows(30_000)
    got = executor(kernel(graph, 64), threads=2, parallel=parallel).run(X)
    np.testing.assert_allclose(got, expected(graph, X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("offset", [4, 8, 36, 60])
def test_rows_at_any_address(made: Any, offset: int) -> None:
    graph, entries = made
    memory = np.zeros(200 * 16 + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    X = memory[start : start + 200 * 16].view(np.float32).reshape(200, 4)
    X[:] = random_rows(200)
    for entry in entries:
        np.testing.assert_allclose(executor(entry).run(X), expected(graph, X), rtol=1e-5, atol=1e-6)


def test_read_only_rows_and_unaligned_tables(made: Any) -> None:
    graph, entries = made
    X = random_rows(130)
    X.setflags(write=False)
    for entry in entries:
        shifted = []
        for table in entry.tables:
            memory = np.zeros(table.nbytes + 128, np.uint8)
            start = -memory.ctypes.data % 64 + 4
            copy = memory[start : start + table.nbytes].view(table.dtype).reshape(table.shape)
            copy[...] = table
            copy.setflags(write=False)
            shifted.append(copy)
        moved = replace(entry, tables=tuple(shifted))
        for parallel in ("rows", "trees"):
            run = executor(moved, threads=2, parallel=parallel).run
            np.testing.assert_allclose(run(X), expected(graph, X), rtol=1e-5, atol=1e-6)


def test_results_are_the_callers_own(made: Any) -> None:
    for entry in made[1]:
        run = executor(entry).run
        X = random_rows(9000)
        for n in (1, 8, 9000):
            first = run(X[:n])
            kept = first.copy()
            run(X[:n] + 1)
            np.testing.assert_array_equal(first, kept)
            assert first.flags.writeable and first.flags.c_contiguous


def test_trees_are_summed_in_a_fixed_order(made: Any) -> None:
    X = random_rows(257)
    for entry in made[1]:
        run = executor(entry, threads=3, parallel="trees").run
        first = run(X)
        assert all(np.array_equal(run(X), first) for _ in range(20))


@pytest.mark.parametrize("parallel", ["none", "rows", "trees"])
def test_concurrent_calls(made: Any, parallel: Any) -> None:
    entry = made[1][1]
    run = executor(entry, threads=2, parallel=parallel).run
    batches = [random_rows(n, seed=n) for n in (1, 5, 64, 65, 200, 3, 128, 4000)]
    want = [run(X) for X in batches]
    wrong: list[int] = []

    def call(i: int) -> None:
        for _ in range(100):
            if not np.array_equal(run(batches[i]), want[i]):
                wrong.append(i)

    together = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert not wrong


def test_a_forked_child_goes_on(made: Any) -> None:
    run = executor(made[1][1], threads=3).run
    X = random_rows(5000)
    want = run(X)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if all(np.array_equal(run(X), want) for _ in range(3)) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(run(X), want)


def threads_now() -> int:
    return len(os.listdir("/proc/self/task"))


def test_threads_start_late_and_end_with_the_model() -> None:
    entry = kernel(trained("lgb_two")[1], 64)
    before = threads_now()
    one = executor(entry, threads=3)
    one.run(random_rows(1))
    assert threads_now() == before
    one.run(random_rows(50_000))
    assert threads_now() == before + 2
    del one
    assert threads_now() == before


def test_kernels_are_unloaded_with_their_functions() -> None:
    entry = kernel(trained("lgb_two")[1], 1)
    X = random_rows(3)

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("/memfd:hbtvm")

    before = mapped()
    kept = executor(entry)
    one = mapped() - before
    assert one > 0
    for _ in range(20):
        executor(entry).run(X)
    assert mapped() - before == one
    del kept
    assert mapped() == before


def test_arguments_that_do_not_fit_are_told(made: Any) -> None:
    entry = made[1][0]
    opened(entry).check()
    table = entry.tables[-1]
    for other in (np.concatenate([table, table], axis=1), table.astype(np.float16)):
        wrong = replace(entry, tables=(*entry.tables[:-1], other))
        with pytest.raises(ValueError, match="in the kernel for 1 rows, its code takes other arguments"):
            opened(wrong).check()


def test_refused_values() -> None:
    """A column refuses NaN, another one infinities, the others nothing."""
    graph = trained("lgb_two")[1]
    refuses = np.array([1, 2, 0, 3], np.uint8)
    one = opened(kernel(graph, 64), refuses=refuses)
    run = one.function({F32: Shape(F64, 1)}, [F32])
    X = random_rows(700)
    X[~np.isfinite(X)] = 0
    assert run(X) is not None
    for row, column, value in itertools.product((0, 63, 64, 699), range(4), (np.nan, np.inf, -np.inf)):
        Y = X.copy()
        Y[row, column] = value
        found = run(Y)
        assert (found is None) == bool(refuses[column] & (1 if np.isnan(value) else 2))
        if found is not None:
            np.testing.assert_allclose(found, expected(graph, Y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("telling", ["scores", "column"])
def test_scores_that_tell_of_refused_values(telling: Any) -> None:
    """Of a linear model, whose scores are finite only if all values are: then rows are looked at."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 6)).astype(np.float32)
    model = hbtvm.compile(Ridge().fit(X, X @ np.arange(6)), batch_sizes=[64], threads=1)
    entry = next(one for one in model.package.kernels if one.dtype == "float32")
    one = opened(entry, refuses=np.array([3, 1, 2, 0, 3, 3], np.uint8), telling=telling)
    run = one.function({F32: Shape(F64, one.outputs)}, [F32])
    assert run(X) is not None
    for row, (column, value, wanted) in itertools.product(
        (0, 100, 499), ((0, np.nan, True), (1, np.inf, False), (2, -np.inf, True), (3, np.nan, False))
    ):
        Y = X.copy()
        Y[row, column] = value
        assert (run(Y) is None) == wanted


def test_kernels_for_rows_without_missing_values() -> None:
    """They take all rows of a short call, or those of a block, unless some value there is missing."""
    first, other = trained("lgb_two")[1], trained("lgb_zero_missing_nan")[1]
    complete, general = kernel(first, 64, missing=False), kernel(other, 64)
    stage = [(one, load_kernels([one.library])[0]) for one in (complete, general)]
    n = 1 << 18
    X = random_rows(n)
    X[~np.isfinite(X)] = 0
    ours, theirs = executor(complete).run(X), executor(general).run(X)
    assert (ours != theirs).any()
    for threads in (1, 2, 3):
        own = Executor(code(), [Stage(stage, (), 1)], Described(4), threads)
        run = own.function({F32: Shape(F64, 1)}, [F32])
        np.testing.assert_array_equal(run(X), ours)
        short, Y = X[:1000].copy(), X.copy()
        short[999, 2] = Y[20_000, 2] = np.nan
        np.testing.assert_array_equal(run(short), executor(general).run(short))
        # A block is 256 kB of rows.
        found, block = run(Y), slice(16_384, 32_768)
        np.testing.assert_array_equal(found[block], executor(general).run(Y[block]))
        np.testing.assert_array_equal(np.delete(found, block), np.delete(ours, block))


def test_rows_that_are_not_the_kernels(made: Any) -> None:
    run = opened(made[1][0]).function({F32: Shape(F64, made[0].anchor.n_outputs)}, [F32])
    X = random_rows(8)
    assert run(X) is not None
    for other in (
        X.astype(np.float64), X[:, :3], X[0], X[:0], X.T, X.astype(">f4"), X.tolist(), None, "rows",
        3, X.view(np.ndarray)[None], np.ma.array(X), X.astype(object),
    ):  # fmt: skip
        assert run(other) is None
    for other in (X[::2], np.asfortranarray(X), X[::-1], X[:, ::-1]):
        np.testing.assert_array_equal(run(other), run(np.ascontiguousarray(other)))
    large = np.asfortranarray(np.repeat(X, 1000, axis=0))
    assert run(large) is None


def test_where_the_layout_of_arrays_is_unknown(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are the same, by the longer way."""
    entries = made[1]
    quick = [executor(entry) for entry in entries]
    with monkeypatch.context() as patch:
        patch.setattr(library_module, "interface", lambda: None)
        slow_code = Library(ctypes.CDLL(code()._loaded._name))
    assert code().calls_arrays and not slow_code.calls_arrays
    X = random_rows(5000)
    for entry, one in zip(entries, quick, strict=True):
        slow = OneKernel(slow_code, load_kernels([entry.library])[0], entry, 1)
        for n in (0, 1, 70, 5000):
            np.testing.assert_array_equal(slow.run(X[:n]), one.run(X[:n]))
        function = slow.executor.function({F32: Shape(F64, one.executor.outputs)}, [F32])
        np.testing.assert_array_equal(function(X), one.run(X))
        assert function(X[::2]) is None and function(X.astype(np.float64)) is None and function(None) is None


def test_other_libraries_are_refused() -> None:
    entry = kernel(trained("lgb_two")[1], 1)
    for data, said in (
        (b"", "can't be loaded"),
        (b"no library", "can't be loaded"),
        (entry.library, "lacks"),
    ):
        with pytest.raises(PackageError, match=said):
            load_library(data)


def test_an_executor_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "VERSION", 99)
    with pytest.raises(
        PackageError, match="has version 1, but this hbtvm calls version 99; compile the model"
    ):
        Library(ctypes.CDLL(code()._loaded._name))
