"""One kernel on any number of rows: tiles, chunks, threads, alignment."""

from __future__ import annotations

import gc
import itertools
import os
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm.graph.reference import margins
from hbtvm.runtime.executor import Executor
from hbtvm.runtime.loader import load_functions
from hbtvm.runtime.package import KernelEntry
from hbtvm.runtime.parallelism import Parallelism
from hbtvm.runtime.threads import ThreadPool
from tests.runtime_models import kernel, random_rows, trained

MODELS = ("lgb_two", "lgb_three_nan", "sk_forest_three_nan")
"""One output; three groups of outputs; three outputs to a leaf."""


@pytest.fixture(scope="module", params=MODELS)
def made(request: Any) -> tuple[Any, list[KernelEntry]]:
    graph = trained(request.param)[1]
    knobs = {"tree_tile": 2}
    return graph, [kernel(graph, rows, config=knobs) for rows in (1, 64)]


def executor(
    entry: KernelEntry, threads: int = 1, parallel: Any = "rows", grain: int = 1, **options: Any
) -> Executor:
    function, brief = load_functions([entry.library])[0]
    how = Parallelism(parallel, 1 if parallel == "none" else threads, grain)
    return Executor(function, entry.signature, entry.tables, how, brief=brief, **options)


def expected(graph: Any, X: np.ndarray) -> np.ndarray:
    """The plain sums that make the reference's margins."""
    ensemble = graph.anchor
    return (margins(ensemble, X) - ensemble.base_score) * ensemble.divisor


def test_short_calls_keep_the_interpreter(made: Any) -> None:
    """Long ones let other threads run, whatever the function's default is."""
    _, entry = made[1]
    function, brief = load_functions([entry.library])[0]
    assert (function.release_gil, brief.release_gil) == (True, False)
    X = random_rows(3 * entry.signature.row_tile)
    run = executor(entry, brief_tiles=2)
    calls: list[str] = []
    for name in ("_function", "_brief"):
        real = getattr(run, name)
        setattr(run, name, lambda *a, real=real, name=name: (calls.append(name), real(*a)))
    for n in (
        1,
        entry.signature.row_tile,
        2 * entry.signature.row_tile,
        2 * entry.signature.row_tile + 1,
        3 * entry.signature.row_tile,
    ):
        run.run(X[:n])
    assert calls == ["_brief"] * 3 + ["_function"] * (len(calls) - 3)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("parallel", ["none", "rows", "trees"])
def test_any_number_of_rows(made: Any, threads: int, parallel: Any) -> None:
    graph, entries = made
    X = random_rows(300)
    want = expected(graph, X)
    for entry, grain in itertools.product(entries, (1, 3)):
        run = executor(entry, threads=threads, parallel=parallel, grain=grain).run
        R = entry.signature.row_tile
        for n in sorted({0, 1, max(R - 1, 1), R, R + 1, 2 * R, 3 * R - 1, 4 * R + 1, 300}):
            got = run(X[:n])
            assert got.shape == (n, graph.anchor.n_outputs)
            assert got.dtype == np.float64
            np.testing.assert_allclose(got, want[:n], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parallel", ["rows", "trees"])
def test_several_blocks_of_scores(made: Any, parallel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, entries = made
    monkeypatch.setattr("hbtvm.runtime.executor._BLOCK_BYTES", 2048)
    X = random_rows(700)
    for entry in entries:
        got = executor(entry, threads=2, parallel=parallel).run(X)
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
        X = random_rows(8)
        first = run(X[:1])
        kept = first.copy()
        run(X[1:2])
        np.testing.assert_array_equal(first, kept)


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
    batches = [random_rows(n, seed=n) for n in (1, 5, 64, 65, 200, 3, 128, 31)]
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


def helpers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "hbtvm"}


def test_pool_starts_late_and_ends_with_its_owner() -> None:
    before = helpers()
    pool = ThreadPool(3)
    pool.run(lambda i: None, 1)
    assert not helpers() - before
    pool.run(lambda i: None, 5)
    mine = helpers() - before
    assert len(mine) == 2
    del pool
    gc.collect()
    for thread in mine:
        thread.join(timeout=20)
        assert not thread.is_alive()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_pool_does_each_piece_once(threads: int) -> None:
    pool = ThreadPool(4)
    for count in (0, 1, 2, 50):
        done: list[int] = []
        pool.run(done.append, count, threads)
        assert sorted(done) == list(range(count))


def test_pool_raises_the_error_of_a_piece_and_lives_on() -> None:
    pool = ThreadPool(2)

    def fail(i: int) -> None:
        if i == 3:
            raise ValueError("piece 3")

    for _ in range(5):
        with pytest.raises(ValueError, match="piece 3"):
            pool.run(fail, 8)
    done: list[int] = []
    pool.run(done.append, 4)
    assert len(done) == 4


def test_pool_works_in_a_forked_child(made: Any) -> None:
    run = executor(made[1][1], threads=2).run
    X = random_rows(300)
    want = run(X)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if np.array_equal(run(X), want) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(run(X), want)
