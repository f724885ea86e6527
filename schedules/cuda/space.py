"""Common knobs of all CUDA schedules, and the limits of a block."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.schedules.cpu.steps import MAX_SUMMED
from hbtvm.schedules.cuda import carveout
from hbtvm.schedules.cuda.shape import PREFETCH, WARP, Shape, persistent_blocks, shared_out
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload

MAX_SUMS = 24  # most scores in a thread's registers: each takes two, and its part of a tile another

SMALL_BATCH = 1 << 15
"""Most rows for which many threads per row are in the space: few rows do not fill a GPU."""

FEW_ROWS = 1024  # most rows for which blocks may split a row's trees, so that no multiprocessor is idle
_PROCESSORS = 128  # approximate number of multiprocessors of a large GPU
_TREE_TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_SPLITS = (1, 2, 4, 8, 16, 32, 64)  # numbers of blocks that may share a row's trees
_ROUNDS = 4  # most blocks for each multiprocessor that splitting trees may reach

_THREADS = 128
"""Fewest threads of a block: with fewer, a multiprocessor holds too few threads in any number of blocks."""

BUSY = 1024  # threads of a multiprocessor that mostly hide the latency of loads
_EVEN = 0.75  # least share of the multiprocessors' time that a few blocks for each must fill
_WIDE = 256  # number of features from which a warp that reads one feature of each row touches too many lines

_WHOLE_ROWS = 16
"""Most threads per row for which blocks of 512 threads keep a warp's rows together, reading the same tree."""

_FEWER_THREADS = {75: 1024, 86: 1536, 87: 1536, 89: 1536, 120: 1536}
"""Threads that a multiprocessor holds, by architecture; others hold 2,048 (CUDA C++ Programming Guide)."""

HELD = 512  # threads of a multiprocessor for which blocks give up rows
_FEWEST_ROWS = 8  # fewest rows of a block that stages columns: with fewer, too many blocks load the tables
_IN_FLIGHT = 4  # most trees of a thread walked at once by default: walks hide each other's latency

_LARGE_TREE = 1 << 14
"""Bytes of a tree's nodes from which on threads walk one tree at a time: four at once displace each other's
nodes from the L1 cache, and took 1.2 to 1.6 times as long for trees of 2,200 leaves on an H200."""

_MOST_SHARING = 64  # most threads per row that are in the space for any number of rows


@dataclass(frozen=True)
class Needs:
    """A block's resources of a multiprocessor."""

    threads: int
    shared: int  # bytes of shared memory
    registers: int  # 32-bit registers of a thread, estimated


def _processors(target: Target) -> int:
    return int(target.get("cores", _PROCESSORS))


def _held_threads(target: Target) -> int:
    """Return the threads that a multiprocessor holds."""
    known = re.fullmatch(r"sm_(\d+)[af]?", target["arch"])
    return 2048 if known is None else _FEWER_THREADS.get(int(known.group(1)), 2048)


def fits(needs: Needs, target: Target, config: Config) -> bool:
    """Whether ``resident`` blocks fit a multiprocessor, and the choice of ``carveout`` matters."""
    resident = int(config["resident"])
    return (
        needs.threads <= int(target["max_threads_per_block"])
        and resident * needs.threads <= _held_threads(target)
        # A multiprocessor has a block's most shared memory, plus the reserve.
        and resident * (needs.shared + carveout.RESERVED) <= carveout.most(target)
        and needs.registers <= int(target["max_registers_per_thread"])
        and _has_registers(needs, target, resident)
        and carveout.is_choice(config, needs.shared, target)
    )


def _has_registers(needs: Needs, target: Target, resident: int = 1) -> bool:
    """Whether a multiprocessor has registers for `resident` blocks."""
    warp = int(target["thread_warp_size"])
    # Registers are allocated to whole warps, eight per thread at a time.
    registers = -(-needs.threads // warp) * warp * -(-needs.registers // 8) * 8
    return resident * registers <= int(target["registers_per_block"])


def common_knobs(workload: Workload, target: Target) -> tuple[Knob, ...]:
    """Return the knobs of every strategy's CUDA schedule."""
    rows, most = int(workload["rows"]), int(target["max_threads_per_block"])
    few, ahead = rows <= SMALL_BATCH, (PREFETCH,) if target["kind"] == "cuda" else ()
    processors = _processors(target)
    splits = _SPLITS if rows <= FEW_ROWS else (1,)
    tiles = tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if n < 2 * rows)
    return (
        Knob("row_tile", tiles),
        Knob("row_threads", tuple(n for n in tiles if n <= min(most, 512))),
        Knob("tree_tile", _TREE_TILES),
        Knob("tree_threads", _TREE_TILES if few else (1, 2, 4, 8, 16, 32, 64)),
        Knob("layout", ("nodes", "trees") if few else ("nodes",)),
        Knob("columns", ("shared", "turned", "global")),
        # One tile at a time, with or without the next tile, or all tiles for a block's lifetime.
        Knob("tables", ("global", "shared", *ahead, *(("kept",) if rows > processors else ()))),
        Knob("resident", (1, 2, 4, 8, 16) if rows > _PROCESSORS else (1,)),
        # Blocks that share a tile of rows, each with a part of the trees.
        Knob("tree_blocks", tuple(n for n in splits if n <= int(workload["trees"]))),
        # 0: a block for each tile of rows; else the number of multiprocessors that persistent blocks fill.
        Knob("persistent", (0, processors) if rows > processors else (0,)),
        carveout.knob(target),
    )


