"""CPU schedules of Shapley values by quadrature.

The walk over splits runs for a tile of rows, with vectors of rows or, a row at a time, of points (knob
``axis``)::

    for tile:
        columns of the tile
        for block of `tree_block` trees:
            for split, depth first: for vector of the tile (`vectors`): open it, close splits that end there
            scores += the block's sums

`hbtvm.compiler.lowering.reasons` writes the statements of the walk.
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu.sharing import row_thread_knobs, threads_are_valid
from hbtvm.schedules.cpu.steps import place_columns, state_tile, vector_lanes
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload

SHAPLEY = "hbtvm.shapley"
"""Annotation of the loop over a tile's scores, and name of the call inside, which stand for the walk.

The annotation's value has, in this order: levels, outputs of a leaf, players, points, values of a row, rows
of a tile, lanes, and 1 if vectors run over points.
"""

_ROWS = "hbtvm.shapley_rows"  # annotation of the loop over rows inside


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (`ReasonsWorkload`) on a CPU target."""
    lanes = vector_lanes(target, workload["value_dtype"])

    def valid(config: Config) -> bool:
        if not threads_are_valid(config):
            return False
        if config["axis"] == "points":
            return config["vectors"] == 1 and config["row_tile"] == 1
        return int(config["row_tile"]) == int(config["lanes"]) * int(config["vectors"])

    rows = int(workload["rows"])
    tiles = tuple(
        n for n in (lanes[0], 2 * lanes[0], 4 * lanes[0], 8 * lanes[0], 16 * lanes[0]) if n < 2 * rows
    )
    return Space(
        (
            Knob("axis", ("points", "rows") if tiles else ("points",)),
            Knob("row_tile", (1, *tiles)),
            Knob("lanes", lanes),
            Knob("vectors", (1, 2, 4)),
            Knob("tree_block", (4, 16, 64)),
            *row_thread_knobs(workload),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    lanes, rows = vector_lanes(target, workload["value_dtype"]), int(workload["rows"])
    if 2 * rows <= lanes[0]:
        width = next((n for n in lanes if n >= int(workload["points"])), lanes[-1])  # type: ignore[typeddict-item]
        return {"axis": "points", "row_tile": 1, "lanes": width, "vectors": 1, "tree_block": 16}
    width = max(n for n in lanes if n < 2 * rows)
    vectors = 2 if rows >= 2 * width else 1
    return {
        "axis": "rows",
        "row_tile": vectors * width,
        "lanes": width,
        "vectors": vectors,
        "tree_block": 16,
    }


def padded_points(points: int, config: Config) -> int:
    """Return the points of the tables, which fill whole vectors if these run over points."""
    lanes = int(config["lanes"]) if config["axis"] == "points" else 1
    return -(-points // lanes) * lanes


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``columns`` and ``scores``)."""
    scores = sch.get_sblock("scores")
    tile, _, value, row = sch.get_loops(scores)
    state_tile(sch, scores, "columns", 3)
    by_points = config["axis"] == "points"
    place_columns(sch, tile, 1 if by_points else int(config["lanes"]))
    points = padded_points(int(workload["points"]), config)  # type: ignore[typeddict-item]
    players, width = int(workload["players"]), int(workload["width"])  # type: ignore[typeddict-item]
    sizes = (
        max(int(workload["depth"]), 1), width, players, points, int(workload["groups"]) * width * players,
        int(config["row_tile"]), int(config["lanes"]), int(by_points),
    )  # fmt: skip
    sch.annotate(value, SHAPLEY, list(sizes))
    sch.annotate(row, _ROWS, 1)
