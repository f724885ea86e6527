"""CUDA schedules of perfect tree traversal (see `hbtvm.schedules.cuda.steps` for the loops around them)::

for level:                                        # `level_unroll` of them, unrolled
    for tree in together, for row of rows_each:   # independent walks that hide each other's latency
        node[tree, row] = 2 * node + (column <= threshold ? 0 : 1)
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cuda.shape import Shape, staged_trees, walk_layout
from hbtvm.schedules.cuda.space import (
    Needs,
    column_bytes,
    common_default,
    element,
    settle_walks,
    sum_bytes,
    sum_registers,
    walk_space,
)
from hbtvm.schedules.cuda.steps import finish, place, stage_table, state_row, state_tree
from hbtvm.schedules.space import Config, Space
from hbtvm.schedules.workload import Target, Workload


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CUDA target."""
    return walk_space(workload, target, needs, {}, (1, 2, 4, 8))


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    shape, together = Shape.of(config), int(config["together"])
    nodes = staged_trees(workload, config) * 2 ** workload["depth"] * 2 * element(workload["dtype"])
    walk = 1 + element(workload["dtype"])
    return Needs(
        shape.threads,
        column_bytes(workload, config) + nodes + sum_bytes(config),
        19 + shape.rows_each * together * walk + sum_registers(workload, config),
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    chosen = common_default(workload, target)
    chosen["layout"] = walk_layout(workload, chosen, 2 * element(workload["dtype"]))
    chosen["level_unroll"] = 2 if workload["depth"] > 1 else 1
    size = 2 ** int(workload["depth"]) * 2 * element(workload["dtype"])
    return settle_walks(chosen, workload, target, lambda config: needs(workload, config), size)


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the walk's expressions in place (main stage: block ``walk``)."""
    placed = place(sch, workload, config, "walk", int(config["together"]))
    walk, shared = sch.get_sblock("walk"), needs(workload, config).shared
    level, inner = sch.split(placed.reduction, [None, int(config["level_unroll"])])
    sch.unroll(inner)
    state_row(sch, walk, config)
    if config["tables"] != "global":
        state_tree(sch, walk, config, "node")
        stage_table(sch, config, walk, "node", placed, shared, 2)
    finish(sch, config, placed, [(walk, level)], shared)
