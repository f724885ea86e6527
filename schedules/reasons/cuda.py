"""CUDA schedules of Shapley values by quadrature.

A thread walks some trees for some rows, with all points of the quadrature in registers. Its stack and its
sums are thread-local memory, which L1 holds. Threads of a warp have neighbouring rows and the same trees, so
that they take the same steps and request the same entries of tables::

    block for each tile of rows (blockIdx.x), and part of the trees and `outputs` outputs (blockIdx.y):
        columns[:, :] = ...                          # in shared memory, by all threads (knob ``columns``)
        thread for each (x, y) of row_threads * tree_threads:
            for step of the thread's trees: for row of rows_each: sums[...] += ...     (float64)
        scores = sum of sums over y                  # all threads

Sums that are too many for a thread lie where scores do (knob ``sums``: "global"); blocks then have a part of
the trees each.
"""

from __future__ import annotations

from typing import Any, cast

from hbtvm.schedules.cpu.linear import divisors
from hbtvm.schedules.cpu.steps import state_read
from hbtvm.schedules.cuda import carveout
from hbtvm.schedules.cuda.space import Needs, aligned, element, fits
from hbtvm.schedules.cuda.steps import bind_threads, scope
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import ReasonsWorkload, Target, Workload

SHAPLEY_STEPS = "hbtvm.shapley_steps"
"""Annotation of the loop over a thread's values, and name of the call inside, which stand for the walk.

The annotation's value has, in this order: levels, halves of sums that wait, outputs of a leaf, outputs that a
thread computes, players, points, classes, threads that share trees, rows of a thread, their distance in the
tile, rows of the tile, and blocks for a multiprocessor.
"""

ROWS = "hbtvm.shapley_step_rows"  # annotation of the loop over a thread's rows inside

T, S, WEIGHT = range(3)  # numbers of a point: t, 1 - t, and its weight

_MOST_LOCAL_SUMS = 256  # of a thread; the driver reserves local memory for all threads of a device
_MOST_STATE = 96  # most numbers of a thread for its points, outputs and rows
_PARTS = (1, 2, 4, 8, 16, 32, 64)
_PROCESSORS = 128  # approximate number of multiprocessors of a large GPU
_BUSY = 12  # warps of a multiprocessor that mostly hide latency
_TABLES = 1 << 17
"""Bytes of tables of a part of the trees, for L1: blocks that run at a time mostly have the same part."""

_SEVERAL = 6  # points from which on trees that need fewer have a walk of their own


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (`ReasonsWorkload`) on a CUDA target."""
    rows, trees = int(workload["rows"]), int(workload["trees"])
    # Also of few rows a whole warp has the same trees, or its threads would take different steps.
    tiles = tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n < 2 * rows or n <= 32)

    def valid(config: Config) -> bool:
        return _is_valid(workload, target, config) and fits(needs(workload, config), target, config)

    return Space(
        (
            Knob("row_tile", tiles),
            Knob("row_threads", tiles),
            Knob("tree_threads", tuple(n for n in (1, 2, 4, 8, 16) if n < 2 * trees)),
            Knob("tree_blocks", tuple(n for n in _PARTS if n == 2 or n < 2 * trees)),
            Knob("outputs", divisors(int(workload["width"]), 8)),
            Knob("sums", ("local", "global")),
            Knob("classes", tuple(n for n in (1, 2, 3) if n <= int(workload["points"]))),  # type: ignore[typeddict-item]
            Knob("columns", ("shared", "turned")),
            Knob("resident", (1, 2, 4, 8, 16, 32)),
            carveout.KNOB,
        ),
        valid,
    )


def _is_valid(workload: Workload, target: Target, config: Config) -> bool:
    rows_each, threads = divmod(int(config["row_tile"]), int(config["row_threads"]))
    if threads or rows_each not in (1, 2) or (config["columns"] == "turned" and config["row_tile"] == 1):
        return False
    if _lanes(config) > 2 and _lanes(config) >= 2 * int(workload["trees"]):
        return False
    if config["sums"] == "global":
        return config["tree_threads"] == 1 and config["tree_blocks"] != 1
    return local_sums(workload, config) <= _MOST_LOCAL_SUMS


def local_sums(workload: Workload, config: Config) -> int:
    """Return the number of a thread's sums."""
    rows_each = int(config["row_tile"]) // int(config["row_threads"])
    return rows_each * int(config["outputs"]) * int(cast(ReasonsWorkload, workload)["players"])


