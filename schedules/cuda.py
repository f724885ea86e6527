"""Schedule steps that every CUDA schedule shares, and the limits that a block must keep.

The expressions are those of `hbtvm.strategies.cuda.grid`. Every kernel has this form, with a strategy's
main stage in the middle::

    block for each tile of rows (blockIdx.x) and group of outputs (blockIdx.y):
        columns[:, :] = ...                            # in shared memory, by all threads
        thread for each (x, y) of row_threads * tree_threads:
            for tree tile:
                tables of the tile to shared memory, by all threads         (knob ``tables``)
                for tree of trees_each:
                    for row of rows_each: <stage>; parts[row] += value      (registers)
                lane_sums[row] += parts[row]                                (registers, float64)
            scores[row] = sum of lane_sums over y                           (all threads)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schedules.cpu import MAX_SUMMED, state_read
from schedules.space import Config, Knob

WARP = 32
"""Threads of a warp."""

STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a kernel may declare; more it has to ask for when it starts."""

RESIDENT = "hbtvm.resident"
"""Annotation of a loop: the blocks of its kernel that a multiprocessor is to hold at a time."""

MAX_SUMS = 24
"""Scores that a thread may have in registers: each takes two, and its part of a tile another."""

_PROCESSORS = 128
"""About how many multiprocessors a large GPU has."""

_THREADS = 128
"""Threads of a block that are enough to keep a multiprocessor busy, with a few blocks on each."""

SMALL_BATCH = 4096
"""Up to this many rows, several threads for each row are worth a try: there are too few rows for all."""


@dataclass(frozen=True)
class Shape:
    """How a block's rows and trees are dealt out to its threads (see `hbtvm.strategies.cuda.grid`)."""

    row_tile: int
    row_threads: int
    tree_tile: int
    tree_threads: int

    @classmethod
    def of(cls, config: Config) -> Shape:
        names = ("row_tile", "row_threads", "tree_tile", "tree_threads")
        return cls(*(int(config[name]) for name in names))

    @property
    def rows_each(self) -> int:
        """Rows of a thread."""
        return self.row_tile // self.row_threads

    @property
    def trees_each(self) -> int:
        """Trees of a tile that a thread walks."""
        return self.tree_tile // self.tree_threads

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.row_threads * self.tree_threads


@dataclass(frozen=True)
class Needs:
    """What a block takes of a multiprocessor.

    Attributes
    ----------
    threads
        Threads.
    shared
        Bytes of shared memory.
    registers
        32-bit registers of a thread, estimated.
    """

    threads: int
    shared: int
    registers: int


