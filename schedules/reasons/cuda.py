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
thread computes, players, points, rows of a thread, their distance in the tile, rows of the tile, and blocks
for a multiprocessor.
"""

ROWS = "hbtvm.shapley_step_rows"  # annotation of the loop over a thread's rows inside

_MOST_LOCAL_SUMS = 256  # of a thread; the driver reserves local memory for all threads of a device
_MOST_STATE = 96  # most numbers of a thread for its points, outputs and rows
_PARTS = (1, 2, 4, 8, 16, 32, 64, 128)
_PROCESSORS = 128  # approximate number of multiprocessors of a large GPU
_FEW_ROWS = 1 << 14  # most rows for which trees are shared by many threads
_BUSY = 512  # threads of a multiprocessor that mostly hide latency
_FEWEST_TREES = 2  # of a thread, where threads share trees


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (`ReasonsWorkload`) on a CUDA target."""
    rows, trees = int(workload["rows"]), int(workload["trees"])
    tiles = tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n < 2 * rows)
    few = rows <= _FEW_ROWS

    def valid(config: Config) -> bool:
        return _is_valid(workload, target, config) and fits(needs(workload, config), target, config)

    return Space(
        (
            Knob("row_tile", tiles),
            Knob("row_threads", tiles),
            Knob("tree_threads", tuple(n for n in (1, 2, 4, 8, 16) if n <= trees)),
            Knob("tree_blocks", tuple(n for n in (_PARTS if few else _PARTS[:3]) if n == 2 or n <= trees)),
            Knob("outputs", divisors(int(workload["width"]), 8)),
            Knob("sums", ("local", "global")),
            Knob("columns", ("shared", "turned") if rows > 1 else ("shared",)),
            Knob("resident", (1, 2, 4, 8)),
            carveout.KNOB,
        ),
        valid,
    )


def _is_valid(workload: Workload, target: Target, config: Config) -> bool:
    rows_each, threads = divmod(int(config["row_tile"]), int(config["row_threads"]))
    if threads or rows_each not in (1, 2) or (config["columns"] == "turned" and config["row_tile"] == 1):
        return False
    lanes = int(config["tree_threads"]) * int(config["tree_blocks"])
    if lanes > 2 and lanes > int(workload["trees"]):
        return False
    if config["sums"] == "global":
        return config["tree_threads"] == 1 and config["tree_blocks"] != 1
    return local_sums(workload, config) <= _MOST_LOCAL_SUMS


def local_sums(workload: Workload, config: Config) -> int:
    """Return the number of a thread's sums."""
    rows_each = int(config["row_tile"]) // int(config["row_threads"])
    return rows_each * int(config["outputs"]) * int(cast(ReasonsWorkload, workload)["players"])


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
    most = 128 if rows >= 2 * 128 * processors else 32
    row_threads = max(n for n in (1, 2, 4, 8, 16, 32, 128) if n == 1 or n < min(2 * rows, most + 1))
    chosen: Config = {
        "row_tile": row_threads,
        "row_threads": row_threads,
        "tree_threads": 1,
        "tree_blocks": 1,
        "outputs": outputs,
        "sums": "local" if outputs * int(reasons["players"]) <= _MOST_LOCAL_SUMS else "global",
        "columns": "shared",
        "resident": 1,
        "carveout": "driver",
    }
    # More threads share a row's trees, until there are threads for all multiprocessors.
    names = {"tree_threads": 8 if row_threads >= 16 else 4, "tree_blocks": 64}
    if chosen["sums"] == "global":
        chosen["tree_blocks"] = 2
        names.pop("tree_threads")
    threads = rows * int(workload["groups"]) * width // outputs
    for name, limit in names.items():
        while (
            int(chosen[name]) < limit
            and threads * _lanes(chosen) < processors * _BUSY
            and 2 * _lanes(chosen) * _FEWEST_TREES <= trees
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
        int(reasons["players"]), int(reasons["points"]), tile // rows, rows, tile, int(config["resident"]),
    )  # fmt: skip
    sch.annotate(v, SHAPLEY_STEPS, list(sizes))
    sch.annotate(p, ROWS, 1)
