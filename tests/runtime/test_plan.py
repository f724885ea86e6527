"""Which kernels run for how many rows, and how many threads may share them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from hbtvm.compiler.building.cpu import executor as executor_code
from hbtvm.runtime.native.description import Described, Stage
from hbtvm.runtime.native.executor import Executor
from hbtvm.runtime.native.library import Function, load_library
from hbtvm.runtime.package.file import KernelEntry
from hbtvm.runtime.package.signature import Signature, rows_argument, scores_argument, table
from tests.runtime_models import TARGET


def entry(rows: int, row_tile: int, seconds: float | None, **fields: Any) -> KernelEntry:
    """A kernel that nobody calls."""
    tables = (table("value", "float32", ("tree_tiles", 4)),)
    signature = Signature(
        (rows_argument("float32", row_tile, 4), *tables, scores_argument((1, 1, row_tile))), 1
    )
    given: dict[str, Any] = {
        "strategy": "bitvector", "config": {}, "threads": 1, "value_dtype": "float32", "library": b"",
        "signature": signature, "tables": (np.zeros((8, 4), np.float32),),
    }  # fmt: skip
    return KernelEntry(rows=rows, seconds=seconds, **{**given, **fields})


def planner(*kernels: KernelEntry, threads: int = 1) -> Executor:
    stage = Stage([(one, Function(1)) for one in kernels], (), 1)
    return Executor(load_library(executor_code(TARGET)), [stage], Described(4), threads)


ONE = entry(1, 1, 5e-6)
SMALL = entry(16, 16, 12e-6)
BULK = entry(1024, 64, 16 * 20e-6)


def used(n: int, *kernels: KernelEntry, threads: int = 1) -> list[tuple[int, int, int]]:
    steps = [step[:3] for step in planner(*kernels, threads=threads).steps(n)]
    # Whatever is chosen covers the rows once, in order.
    assert steps[0][1] == 0 and steps[-1][2] == n
    assert all(a[2] == b[1] for a, b in itertools.pairwise(steps))
    return steps


def shared(n: int, kernel: KernelEntry, threads: int) -> int:
    """Threads that may work on a call."""
    ((_, _, _, busy),) = planner(kernel, threads=threads).steps(n)
    return busy


def test_the_cheapest_kernel_runs() -> None:
    assert used(1, ONE, SMALL, BULK) == [(0, 0, 1)]
    assert used(12, ONE, SMALL, BULK) == [(1, 0, 12)]
    assert used(64, ONE, SMALL, BULK) == [(2, 0, 64)]
    assert used(2, ONE, BULK) == [(0, 0, 2)]


def test_the_rest_goes_to_a_smaller_kernel() -> None:
    assert used(64 * 10 + 1, ONE, SMALL, BULK) == [(2, 0, 640), (0, 640, 641)]
    assert used(64 * 10 + 10, ONE, SMALL, BULK) == [(2, 0, 640), (1, 640, 650)]
    assert used(64 * 10 + 60, ONE, SMALL, BULK) == [(2, 0, 700)]


def test_without_times_the_nearest_size_runs() -> None:
    blind = [entry(rows, 1, None) for rows in (1, 32, 1024)]
    for n, want in ((0, 0), (1, 0), (5, 0), (6, 1), (181, 1), (182, 2), (10**6, 2)):
        assert used(n, *blind) == [(want, 0, n)]
    # One unknown time is enough not to compare the others with it.
    assert used(1024, ONE, entry(1000, 64, None)) == [(1, 0, 1024)]


def test_more_threads_make_a_kernel_quicker() -> None:
    """On two threads, and only there, whole tiles pay that one kernel alone would pad."""
    bulk = entry(1024, 64, 8 * 30e-6, parallel="rows", threads=2)
    slow = entry(16, 16, 8e-6)
    assert used(64, bulk, slow) == [(0, 0, 64)]
    assert used(128, bulk, slow, threads=2) == [(0, 0, 128)]
    wide = entry(500, 512, 60e-6)
    assert used(512, wide, bulk) == [(0, 0, 512)]
    assert used(1023, entry(900, 1024, 300e-6), bulk, threads=2) == [(1, 0, 1023)]
    assert used(1023, entry(900, 1024, 300e-6), bulk) == [(0, 0, 1023)]


def test_rows_without_missing_values_have_kernels_of_their_own() -> None:
    complete = [entry(rows, 1, None, missing=False) for rows in (1, 1000)]
    assert used(700, entry(700, 1, None), *complete) == [(2, 0, 700)]


def test_threads_of_a_call() -> None:
    for threads, rows, want in ((1, 10_000, 1), (2, 10_000, 2), (5, 10_000, 5), (5, 128, 2), (5, 64, 1)):
        assert shared(rows, entry(1000, 64, None), threads) == want
    assert shared(10_000, entry(1000, 64, None, parallel="rows", grain=4), 100) == 39
    assert shared(1, entry(1, 1, None, parallel="trees"), 3) == 3
    # There are eight tiles of trees.
    assert shared(1, entry(1, 1, None, parallel="trees"), 20) == 8


def test_what_was_timed_is_what_runs() -> None:
    """A call of the tuned size by as many threads runs as it did, whatever a model would make of it."""
    alone = entry(1024, 64, 16 * 500e-6, threads=2)
    assert shared(1024, alone, 2) == 1 and shared(1025, alone, 2) == 2
    for parallel, grain in (("rows", 1), ("rows", 4), ("trees", 1)):
        assert shared(1024, entry(1024, 64, 4e-3, threads=2, parallel=parallel, grain=grain), 2) == 2
    # A kernel for fewer rows seems quicker on two threads; but nobody timed that.
    small = entry(100, 64, 2 * 400e-6, threads=2)
    assert used(1024, small, alone, threads=2) == [(1, 0, 1024)]
    assert used(1023, small, alone, threads=2)[0][0] == 0
    # The fastest of several of one size; and with other threads, nothing was timed.
    third = entry(1024, 64, 16 * 450e-6, threads=2)
    assert used(1024, alone, third, small, threads=2) == [(1, 0, 1024)]
    assert used(1024, small, alone, threads=3)[0][0] == 0


def test_threads_follow_the_kernels_unless_they_are_asked_for() -> None:
    kernel = entry(1000, 64, None, threads=1)
    assert planner(kernel, threads=0).steps(10_000)[0][3] == 1
    assert planner(kernel, threads=3).steps(10_000)[0][3] == 3