def points_of(points: int, classes: int) -> tuple[int, ...]:
    """Return the points of each class of trees: the fewest of these that a tree's paths need are its."""
    return tuple(sorted({-(-points * (n + 1) // classes) for n in range(classes)}))


def most_halves(leaves: int) -> int:
    """Return the most halves of sums that wait for second subtrees, in trees of so many leaves, or 1."""
    # A second subtree has at most half of the leaves, and at least two.
    return max(leaves.bit_length() - 2, 1)


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    points = int(cast(ReasonsWorkload, workload)["points"])
    tile, rows, trees = (int(config[name]) for name in ("row_tile", "row_threads", "tree_threads"))
    columns = aligned(tile * int(workload["numeric"] + workload["categorical"]) * element(workload["dtype"]))
    sums = aligned(8 * rows * trees) if trees > 1 else 0
    state = points * (3 + tile // rows * (2 + int(config["outputs"])))
    words = 2 if workload["value_dtype"] == "float64" else 1
    return Needs(rows * trees, columns + sums, min(255, 36 + words * min(state, _MOST_STATE)))


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    rows, trees, width = int(workload["rows"]), int(workload["trees"]), int(workload["width"])
    reasons = cast(ReasonsWorkload, workload)
    processors = int(target.get("cores", _PROCESSORS))

    def has_room(outputs: int) -> bool:
        numbers = 4 * outputs * int(reasons["points"])
        return numbers <= _MOST_STATE and outputs * int(reasons["players"]) <= _MOST_LOCAL_SUMS

    outputs = max(n for n in divisors(width, 8) if n == 1 or has_room(n))
    chosen: Config = {
        "row_tile": 32,
        "row_threads": 32,
        "tree_threads": 1,
        "tree_blocks": 1,
        "outputs": outputs,
        "sums": "local" if outputs * int(reasons["players"]) <= _MOST_LOCAL_SUMS else "global",
        "classes": 2 if int(reasons["points"]) >= _SEVERAL else 1,
        "columns": "shared",
        "resident": 1,
        "carveout": "driver",
    }
    number = element(workload["value_dtype"])
    tables = 2 * int(reasons["splits"]) * trees * (16 + (4 + 2 * width) * number)
    chosen["tree_blocks"] = max(n for n in _PARTS if n == 1 or (n < trees and n * _TABLES < 2 * tables))
    if chosen["sums"] == "global":
        chosen["tree_blocks"] = max(2, int(chosen["tree_blocks"]))
    warps = -(-rows // 32) * int(workload["groups"]) * width // outputs
    # Then more threads for each row, until there are enough for all multiprocessors.
    for name, most in (("tree_blocks", _PARTS[-1]), ("tree_threads", 8)):
        while (
            warps * _lanes(chosen) < processors * _BUSY
            and int(chosen[name]) < most
            and _lanes(chosen) < trees
            and (name == "tree_blocks" or chosen["sums"] == "local")
        ):
            chosen[name] = 2 * int(chosen[name])
    while int(chosen["row_tile"]) > 1 and not fits(needs(workload, chosen), target, chosen):
        chosen["row_tile"] = chosen["row_threads"] = int(chosen["row_tile"]) // 2
    return chosen


def _lanes(config: Config) -> int:
    return int(config["tree_threads"]) * int(config["tree_blocks"])


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``columns``, ``sums`` if local, and ``scores``)."""
    reasons = cast(ReasonsWorkload, workload)
    tile, rows, outputs = (int(config[name]) for name in ("row_tile", "row_threads", "outputs"))
    local = config["sums"] == "local"
    scores = sch.get_sblock("scores")
    i, part, v, p, x, *lane = sch.get_loops(scores)
    of_output, v = sch.split(v, [None, outputs * int(reasons["players"])])
    block = sch.fuse(part, of_output)
    sch.bind(i, "blockIdx.x")
    sch.bind(block, "blockIdx.y")
    walk = sch.get_sblock("sums") if local else scores
    if local:
        sch.compute_at(walk, block, True)
        bind_threads(sch, x, lane[0] if lane else None)
        v, y, p, x = sch.get_loops(walk)[-4:]
        sch.reorder(x, y, v, p)
        bind_threads(sch, x, y)
        sch.set_scope(walk, 0, "local")
    else:
        sch.reorder(x, v, p)
        bind_threads(sch, x)
    columns = sch.get_sblock("columns")
    entries = sch.get(columns).writes[0].source.shape[1]

    def read(i: Any, *others: Any) -> list[tuple[Any, Any]]:
        row = others[-2] * rows + others[-1]
        return [(i, i + 1), (0, entries), (row, row + 1)]

    state_read(sch, walk, "columns", read)
    sch.compute_at(columns, block, True)
    column, row = sch.get_loops(columns)[-2:]
    if config["columns"] == "turned":
        # Neighbouring threads then read neighbouring features, and store a row tile apart.
        sch.reorder(row, column)
        column, row = row, column
    _, y, x = sch.split(sch.fuse(column, row), [None, int(config["tree_threads"]), rows])
    bind_threads(sch, x, y)
    sch.set_scope(columns, 0, scope(needs(workload, config).shared))
    sizes = (
        max(int(workload["depth"]), 1), most_halves(int(workload["leaves"])), int(workload["width"]), outputs,
        int(reasons["players"]), int(reasons["points"]), int(config["classes"]), _lanes(config), tile // rows,
        rows, tile, int(config["resident"]),
    )  # fmt: skip
    sch.annotate(v, SHAPLEY_STEPS, list(sizes))
    sch.annotate(p, ROWS, 1)
