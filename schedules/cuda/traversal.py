"""CUDA schedules of tree traversal (see `hbtvm.schedules.cuda.steps` for the loops around them)::

until all walks of the thread have arrived:
    for level of level_unroll:
        for tree in together, for row of rows_each:   # independent walks that hide each other's latency
            slot[tree, row] = next(slot[tree, row])
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu.traversal import EARLY_EXIT
from hbtvm.schedules.cuda.shape import Shape
from hbtvm.schedules.cuda.space import (
    BUSY,
    Needs,
    column_bytes,
    common_default,
    element,
    settle_walks,
    sum_bytes,
    sum_registers,
    walk_space,
)
from hbtvm.schedules.cuda.steps import finish, place, state_row
from hbtvm.schedules.space import Config, Space
from hbtvm.schedules.workload import Target, Workload

_FIXED = {"layout": "nodes", "tables": "global"}
"""Trees of different sizes are contiguous, so there is no choice of layout or tile."""


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CUDA target."""
    return walk_space(workload, target, needs, _FIXED, (1, 2, 4))


def lacks_columns(workload: Workload) -> bool:
    """Whether no tree reads a column; walks always read a column, so the kernel then adds one."""
    return int(workload["numeric"]) + int(workload["categorical"]) == 0


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    shape, together = Shape.of(config), int(config["together"])
    walk = element(workload["dtype"]) * 3 // 2
    return Needs(
        shape.threads,
        column_bytes(workload, config, int(lacks_columns(workload))) + sum_bytes(config),
        17 + shape.rows_each * together * walk + sum_registers(workload, config),
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    chosen = common_default(workload, target)
    chosen = {**chosen, **_FIXED, "columns": "shared", "level_unroll": 1}

    def held(config: Config) -> int:
        return int(config["resident"]) * Shape.of(config).threads

    # Many columns leave room for few threads: compare one row per thread with two.
    single = {**chosen, "row_tile": chosen["row_threads"]}
    size = int(workload["nodes"]) * 2 * element(workload["dtype"])
    able = (
        settle_walks(candidate, workload, target, lambda config: needs(workload, config), size)
        for candidate in (chosen, single)
    )
    return max(able, key=lambda config: min(held(config), BUSY))


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the walk's expressions in place (main stage: block ``walk``)."""
    placed = place(sch, workload, config, "walk", int(config["together"]))
    walk, shared = sch.get_sblock("walk"), needs(workload, config).shared
    level, inner = sch.split(placed.reduction, [None, int(config["level_unroll"])])
    sch.unroll(inner)
    sch.annotate(level, EARLY_EXIT, 1)
    state_row(sch, walk, config)
    finish(sch, config, placed, [(walk, level)], shared)