def shape_is_valid(workload: Workload, target: Target, config: Config) -> bool:
    """Whether the knobs of `common_knobs` are consistent."""
    shape, warp = Shape.of(config), int(target["thread_warp_size"])
    workload = shared_out(workload, int(config["tree_blocks"]))
    tiles = -(-int(workload["rows"]) // shape.row_tile)
    if shape.row_tile % shape.row_threads or shape.tree_tile % shape.tree_threads:
        return False
    if shape.threads < min(warp, int(workload["rows"]) * int(workload["trees"])):
        return False  # a part of a warp is idle
    if shape.trees_each > MAX_SUMMED or shape.rows_each > (8 if int(workload["width"]) <= MAX_SUMS else 1):
        return False
    if shape.tree_threads >= 2 * int(workload["trees"]) or shape.tree_tile >= 2 * max(
        int(workload["trees"]), shape.tree_threads
    ):
        return False
    # Threads are numbered by row, then by tree.
    if config["layout"] == "trees" and (shape.tree_threads == 1 or shape.row_threads >= warp):
        return False
    if config["tables"] in ("shared", PREFETCH) and shape.row_tile == 1 and shape.trees_each == 1:
        return False
    several = shape.tree_tile < int(workload["trees"])
    if config["tables"] == PREFETCH and not several:
        return False  # there is no next tile
    if config["tree_blocks"] != 1 and (
        config["persistent"] or tiles * int(workload["groups"]) > _ROUNDS * _processors(target)
    ):
        return False  # there are enough blocks without splitting
    if not config["persistent"]:
        return config["tables"] != "kept"
    # With fewer tiles of rows, no block has a second tile; a single tile of trees needs no second copy.
    return tiles > persistent_blocks(workload, int(config["persistent"]), int(config["resident"])) and (
        several or config["tables"] != "shared"
    )


def walk_space(
    workload: Workload,
    target: Target,
    needs: Callable[[Workload, Config], Needs],
    fixed: dict[str, str],
    unroll: Sequence[int],
    also: Callable[[Config], bool] = lambda _: True,
) -> Space:
    """Return the space of a strategy that walks trees, level by level.

    `needs`: returns a block's resources in a configuration.
    `fixed`: knobs of `common_knobs` without a choice.
    `unroll`: candidate numbers of levels to unroll, beginning with 1; numbers beyond the depth are dropped.
    `also`: a further condition on configurations.
    """

    def valid(config: Config) -> bool:
        shape, together = Shape.of(config), int(config["together"])
        # A thread walks its trees in whole steps, with a limit on concurrent walks.
        walks = shape.trees_each % together == 0 and shape.rows_each * together <= 8
        return (
            shape_is_valid(workload, target, config)
            and walks
            and also(config)
            and fits(needs(workload, config), target, config)
        )

    common = tuple(
        Knob(knob.name, (fixed[knob.name],)) if knob.name in fixed else knob
        for knob in common_knobs(workload, target)
    )
    levels = tuple(n for n in unroll if n == 1 or n <= int(workload["depth"]))
    return Space((*common, Knob("together", (1, 2, 4)), Knob("level_unroll", levels)), valid)


def common_default(workload: Workload, target: Target, busy: int = BUSY, full: bool = True) -> Config:
    """Return a default for `common_knobs`; `settle` makes it fit the target.

    `busy`: threads to aim for on each multiprocessor if there are few rows.
    `full`: whether threads take few enough registers for a full multiprocessor.
    """
    rows, trees = int(workload["rows"]), int(workload["trees"])
    processors = _processors(target)
    many = rows >= 8 * _PROCESSORS * _THREADS and int(workload["width"]) == 1
    rows_each = 2 if many else 1
    # Threads for each row, until there are enough for all multiprocessors.
    most = 4 * _THREADS if rows <= processors else 2 * _THREADS
    wanted = min(max(processors * busy / rows, 1), most, max(trees, 1))
    tree_threads = 2 ** round(math.log2(wanted))
    held = _held_threads(target) if full else BUSY
    # Fill the multiprocessors if that keeps the rows of a warp together.
    whole = min(_WHOLE_ROWS, trees) if full else 1
    while tree_threads < whole and tree_threads * rows < processors * held * rows_each:
        tree_threads *= 2
    while tree_threads < trees and tree_threads * rows < int(target["thread_warp_size"]):
        tree_threads *= 2
    row_threads = _row_threads(rows, tree_threads, processors)
    while row_threads * trees < int(target["thread_warp_size"]) and row_threads < rows:
        row_threads *= 2
    trees_each = max(1, 8 // tree_threads)
    while trees_each > 1 and tree_threads * trees_each >= 2 * trees:
        trees_each //= 2
    row_tile, tree_tile = row_threads * rows_each, tree_threads * trees_each
    # Adding partial sums takes another kernel launch, so each block must keep some tiles.
    blocks, tree_blocks = -(-rows // row_tile) * int(workload["groups"]), 1
    most = min(_PROCESSORS, _ROUNDS * processors)
    while rows <= FEW_ROWS and trees >= 4 * tree_blocks * tree_tile and 2 * blocks * tree_blocks <= most:
        tree_blocks *= 2
    return {
        "row_tile": row_tile,
        "row_threads": row_threads,
        "tree_tile": tree_tile,
        "tree_threads": tree_threads,
        "layout": "trees" if tree_threads > 1 and row_threads < 8 else "nodes",
        # Neighbouring threads read neighbouring features of wide rows, else neighbouring rows.
        "columns": "turned" if int(workload["features"]) > _WIDE else "shared",
        "tables": "global",
        "tree_blocks": min(tree_blocks, _SPLITS[-1]),
        "persistent": 0,
        # Fill a multiprocessor as far as there are blocks.
        "resident": _resident(held // (row_threads * tree_threads), blocks * tree_blocks / processors)
        if rows > _PROCESSORS
        else 1,
        "carveout": "driver",
    }


def _resident(most: float, blocks: float) -> int:
    """Return the blocks to hold on a multiprocessor at a time, up to `most` and its share of `blocks`."""
    return next((n for n in (16, 8, 4, 2) if n <= most and n < 2 * blocks), 1)


def fills(workload: Workload, target: Target, row_tile: int) -> bool:
    """Whether tiles of `row_tile` rows leave blocks for about all multiprocessors."""
    tiles = -(-int(workload["rows"]) // row_tile)
    return tiles * int(workload["groups"]) >= _EVEN * _processors(target)


def _row_threads(rows: int, tree_threads: int, processors: int) -> int:
    """Return the most threads along a block's rows that fill the multiprocessors about evenly.

    The more rows a block has, the fewer blocks load the trees' tables.
    """
    # Few threads, but a warp's rows: the last of many small blocks end at about the same time.
    small = max(WARP, 2 * _THREADS // tree_threads)
    most = max(1, min(_THREADS, rows, small, 4 * _THREADS // tree_threads))
    choices = [n for n in (128, 64, 32, 16, 8, 4, 2, 1) if n <= most]
    # With too few rows for all multiprocessors, the smallest block of enough threads.
    choices = [n for n in choices if n * tree_threads >= _THREADS] or choices[:1]

    def filled(row_threads: int) -> float:
        blocks = -(-rows // row_threads)
        return blocks / (-(-blocks // processors) * processors)

    return next((n for n in choices if filled(n) >= _EVEN), max(choices, key=filled))


def settle(config: Config, workload: Workload, target: Target, needs: Callable[[Config], Needs]) -> Config:
    """Make a configuration fit a target, with as many resident blocks as fit.

    If these have too few threads, stop staging tables, then reduce the rows of blocks, then stop staging
    columns. If more threads, but not more blocks fit, more threads share a block's rows.
    """
    wanted = int(config["resident"]) * needs(config).threads
    fitted = _fitted(config, workload, target, needs)
    while int(fitted["resident"]) * needs(fitted).threads < wanted:
        trees = 2 * int(fitted["tree_threads"])
        wider = {**fitted, "tree_threads": trees, "tree_tile": max(trees, int(fitted["tree_tile"]))}
        if trees > min(int(workload["trees"]), _MOST_SHARING) or not fits(needs(wider), target, wider):
            break
        fitted = wider
    return fitted


def settle_walks(
    config: Config, workload: Workload, target: Target, needs: Callable[[Config], Needs], size: int
) -> Config:
    """Return `settle`'s configuration; threads with one row walk several trees at once.

    As many, up to `_IN_FLIGHT`, as cost no threads by their registers and few trees to fill up the last tile,
    but one if a tree's nodes take `size` bytes above `_LARGE_TREE`.
    """
    single = settle({**config, "together": 1}, workload, target, needs)
    trees, shape = int(workload["trees"]), Shape.of(single)
    if shape.rows_each > 1 or size > _LARGE_TREE:
        return single
    walked = -(-trees // shape.tree_threads) * shape.tree_threads
    for together in (_IN_FLIGHT, _IN_FLIGHT // 2):
        tile = max(together * shape.tree_threads, shape.tree_tile)
        several = {**single, "together": together, "tree_tile": tile}
        padded = -(-trees // tile) * tile
        whole = tile in _TREE_TILES and tile % (together * shape.tree_threads) == 0
        if whole and padded * _EVEN <= walked and fits(needs(several), target, several):
            return several
    return single


def _fitted(config: Config, workload: Workload, target: Target, needs: Callable[[Config], Needs]) -> Config:
    """Reduce resident blocks, staged tables and rows, as in `settle`."""
    while int(config["tree_threads"]) > 1 and not _has_registers(needs(config), target):
        half = int(config["tree_threads"]) // 2
        config = {**config, "tree_threads": half, "tree_tile": max(half, int(config["tree_tile"]) // 2)}
    plain: Config = {**config, "tables": "global"}
    shapes = [config] if config["tables"] != "global" else []
    best, most = config, 0
    for shape in (*shapes, *_smaller(plain, int(workload["trees"])), {**plain, "columns": "global"}):
        for resident in (16, 8, 4, 2, 1):
            fitted: Config = {**shape, "resident": resident}
            need = needs(fitted)
            if resident > int(config["resident"]) or not fits(need, target, fitted):
                continue
            held = resident * need.threads
            # Blocks with fewer rows load tables more often, which more threads must hide.
            enough = HELD if shape["row_tile"] == config["row_tile"] else 2 * HELD
            if held >= min(enough, int(config["resident"]) * needs(config).threads):
                return fitted
            if held > most:
                best, most = fitted, held
            break
        if most and int(shape["row_tile"]) <= _FEWEST_ROWS:
            break
    return best


def settle_blocks(config: Config, target: Target, needs: Callable[[Config], Needs]) -> Config:
    """Make a configuration fit a target by fewer resident blocks, then by unstaged columns."""
    fitted = config
    for columns in dict.fromkeys((config["columns"], "global")):
        for resident in (8, 4, 2, 1):
            fitted = {**config, "columns": columns, "resident": resident}
            if resident <= int(config["resident"]) and fits(needs(fitted), target, fitted):
                return fitted
    return fitted


def _smaller(config: Config, most: int) -> Iterator[Config]:
    """Yield a configuration, then variants with ever fewer rows of a block and more threads per row."""
    yield config
    shape = Shape.of(config)
    rows, threads, trees, tile = shape.row_tile, shape.row_threads, shape.tree_threads, shape.tree_tile
    while rows > _FEWEST_ROWS and config["columns"] != "global":
        rows //= 2
        if rows < threads:
            threads = rows
            while trees < most and trees * threads < HELD:
                trees *= 2
            tile = max(tile, trees)
        yield {**config, "row_tile": rows, "row_threads": threads, "tree_threads": trees, "tree_tile": tile}


def column_bytes(workload: Workload, config: Config, extra: int = 0) -> int:
    """Return the bytes of shared memory for a row tile's columns and `extra` additional columns."""
    if config["columns"] == "global":
        return 0
    count = workload["numeric"] + workload["categorical"] + extra
    return aligned(int(config["row_tile"]) * int(count) * element(workload["dtype"]))


def sum_bytes(config: Config) -> int:
    """Return the bytes of shared memory to sum the scores of threads with the same row."""
    shape = Shape.of(config)
    return aligned(8 * shape.threads) if shape.tree_threads > 1 else 0


def sum_registers(workload: Workload, config: Config) -> int:
    """Return the registers of a thread's sums; 0 if there are so many that they go to local memory."""
    width = int(workload["width"])
    each = Shape.of(config).rows_each * width
    return (each if width <= MAX_SUMS else 0) * (2 + element(workload["value_dtype"]) // 4)


def aligned(size: int) -> int:
    """Return the bytes of a shared tensor, alignment included."""
    return -(-size // 64) * 64


def element(dtype: str) -> int:
    """Return the bytes of an element."""
    return np.dtype(dtype).itemsize
