"""Schedule steps that every CUDA schedule shares.

The expressions are those of `hbtvm.strategies.cuda.grid`. Every kernel has this form, with a strategy's
main stage in the middle::

    block for each tile of rows (blockIdx.x) and group of outputs (blockIdx.y):
        columns[:, :] = ...                            # in shared memory, by all threads (knob ``columns``)
        thread for each (x, y) of row_threads * tree_threads:
            for tree tile:
                tables of the tile to shared memory, by all threads         (knob ``tables``: "shared")
                for tree of trees_each:
                    for row of rows_each: <stage>; parts[row] += value      (registers)
                lane_sums[row] += parts[row]                                (registers, float64)
            scores[row] = sum of lane_sums over y                           (all threads)

With "prefetch" instead of "shared", the next tile's tables are copied asynchronously, to a second buffer
(`hbtvm.compiler.lowering.cuda.prefetch`).

If blocks share a group's trees (knob ``tree_blocks``), each part stands for a group. Persistent blocks (knob
``persistent``) are of a fixed number, each with a grid-stride loop over row tiles::

    block for each group of outputs (blockIdx.y) and b < blocks (blockIdx.x):
        tables of all trees to shared memory, by all threads                (knob ``tables``: "kept")
        for tile of rows b, b + blocks, ...: as above
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.schedules.cpu.steps import state_read
from hbtvm.schedules.cuda.shape import PREFETCH, WARP, Shape, persistent_blocks
from hbtvm.schedules.cuda.space import MAX_SUMS
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload

STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a kernel may declare statically; more is dynamic."""

RESIDENT = "hbtvm.resident"
"""Annotation of a loop: the blocks of its kernel that a multiprocessor should hold at a time."""

PREFETCHED = "hbtvm.prefetched"
"""As `RESIDENT`, for a loop over tiles of trees that prefetches the next tile's tables."""

PAIRED = "hbtvm.pairs"
"""Attribute of a function that may compare pairs on OpenCL devices without float64, since no leaf of a tree
depends on the result."""

GRID_STRIDED = "hbtvm.grid_strided"
"""Annotation of a loop over row tiles that runs as a grid-stride loop; its value: the number of blocks."""


def scope(shared: int) -> str:
    """Return the storage scope of a block's shared tensors of `shared` bytes in all."""
    return "shared" if shared <= STATIC_SHARED else "shared.dyn"


@dataclass(frozen=True)
class Placed:
    """A strategy's main stage, placed among the stages around it."""

    block: Any  # the loop with one iteration per block
    rows: Any  # the loop over a block's tiles of rows; equals `block` unless blocks are persistent
    tile: Any  # the loop over tree tiles
    tree: Any  # the loop over a thread's trees of a tile
    reduction: Any  # the main stage's reduction loop


def place(
    sch: Any,
    workload: Workload,
    config: Config,
    stage: str,
    together: int = 1,
    by_warp: bool = False,
    gathered: bool = False,
) -> Placed:
    """Arrange the sums of a kernel, bind its loops to blocks and threads, and place the main stage.

    `stage`: name of the block of the strategy's main stage, a reduction.
    `together`: trees of a thread that the stage handles at once, in unrolled loops.
    `by_warp`: as in `bind_threads`.
    `gathered`: whether one thread adds all sums of a row, rather than all threads of the row in steps, which
        causes bank conflicts.
    """
    scores, lanes, parts, main = (sch.get_sblock(name) for name in ("scores", "lane_sums", "parts", stage))
    i, g, _, _, x, *rest = sch.get_loops(scores)
    rows = g
    if config["persistent"]:
        sch.reorder(g, i)
        sch.annotate(
            i, GRID_STRIDED, persistent_blocks(workload, int(config["persistent"]), int(config["resident"]))
        )
        rows = i
    else:
        sch.bind(i, "blockIdx.x")
    sch.bind(g, "blockIdx.y")
    if rest and gathered:
        _gather_sums(sch, config, scores, rows)
        sch.compute_at(lanes, rows, True)
    else:
        sch.compute_at(lanes, rows, True)
        bind_threads(sch, x, rest[0] if rest else None, by_warp)

    # Loops of one iteration stay, so a nest's loops are its sblock's iterators, in order.
    v, y, p, x, o = sch.get_loops(lanes)[-5:]
    sch.reorder(x, y, o, v, p)
    bind_threads(sch, x, y, by_warp=by_warp)
    unroll(sch, v)
    unroll(sch, p)
    sch.compute_at(parts, o, True)
    v, _, p, _, q = sch.get_loops(parts)[-5:]
    tree, member = sch.split(q, [None, together])
    sch.reorder(tree, member, p, v)
    sch.compute_at(main, tree, True)
    several, _, row, _, reduction = sch.get_loops(main)[-5:]
    sch.reorder(reduction, several, row)
    for loop in (member, p, v, several, row):
        unroll(sch, loop)
    sch.annotate(o, PREFETCHED if config["tables"] == PREFETCH else RESIDENT, int(config["resident"]))
    # All tensors of the main stage (the states of a tree walk) stay in registers.
    for block in (lanes, parts, main):
        for n in range(len(sch.get(block).writes)):
            sch.set_scope(block, n, "local")
    return Placed(g, rows, o, tree, reduction)


