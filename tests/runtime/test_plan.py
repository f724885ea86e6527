"""Which kernels run for how many rows."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hbtvm.runtime.package import KernelEntry
from hbtvm.runtime.parallelism import ALONE, timed
from hbtvm.runtime.plan import CALL_SECONDS, HANDOFF_SECONDS, Planner, brief_tiles, sharing, tile_seconds
from hbtvm.runtime.signature import Signature, rows_argument, scores_argument


def entry(rows: int, row_tile: int, seconds: float | None, **fields: Any) -> KernelEntry:
    signature = Signature((rows_argument("float32", row_tile, 4), scores_argument((1, 1, row_tile))), 1)
    given: dict[str, Any] = {
        "strategy": "bitvector", "config": {}, "threads": 1, "value_dtype": "float32", "library": b"",
        "signature": signature, "tables": (),
    }  # fmt: skip
    return KernelEntry(rows=rows, seconds=seconds, **{**given, **fields})


def planner(*kernels: KernelEntry, threads: int = 1) -> Planner:
    return Planner(kernels, [threads] * len(kernels))


ONE = entry(1, 1, 5e-6)
SMALL = entry(16, 16, 12e-6)
BULK = entry(1024, 64, 16 * 20e-6)


def used(n: int, *kernels: KernelEntry) -> list[tuple[int, int, int]]:
    steps = [tuple(step) for step in planner(*kernels).plan(n)]
    # Whatever is chosen covers the rows once, in order.
    assert steps[0][1] == 0 and steps[-1][2] == n
    assert all(a[2] == b[1] for a, b in itertools.pairwise(steps))
    return steps


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
    kernel = entry(1024, 64, 16 * 20e-6, parallel="rows")
    one, two = planner(kernel), planner(kernel, threads=2)
    assert two.seconds(0, 1024) < 0.7 * one.seconds(0, 1024)
    # Not where there is too little to share.
    assert two.seconds(0, 64) == one.seconds(0, 64)
    trees = planner(entry(1, 1, 400e-6, parallel="trees", threads=2), threads=2)
    assert trees.seconds(0, 1) == pytest.approx(400e-6)


def test_measured_time_is_taken_apart() -> None:
    assert tile_seconds(entry(1, 1, None)) is None
    assert tile_seconds(ONE) == pytest.approx(5e-6 - CALL_SECONDS)
    parallel = entry(1024, 64, 400e-6, parallel="rows", threads=2)
    assert tile_seconds(parallel) == pytest.approx((400e-6 - CALL_SECONDS - HANDOFF_SECONDS) * 2 / 16)
    assert planner(parallel, threads=2).seconds(0, 1024) == pytest.approx(400e-6)
    quick = tile_seconds(entry(1, 1, 1e-7))
    assert quick is not None and quick > 0


def test_short_calls() -> None:
    assert brief_tiles(BULK) == 2
    assert brief_tiles(ONE) >= 10
    assert brief_tiles(entry(1, 1, 1e-3)) == 0
    assert brief_tiles(entry(1, 1, None)) == 0


def test_grain_of_a_kernel_tuned_on_one_thread() -> None:
    assert sharing(entry(1024, 64, 16 * 20e-6), 2).grain == pytest.approx(4, abs=1)
    assert sharing(entry(1024, 64, None), 2).grain == 16
    assert sharing(entry(1, 64, 1.0), 2).grain == 1


def test_what_was_timed_is_what_runs() -> None:
    """A call of the tuned size by as many threads runs as it did, whatever a model would make of it."""
    alone = entry(1024, 64, 16 * 500e-6, threads=2)
    assert sharing(alone, 2).busy(1024, 64) == 1 and sharing(alone, 2).busy(1025, 64) == 2
    assert sharing(alone, 1) == timed("none", 2, 1) == ALONE
    for parallel, grain in (("rows", 1), ("rows", 4), ("trees", 1)):
        kernel = entry(1024, 64, 4e-3, threads=2, parallel=parallel, grain=grain)
        assert sharing(kernel, 2) == timed(parallel, 2, grain)
    # A kernel for fewer rows seems quicker on two threads; but nobody timed that.
    small = entry(100, 64, 2 * 400e-6, threads=2)
    both = planner(small, alone, threads=2)
    assert both.seconds(0, 1024) < 16 * 500e-6
    assert both.plan(1024) == ((1, 0, 1024),) and both.plan(1023)[0].kernel == 0
    # The fastest of several of one size; and with other threads, nothing was timed.
    third = entry(1024, 64, 16 * 450e-6, threads=2)
    assert planner(alone, third, small, threads=2).plan(1024) == ((1, 0, 1024),)
    assert planner(small, alone, threads=3).plan(1024)[0].kernel == 0


def test_plans_are_remembered_but_not_for_ever() -> None:
    plans = planner(ONE, BULK)
    assert plans.plan(700) is plans.plan(700)
    for n in range(10000):
        plans.plan(n)
    assert len(plans._plans) <= 4096
    assert plans.plan(700) == planner(ONE, BULK).plan(700)
