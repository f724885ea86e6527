"""CPU schedules of distances to stored points: vectors of points, for one row at a time.

::

    for row: for block of `vectors` * `lanes` points:
        for feature (by `unroll`): for point: sum[point] += (row[feature] - point[feature]) ** 2
"""

from __future__ import annotations

from typing import Any, cast

from hbtvm.schedules.cpu import decompose, mark, threads_are_valid, vector_lanes, vectorize
from hbtvm.schedules.linear_cpu import divisors
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import NeighborsWorkload, Target, Workload


def space(workload: Workload, target: Target) -> Space:
    """Knobs for a workload of distances (`NeighborsWorkload`) on a CPU target."""
    own = cast(NeighborsWorkload, workload)
    threads = (Knob("parallel", ("none", "rows")), Knob("grain", (1, 4, 16))) if own["threads"] > 1 else ()
    return Space(
        (
            Knob("row_tile", (1,)),
            Knob("lanes", vector_lanes(target, "float64")),
            Knob("vectors", (1, 2, 4, 8)),
            Knob("unroll", divisors(own["features"], 16)),
            *threads,
        ),
        threads_are_valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """A good configuration of one thread where nothing was measured."""
    own = cast(NeighborsWorkload, workload)
    lanes = vector_lanes(target, "float64")[-1]
    return {"row_tile": 1, "lanes": lanes, "vectors": 4, "unroll": divisors(own["features"], 4)[-1]}


def block(config: Config) -> int:
    """Points of a block; tables are padded to whole ones."""
    return int(config["lanes"]) * int(config["vectors"])


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``squares``, ``scores``)."""
    own = cast(NeighborsWorkload, workload)
    lanes, vectors = int(config["lanes"]), int(config["vectors"])
    scores, squares = sch.get_sblock("scores"), sch.get_sblock("squares")
    tile, *_, place, row = sch.get_loops(scores)
    if own["points"] % lanes == 0:
        vectorize(sch, sch.fuse(place, row), lanes)
    sch.compute_at(squares, tile, True)
    point, feature = sch.get_loops(squares)[-2:]
    outer, register, lane = sch.split(point, [None, vectors, lanes])
    step, inner = sch.split(feature, [None, int(config["unroll"])])
    sch.reorder(outer, step, inner, register, lane)
    sch.unroll(inner)
    mark(sch, register, lane)
    decompose(sch, squares, step, lanes)
