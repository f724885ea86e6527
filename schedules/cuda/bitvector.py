"""CUDA schedules of the bitvector strategy (see `hbtvm.schedules.cuda.steps` for the loops around them)::

for tree of trees_each:
    for block of `node_vector` nodes:
        column, threshold, mask of the nodes to registers   # one load each, where layout is "nodes"
        for node of block, for row of rows_each: bits[row] &= ...
    parts[row] += value[tree, lowest_bit(bits[row])]
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cuda.shape import Shape, staged_trees
from hbtvm.schedules.cuda.space import (
    HELD,
    Needs,
    aligned,
    column_bytes,
    common_default,
    common_knobs,
    element,
    fills,
    fits,
    settle,
    shape_is_valid,
    sum_bytes,
    sum_registers,
)
from hbtvm.schedules.cuda.steps import finish, load_vector, place, stage_table, state_row
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload

_TABLES = ("column", "threshold", "mask")

_SEVERAL = 16
"""Blocks for each multiprocessor from which a thread has four rows by default rather than two; for two rows
rather than one, a single block suffices."""


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CUDA target."""

    def valid(config: Config) -> bool:
        if config["layout"] == "trees" and config["node_vector"] != 1:
            return False  # neighbours are other trees' nodes
        return shape_is_valid(workload, target, config) and fits(needs(workload, config), target, config)

    return Space(
        (
            *common_knobs(workload, target),
            Knob("node_vector", (1, 2, 4)),
            Knob("node_unroll", (1, 2, 4)),
        ),
        valid,
    )


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    shape, vector = Shape.of(config), int(config["node_vector"])
    nodes = staged_trees(workload, config) * _splits(workload, vector)
    tables = sum(aligned(nodes * size) for size in _node_sizes(workload))
    word = _word_bytes(workload) // 4
    state = (
        shape.rows_each * (word + 1) + vector * int(config["node_unroll"]) * sum(_node_sizes(workload)) // 4
    )
    return Needs(
        shape.threads,
        column_bytes(workload, config) + tables + sum_bytes(config),
        28 + state + sum_registers(workload, config),
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    chosen = common_default(workload, target, full=False)
    if sum(_node_sizes(workload)) > 12:
        # Wide nodes and words take more registers.
        held = max(1, HELD // Shape.of(chosen).threads)
        chosen["resident"] = min(int(chosen["resident"]), held)
    shape = Shape.of(chosen)
    blocks = _SEVERAL if shape.rows_each > 1 else 1
    alone = shape.tree_threads == 1 and int(workload["width"]) == 1
    if alone and fills(workload, target, 2 * blocks * shape.row_tile):
        # A thread loads a node once for all of its rows, which takes registers.
        chosen["row_tile"] = 2 * shape.row_tile
        chosen["resident"] = min(int(chosen["resident"]), max(1, HELD // shape.threads))
    vector = 1 if chosen["layout"] == "trees" else 4
    chosen = {**chosen, "node_vector": vector, "node_unroll": 1 if vector > 1 else 4}
    return settle(chosen, workload, target, lambda config: needs(workload, config))


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the bitvector expressions in place (main stage: block ``bits``)."""
    placed = place(sch, workload, config, "bits")
    vector, unroll = int(config["node_vector"]), int(config["node_unroll"])
    bits, shared = sch.get_sblock("bits"), needs(workload, config).shared
    block, several, node = sch.split(placed.reduction, [None, unroll, vector])
    sch.unroll(several)
    sch.unroll(node)
    for name in _TABLES:
        if config["tables"] != "global":
            copied = vector if config["layout"] == "nodes" else min(4, Shape.of(config).tree_tile)
            stage_table(sch, config, bits, name, placed, shared, copied)
        load_vector(sch, bits, name, several)
    state_row(sch, bits, config)
    finish(sch, config, placed, [(bits, block)], shared)


def _splits(workload: Workload, vector: int) -> int:
    return -(-max(int(workload["leaves"]) - 1, 1) // vector) * vector


def _word_bytes(workload: Workload) -> int:
    return 4 if workload["leaves"] <= 32 else 8


def _node_sizes(workload: Workload) -> tuple[int, int, int]:
    """Bytes of a node in each of `_TABLES`."""
    return 4, element(workload["dtype"]), _word_bytes(workload)