def _gather_sums(sch: Any, config: Config, scores: Any, rows: Any) -> None:
    """Copy the threads' sums to shared memory, and let one thread add all sums of a row."""
    copy = sch.cache_read(scores, number_of_read(sch, scores, "lane_sums"), "shared")
    sch.compute_at(copy, rows, True)
    v, y, p, x = sch.get_loops(copy)[-4:]
    bind_threads(sch, x, y)
    unroll(sch, v)
    unroll(sch, p)
    written = sch.cache_write(scores, 0, "local")
    v, p, x, lane = sch.get_loops(scores)[-4:]
    fused = sch.fuse(v, p, x)
    _, y, x = sch.split(fused, [None, Shape.of(config).tree_threads, Shape.of(config).row_threads])
    bind_threads(sch, x, y)
    sch.reverse_compute_at(written, x, True)
    sch.decompose_reduction(scores, lane)


def finish(
    sch: Any,
    config: Config,
    placed: Placed,
    reductions: Sequence[tuple[Any, Any]],
    shared: int,
    by_warp: bool = False,
) -> None:
    """Place the columns, and decompose every reduction; the last step.

    `reductions`: the strategy's reduction sblocks, each with the outermost loop of its reduction.
    `shared`: bytes of a block's shared memory.
    """
    columns = sch.get_sblock("columns")
    if config["columns"] == "global":
        sch.compute_inline(columns)
    else:
        sch.compute_at(columns, placed.rows, True)
        column, row = sch.get_loops(columns)[-2:]
        if config["columns"] == "turned":
            # Neighbouring threads then read neighbouring features, and store a row tile apart.
            sch.reorder(row, column)
            column, row = row, column
        distribute(sch, config, sch.fuse(column, row), by_warp=by_warp)
        sch.set_scope(columns, 0, scope(shared))
    split_initial(sch, placed, reductions)


def split_initial(sch: Any, placed: Placed, reductions: Sequence[tuple[Any, Any]]) -> None:
    """Decompose every reduction; `reductions` as in `finish`."""
    parts, lanes = sch.get_sblock("parts"), sch.get_sblock("lane_sums")
    for block, loop in (*reductions, (parts, placed.tree), (lanes, placed.tile)):
        around = _position(sch, block, loop)
        init = sch.decompose_reduction(block, loop)
        for init_loop in sch.get_loops(init)[around:]:
            unroll(sch, init_loop)


def unroll(sch: Any, loop: Any) -> None:
    """Unroll a loop over a thread's values, unless it is too long for registers."""
    if int(sch.get(loop).extent) <= MAX_SUMS:
        sch.unroll(loop)


def _position(sch: Any, block: Any, loop: Any) -> int:
    """Return the number of an sblock's loops outside of `loop`."""
    variables = [sch.get(around).loop_var for around in sch.get_loops(block)]
    return variables.index(sch.get(loop).loop_var)