def fits(needs: Needs, target: dict[str, Any], config: Config) -> bool:
    """Whether a target's multiprocessor has room for as many blocks as the knob ``resident`` says."""
    warp, resident = int(target["thread_warp_size"]), int(config["resident"])
    # Registers are given out to whole warps, eight for each thread at a time.
    registers = -(-needs.threads // warp) * warp * -(-needs.registers // 8) * 8
    return (
        # Every multiprocessor holds as many threads as a block may have; most hold twice as many.
        resident * needs.threads <= int(target["max_threads_per_block"])
        and resident * needs.shared <= int(target["max_shared_memory_per_block"])
        and needs.registers <= int(target["max_registers_per_thread"])
        and resident * registers <= int(target["registers_per_block"])
    )


def common_knobs(workload: dict[str, Any], target: dict[str, Any]) -> tuple[Knob, ...]:
    """The knobs that every strategy's CUDA schedule has."""
    rows, most = int(workload["rows"]), int(target["max_threads_per_block"])
    few = rows <= SMALL_BATCH
    tiles = tuple(n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024) if n < 2 * rows)
    return (
        Knob("row_tile", tiles),
        Knob("row_threads", tuple(n for n in tiles if n <= min(most, 512))),
        Knob("tree_tile", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
        Knob("tree_threads", (1, 2, 4, 8, 16, 32, 64, 128, 256) if few else (1, 2, 4, 8)),
        Knob("layout", ("nodes", "trees") if few else ("nodes",)),
        Knob("columns", ("shared", "global")),
        Knob("tables", ("global", "shared")),
        Knob("resident", (1, 2, 4, 8) if rows > _PROCESSORS else (1,)),
    )


def shape_is_valid(workload: dict[str, Any], target: dict[str, Any], config: Config) -> bool:
    """Whether the knobs of `common_knobs` fit together."""
    shape, warp = Shape.of(config), int(target["thread_warp_size"])
    if shape.row_tile % shape.row_threads or shape.tree_tile % shape.tree_threads:
        return False
    if shape.threads < min(warp, int(workload["rows"]) * int(workload["trees"])):
        return False  # a part of a warp does nothing
    if shape.trees_each > MAX_SUMMED or shape.rows_each > (8 if int(workload["width"]) <= MAX_SUMS else 1):
        return False
    if shape.tree_threads >= 2 * int(workload["trees"]) or shape.tree_tile >= 2 * max(
        int(workload["trees"]), shape.tree_threads
    ):
        return False
    # Neighbouring threads have neighbouring rows first: only then neighbouring trees.
    if config["layout"] == "trees" and (shape.tree_threads == 1 or shape.row_threads >= warp):
        return False
    return not (config["tables"] == "shared" and shape.row_tile == 1 and shape.trees_each == 1)


def walks_are_valid(config: Config) -> bool:
    """Whether a thread walks its trees `together` in whole steps, and not too many at once."""
    shape, together = Shape.of(config), int(config["together"])
    return shape.trees_each % together == 0 and shape.rows_each * together <= 8


def common_default(workload: dict[str, Any], target: dict[str, Any]) -> Config:
    """A good choice of `common_knobs` where nothing was measured, not yet made to fit (`settle`)."""
    rows, trees = int(workload["rows"]), int(workload["trees"])
    # A block for each multiprocessor first, then large blocks, then more rows for each thread.
    row_threads = max(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n == 1 or n * _PROCESSORS <= rows)
    while row_threads * trees < int(target["thread_warp_size"]) and row_threads < rows:
        row_threads *= 2
    threads = _THREADS if row_threads > 1 else 2 * _THREADS
    tree_threads = 1
    while row_threads * tree_threads < threads and tree_threads < trees:
        tree_threads *= 2
    many = rows >= 8 * _PROCESSORS * row_threads and int(workload["width"]) == 1
    rows_each = 2 if many else 1
    trees_each = 8 if tree_threads == 1 else 1
    while trees_each > 1 and tree_threads * trees_each >= 2 * trees:
        trees_each //= 2
    return {
        "row_tile": row_threads * rows_each,
        "row_threads": row_threads,
        "tree_tile": tree_threads * trees_each,
        "tree_threads": tree_threads,
        "layout": "trees" if tree_threads > 1 and row_threads < 8 else "nodes",
        "columns": "shared",
        "tables": "global",
        # Some registers for each thread, and still enough threads to hide how long loads take.
        "resident": max(1, min(8, 1024 // (row_threads * tree_threads))) if rows > _PROCESSORS else 1,
    }


def settle(config: Config, target: dict[str, Any], needs: Callable[[Config], Needs]) -> Config:
    """Make a configuration fit a target: fewer blocks at a time, then columns that are not staged."""
    for columns in dict.fromkeys((config["columns"], "global")):
        for resident in (8, 4, 2, 1):
            fitted: Config = {**config, "columns": columns, "resident": resident}
            if resident <= int(config["resident"]) and fits(needs(fitted), target, fitted):
                return fitted
    return fitted


def column_bytes(workload: dict[str, Any], config: Config, extra: int = 0) -> int:
    """Bytes of shared memory that a row tile's columns take, with `extra` more columns than there are."""
    if config["columns"] == "global":
        return 0
    count = workload["numeric"] + workload["categorical"] + extra
    return aligned(int(config["row_tile"]) * int(count) * element(workload["dtype"]))


def sum_bytes(config: Config) -> int:
    """Bytes of shared memory in which a block sums the scores of threads that have the same row."""
    shape = Shape.of(config)
    return aligned(8 * shape.threads) if shape.tree_threads > 1 else 0


def sum_registers(workload: dict[str, Any], config: Config) -> int:
    """Registers that a thread's sums take; where they are too many, they lie in the thread's own memory."""
    width = int(workload["width"])
    each = Shape.of(config).rows_each * width
    return (each if width <= MAX_SUMS else 0) * (2 + element(workload["value_dtype"]) // 4)


def aligned(size: int) -> int:
    """Bytes that a shared tensor takes, with what may lie unused in front of it."""
    return -(-size // 64) * 64


def element(dtype: str) -> int:
    """Bytes of an element."""
    return int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz")) // 8


def scope(shared: int) -> str:
    """Where a block's shared tensors lie when they take so many bytes in all."""
    return "shared" if shared <= STATIC_SHARED else "shared.dyn"


@dataclass(frozen=True)
class Placed:
    """A strategy's main stage, placed among the stages around it.

    Attributes
    ----------
    group
        The loop over groups: what is placed in it is done once for a block.
    tile
        The loop over tree tiles.
    tree
        The loop over a thread's trees of a tile.
    reduction
        The main stage's reduction loop.
    """

    group: Any
    tile: Any
    tree: Any
    reduction: Any


def place(sch: Any, config: Config, stage: str, together: int = 1, by_warp: bool = False) -> Placed:
    """Arrange the sums of a kernel, bind its loops to blocks and threads, and place the main stage.

    Parameters
    ----------
    stage
        Name of the block of the strategy's main stage, a reduction.
    together
        Trees of a thread that the stage handles at once, in unrolled loops.
    by_warp
        As in `bind_threads`.
    """
    scores, lanes, parts, main = (sch.get_sblock(name) for name in ("scores", "lane_sums", "parts", stage))
    i, g, _, _, x, *rest = sch.get_loops(scores)
    sch.compute_at(lanes, g, True)
    sch.bind(i, "blockIdx.x")
    sch.bind(g, "blockIdx.y")
    bind_threads(sch, x, rest[0] if rest else None, by_warp)

    # Loops of one iteration are kept, so a nest's loops are its block's iterators, in their order.
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
    sch.annotate(o, RESIDENT, int(config["resident"]))
    # A main stage of several tensors (a fold's states) has each in registers.
    for block in (lanes, parts, main):
        for n in range(len(sch.get(block).writes)):
            sch.set_scope(block, n, "local")
    return Placed(g, o, tree, reduction)


def finish(
    sch: Any,
    config: Config,
    placed: Placed,
    reductions: Sequence[tuple[Any, Any]],
    shared: int,
    by_warp: bool = False,
) -> None:
    """Place the columns, and split off every reduction's initial value; the last step.

    Parameters
    ----------
    reductions
        The strategy's own reduction blocks, each with the outermost loop of its reduction.
    shared
        Bytes of shared memory that a block takes in all.
    """
    columns = sch.get_sblock("columns")
    if config["columns"] == "global":
        sch.compute_inline(columns)
    else:
        sch.compute_at(columns, placed.group, True)
        column, row = sch.get_loops(columns)[-2:]
        deal(sch, config, sch.fuse(column, row), by_warp=by_warp)
        sch.set_scope(columns, 0, scope(shared))
    parts, lanes = sch.get_sblock("parts"), sch.get_sblock("lane_sums")
    for block, loop in (*reductions, (parts, placed.tree), (lanes, placed.tile)):
        around = _position(sch, block, loop)
        init = sch.decompose_reduction(block, loop)
        for own in sch.get_loops(init)[around:]:
            unroll(sch, own)


def unroll(sch: Any, loop: Any) -> None:
    """Unroll a loop over what a thread holds, unless it is too long for registers."""
    if int(sch.get(loop).extent) <= MAX_SUMS:
        sch.unroll(loop)


def _position(sch: Any, block: Any, loop: Any) -> int:
    """How many loops of a block are outside of one of them."""
    variables = [sch.get(own).loop_var for own in sch.get_loops(block)]
    return variables.index(sch.get(loop).loop_var)


def state_row(sch: Any, block: Any, config: Config) -> None:
    """State that a block made by `Grid.per_tree` reads any column of its own row."""
    columns = next(region.source for region in sch.get(block).reads if region.source.name == "columns")
    rows = Shape.of(config).row_threads

    def ranges(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, *_: Any) -> list[tuple[Any, Any]]:
        row = p * rows + x
        return [(i, i + 1), (0, columns.shape[1]), (row, row + 1)]

    state_read(sch, block, "columns", ranges)


def state_tree(sch: Any, block: Any, config: Config, name: str) -> None:
    """State that a block made by `Grid.per_tree` reads any entry of its own tree in a table."""
    table = next(region.source for region in sch.get(block).reads if region.source.name == name)
    threads, inner = Shape.of(config).tree_threads, config["layout"] == "trees"

    def ranges(i: Any, o: Any, g: Any, q: Any, y: Any, *_: Any) -> list[tuple[Any, Any]]:
        tree = q * threads + y
        every = [(0, extent) for extent in (table.shape[2:-1] if inner else table.shape[3:])]
        own = [(tree, tree + 1)]
        return [(o, o + 1), (g, g + 1), *(every + own if inner else own + every)]

    state_read(sch, block, name, ranges)


def stage_table(
    sch: Any,
    config: Config,
    block: Any,
    name: str,
    loop: Any,
    shared: int,
    vector: int,
    by_warp: bool = False,
) -> None:
    """Copy a tile's part of a table to shared memory, by all threads of a block.

    Parameters
    ----------
    block, name
        Who reads the table, and its name.
    loop
        The loop over tree tiles.
    shared
        Bytes of shared memory that a block takes in all.
    vector
        Elements that a thread copies at once; the table's innermost extent is a multiple.
    """
    copy = sch.cache_read(block, _read(sch, block, name), scope(shared))
    sch.compute_at(copy, loop, True)
    own = sch.get_loops(copy)[_position(sch, copy, loop) + 1 :]
    deal(sch, config, sch.fuse(*own), vector, by_warp)


def hold(sch: Any, block: Any, name: str, loop: Any) -> None:
    """Load a run of a table that a block reads into registers, by one instruction, in `loop`."""
    copy = sch.cache_read(block, _read(sch, block, name), "local")
    sch.compute_at(copy, loop, True)
    sch.vectorize(sch.get_loops(copy)[-1])


def _read(sch: Any, block: Any, name: str) -> int:
    """Which of a block's reads is that of a table, or of its copy."""
    names = [str(region.source.name) for region in sch.get(block).reads]
    return next(at for at, own in enumerate(names) if own.split("_shared")[0] == name)


def deal(sch: Any, config: Config, loop: Any, vector: int = 1, by_warp: bool = False) -> None:
    """Deal a loop's iterations out to all threads of a block, `vector` at a time."""
    shape = Shape.of(config)
    factors = [None, shape.tree_threads, shape.row_threads, vector]
    _, y, x, lane = sch.split(loop, factors)
    bind_threads(sch, x, y, by_warp=by_warp)
    if vector > 1:
        sch.vectorize(lane)


def bind_threads(sch: Any, x: Any, y: Any = None, by_warp: bool = False) -> None:
    """Bind a nest's loops over rows and trees to a block's threads; one of one iteration stays a loop.

    Parameters
    ----------
    by_warp
        Whether threads are numbered by warp and lane, as instructions of whole warps want it; then
        there is one thread along the trees.
    """
    if by_warp:
        warp, x = sch.split(x, [None, WARP])
        sch.bind(warp, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        return
    for loop, thread in ((x, "threadIdx.x"), (y, "threadIdx.y")):
        if loop is not None and int(sch.get(loop).extent) > 1:
            sch.bind(loop, thread)