def state_row(sch: Any, block: Any, config: Config) -> None:
    """Declare that an sblock of `Grid.per_tree` reads any column of its row."""
    columns = next(region.source for region in sch.get(block).reads if region.source.name == "columns")
    rows = Shape.of(config).row_threads

    def ranges(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, *_: Any) -> list[tuple[Any, Any]]:
        row = p * rows + x
        return [(i, i + 1), (0, columns.shape[1]), (row, row + 1)]

    state_read(sch, block, "columns", ranges)


def state_tree(sch: Any, block: Any, config: Config, name: str, in_parts: bool = False) -> None:
    """Declare that an sblock of `Grid.per_tree`, or ``parts``, reads any entry of its tree in a table."""
    table = next(region.source for region in sch.get(block).reads if region.source.name == name)
    threads, inner = Shape.of(config).tree_threads, config["layout"] == "trees"

    def ranges(i: Any, o: Any, g: Any, q: Any, y: Any, *others: Any) -> list[tuple[Any, Any]]:
        tree = (others[-1] if in_parts else q) * threads + y
        all_entries = [(0, extent) for extent in (table.shape[2:-1] if inner else table.shape[3:])]
        this_tree = [(tree, tree + 1)]
        return [(o, o + 1), (g, g + 1), *(all_entries + this_tree if inner else this_tree + all_entries)]

    state_read(sch, block, name, ranges)


def stage_table(
    sch: Any,
    config: Config,
    block: Any,
    name: str,
    placed: Placed,
    shared: int,
    vector: int,
    by_warp: bool = False,
) -> None:
    """Copy a tile's part of a table, or the whole table, to shared memory by all threads of a block.

    `block`, `name`: the sblock that reads the table, and the table's name.
    `placed`: the surrounding loops; if warps share one tree at a time, the copy is that tree's part.
    `shared`: bytes of a block's shared memory.
    `vector`: elements that a thread copies at once; the table's innermost extent is a multiple.
    """
    loop = placed.tree if by_warp else placed.tile
    if config["tables"] == "kept":
        loop = placed.block
    copy = sch.cache_read(block, number_of_read(sch, block, name), scope(shared))
    sch.compute_at(copy, loop, True)
    loops = sch.get_loops(copy)[_position(sch, copy, loop) + 1 :]
    distribute(sch, config, sch.fuse(*loops), vector, by_warp)


def load_vector(sch: Any, block: Any, name: str, loop: Any) -> None:
    """In `loop`, load consecutive entries of a table into registers by one vector instruction."""
    copy = sch.cache_read(block, number_of_read(sch, block, name), "local")
    sch.compute_at(copy, loop, True)
    sch.vectorize(sch.get_loops(copy)[-1])


def number_of_read(sch: Any, block: Any, name: str) -> int:
    """Return the index of a table, or of its copy, among an sblock's reads."""
    names = [str(region.source.name) for region in sch.get(block).reads]
    return next(at for at, read in enumerate(names) if read.split("_shared")[0] == name)


def distribute(sch: Any, config: Config, loop: Any, vector: int = 1, by_warp: bool = False) -> None:
    """Distribute a loop's iterations over all threads of a block, `vector` at a time."""
    shape = Shape.of(config)
    factors = [None, shape.tree_threads, shape.row_threads, vector]
    _, y, x, lane = sch.split(loop, factors)
    bind_threads(sch, x, y, by_warp=by_warp)
    if vector > 1:
        sch.vectorize(lane)


def bind_threads(sch: Any, x: Any, y: Any = None, by_warp: bool = False) -> None:
    """Bind a nest's loops over rows and trees to a block's threads; a single iteration stays a loop.

    `by_warp`: whether to number threads by warp and lane, for instructions of whole warps; then there is one
        thread along the trees.
    """
    if by_warp:
        warp, x = sch.split(x, [None, WARP])
        sch.bind(warp, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        return
    for loop, thread in ((x, "threadIdx.x"), (y, "threadIdx.y")):
        if loop is not None and int(sch.get(loop).extent) > 1:
            sch.bind(loop, thread)
