"""Schedule steps that every CPU schedule shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm.s_tir.schedule import _ffi_api
from tvm.tirx import IndexMap

from hbtvm.schedules.cpu.sharing import thread_knobs, threads_are_valid
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload, apart_of

SMALL_BATCH = 64  # up to this many rows, vectors of trees (and single rows) are in the search space


def vector_lanes(target: Target, dtype: str) -> tuple[int, ...]:
    """Return candidate lane counts for a dtype, ascending; the last fills a register."""
    widest = int(target["vector_bits"]) // (64 if dtype == "float64" else 32)
    return tuple(n for n in (4, 8, 16) if n <= widest) or (widest,)


def row_tiles(rows: int, lanes: Sequence[int]) -> tuple[int, ...]:
    """Return candidate row tiles for a batch: 1, and powers of two with less than half padding."""
    wide = [n for n in (2, 4, 8, 16, 32, 64, 128, 256) if n >= lanes[0] and n < 2 * rows]
    return (1, *wide)


def orders(rows: int) -> tuple[str, ...]:
    """Return the candidates for the outer loop: tree tiles and, for several rows, row blocks."""
    return ("trees", "rows") if rows > 1 else ("trees",)


WIDE = 128  # number of columns from which computing them takes a large part of a call

MAX_SUMMED = 32
"""Most leaf values summed in float32 before they are added to a float64 sum: the rounding error of a score
stays below 32 half-units in the last place, far below the tolerance of 1e-5."""

MAX_PERMUTED = 128  # most entries of a lookup by permutes in the search space: eight registers of 16
MAX_BY_BYTES = 64  # the same for 64-bit Arm CPUs, whose table instructions index 256 bytes

_FEW_BY_BYTES, _FEWER_BY_BYTES = 32, 16
"""Most entries for which table instructions are the default: two instructions instead of over ten loads. On
smaller cores, one for four registers takes as long as many loads."""


def is_arm(target: Target) -> bool:
    """Whether a target is a 64-bit Arm CPU, with 32 vector registers of 128 bits and no gathers."""
    return target.get("arch") == "aarch64"


def lookup_knob(name: str, target: Target, entries: int, shared: bool = True) -> Knob:
    """Return the knob for a lookup's method (`hbtvm.strategies.intrinsics.lookup`).

    `shared`: whether, in any configuration, all lanes read the same run.
    """
    if is_arm(target):
        return Knob(name, ("scalar", "permute") if shared and entries <= MAX_BY_BYTES else ("scalar",))
    if int(target["vector_bits"]) < 256:
        return Knob(name, ("scalar",))
    permutes = shared and entries <= MAX_PERMUTED
    return Knob(name, ("scalar", "gather", "permute") if permutes else ("scalar", "gather"))


def lookup_default(target: Target, entries: int, shared: bool) -> str:
    """Return a good choice of `lookup_knob` for unmeasured workloads; `shared` as there.

    Lane by lane is no slower than a gather instruction on most CPUs, and faster on many.
    """
    if is_arm(target):
        most = _FEWER_BY_BYTES if str(target["mcpu"]).startswith(("cortex-a", "generic")) else _FEW_BY_BYTES
        return "permute" if shared and entries <= most else "scalar"
    bits = int(target["vector_bits"])
    permutes = shared and bits >= 256 and entries <= MAX_PERMUTED * bits // 512
    return "permute" if permutes else "scalar"


def lookup_is_valid(config: Config, name: str, shared: bool) -> bool:
    """Whether a choice of `lookup_knob` gives a different program from the earlier choices."""
    if config["lanes"] == 1:
        return config[name] == "scalar"
    return shared or config[name] != "permute"


def shape_is_valid(config: Config) -> bool:
    """Whether the knobs of `common_knobs` are consistent."""
    if not threads_are_valid(config):
        return False
    block = int(config["lanes"]) * int(config["vectors"])
    if config["axis"] == "trees":
        if config["lanes"] == 1:
            return False  # one tree at a time: the same program as with the other axis
        return config["row_tile"] == 1 and config["tree_tile"] == block and config["order"] == "trees"
    if config["row_tile"] == block and config["order"] != "trees":
        return False  # a single block of rows has no order
    return int(config["row_tile"]) % block == 0 and int(config["tree_tile"]) <= MAX_SUMMED


def common_knobs(workload: Workload, target: Target) -> tuple[Knob, ...]:
    """Return the knobs of every strategy's schedule."""
    rows, lanes = int(workload["rows"]), vector_lanes(target, workload["dtype"])
    small = rows <= SMALL_BATCH
    return (
        Knob("axis", ("rows", "trees") if small else ("rows",)),
        Knob("row_tile", row_tiles(rows, lanes)),
        Knob("lanes", (1, *lanes) if small else lanes),
        Knob("vectors", (1, 2, 4, 8)),
        Knob("tree_tile", (1, 2, 4, 8, 16, 32, 64, 128)),
        Knob("order", orders(rows)),
        *thread_knobs(workload),
    )


def few_or_many(workload: Workload, lanes: int) -> int:
    """Return a good number of vectors of rows: many, unless that leaves threads too few row tiles."""
    rows, threads = int(workload["rows"]), int(workload["threads"])
    if rows < 4 * lanes:
        return 1
    return 2 if threads > 1 and workload["numeric"] >= WIDE and rows < 8 * threads * lanes else 4


def least_padded(trees: int, sizes: Sequence[int]) -> int:
    """Return the largest tile of trees of which padding takes at most a tenth; `sizes` begins with 1."""
    return max(size for size in sizes if -(-trees // size) * size <= 1.1 * trees)


TRANSPOSED = "hbtvm.transposed"  # annotation of the outer of two loops over a square block that is transposed

STORED_BY_ROW = "hbtvm.stored_by_row"
"""Annotation of the loop over a tile's rows around the loop over their outputs; its value: the lanes in which
`hbtvm.compiler.lowering.block_stores` transposes the tile's values from outputs to rows."""


def is_wide(workload: Workload) -> bool:
    """Whether there are many columns, beginning with the features in order."""
    return bool(workload["numeric"] >= max(WIDE, workload["features"]))


def columns_are_features(workload: Workload) -> bool:
    """Whether a wide model's columns are its features, so that no table of column numbers is needed."""
    return is_wide(workload) and bool(workload["numeric"] == workload["features"])


def transposes_blocks(workload: Workload, config: Config) -> bool:
    """Whether to compute the columns by transposing square blocks of rows.

    This is faster for many adjacent columns: it transposes all features of a block, used or not.
    """
    return config["axis"] == "rows" and int(config["lanes"]) > 1 and is_wide(workload)


def transposed_lanes(lanes: int, dtype: str) -> int:
    """Return the size of the square blocks that transpose a tile with vectors of `lanes` rows.

    A block takes n log2 n shuffles of n lanes in straight-line code, and n vectors at once. With more lanes
    than a register has (GEMM's products of bytes have four times as many), LLVM takes seconds for a kernel,
    and spills most of the vectors.
    """
    return min(lanes, 8 if dtype == "float64" else 16)


def apart_space(space: Space, workload: Workload) -> Space:
    """Return the space, for trees with outputs of their own without tiles that would lack trees."""
    trees, valid = apart_of(workload), space.valid
    if not trees:
        return space
    return replace(
        space,
        valid=lambda config: trees % int(config["tree_tile"]) == 0 and (valid is None or valid(config)),
    )


def apart_config(config: Config, workload: Workload) -> Config:
    """Return a configuration, for trees with outputs of their own with a tile that divides them."""
    trees = apart_of(workload)
    if not trees:
        return config
    tile = math.gcd(trees, int(config["tree_tile"]))
    if config["axis"] == "rows":
        return {**config, "tree_tile": tile}
    vectors = int(config["vectors"]) * tile // int(config["tree_tile"])
    return {**config, "tree_tile": tile, "vectors": vectors}


@dataclass(frozen=True)
class Placed:
    """A strategy's main stage, placed among the stages around it."""

    tile: Any  # the loop over row tiles
    tree: Any | None  # the stage's own loop over the trees it handles together (vectors of rows), else None
    # `register`, `lane`: the stage's loops over vector registers and lanes
    register: Any
    lane: Any
    reduction: Any | None  # the stage's reduction loop, if it has one
    inside: Any  # the loop that the stage was placed in
    # The block that sums leaf values, and the loop its initial value belongs in front of; None without sums
    sums: tuple[Any, Any] | None


def place(sch: Any, config: Config, stage: str, together: int = 1, reduces: bool = True) -> Placed:
    """Arrange the sums of a strategy's kernel, and place its main stage inside them.

    Vectors of rows (knob ``axis`` = ``"rows"``)::

        for tile: for group: for tree tile, row block   (``order`` says which is outside)
            for tree (by `together`): <stage>; sums += values
            scores += sums

    Vectors of trees::

        for tile: for group: for row: for tree tile: <stage>; sums += values
            scores = total of sums

    If trees have outputs of their own (`hbtvm.schedules.workload.ApartWorkload`), ``scores = values`` takes
    the place of the sums, in the same loops.

    `stage`: name of the block of the strategy's main stage.
    `together`: trees that the stage handles at once (vectors of rows only).
    `reduces`: whether the stage is a reduction.
    """
    lanes, vectors = int(config["lanes"]), int(config["vectors"])
    scores = sch.get_sblock("scores")
    if sch.get(scores).init is None:
        return _place_apart(sch, config, stage, together, reduces)
    if config["axis"] == "trees":
        i = sch.get_loops(scores)[0]
        sums = sch.get_sblock("lane_sums")
        sch.compute_at(sums, i, True)
        g, v, r, t, o = sch.get_loops(sums)[-5:]
        _, register, lane = sch.split(t, [None, vectors, lanes])
        sch.reorder(g, r, o, v, register, lane)
        mark(sch, register, lane)
        return _place_stage(sch, config, stage, Placed(i, None, None, None, None, o, (sums, g)), reduces)

    sums = sch.get_sblock("tile_sums")
    i, g, v, r, o = sch.get_loops(scores)
    block, register, lane = sch.split(r, [None, vectors, lanes])
    outer = (o, block) if config["order"] == "trees" else (block, o)
    sch.reorder(i, g, *outer, v, register, lane)
    mark(sch, register, lane)
    sch.compute_at(sums, outer[1], True)
    sv, sr, tree = sch.get_loops(sums)[-3:]
    _, register, lane = sch.split(sr, [None, vectors, lanes])
    tree, member = sch.split(tree, [None, together])
    sch.reorder(tree, member, sv, register, lane)
    sch.unroll(member)
    mark(sch, register, lane)
    return _place_stage(sch, config, stage, Placed(i, tree, None, None, None, tree, (sums, tree)), reduces)


def _place_apart(sch: Any, config: Config, stage: str, together: int, reduces: bool) -> Placed:
    """Do as `place` for trees with outputs of their own."""
    lanes, vectors = int(config["lanes"]), int(config["vectors"])
    i, p, v, r = sch.get_loops(sch.get_sblock("scores"))
    if config["axis"] == "trees":
        o, register, lane = sch.split(p, [None, vectors, lanes])
        sch.reorder(i, r, o, v, register, lane)
        tree = o
    else:
        o, tree, member = sch.split(p, [None, int(config["tree_tile"]) // together, together])
        block, register, lane = sch.split(r, [None, vectors, lanes])
        outer = (o, block) if config["order"] == "trees" else (block, o)
        sch.reorder(i, *outer, tree, member, v, register, lane)
        sch.unroll(member)
    mark(sch, register, lane)
    return _place_stage(sch, config, stage, Placed(i, tree, None, None, None, tree, None), reduces)


def place_before(sch: Any, config: Config, placed: Placed, stage: str) -> Placed:
    """Place a stage, not a reduction, in front of a placed stage that reads it."""
    return _place_stage(sch, config, stage, placed, False)


def _place_stage(sch: Any, config: Config, stage: str, around: Placed, reduces: bool) -> Placed:
    """Compute a stage in the loops of `around`, in registers of lanes."""
    block = sch.get_sblock(stage)
    sch.compute_at(block, around.inside, True)
    loops = sch.get_loops(block)
    reduction = loops.pop() if reduces else None
    _, register, lane = sch.split(loops[-1], [None, int(config["vectors"]), int(config["lanes"])])
    tree = loops[-2] if config["axis"] == "rows" else None
    return replace(around, tree=tree, register=register, lane=lane, reduction=reduction)


def finish(
    sch: Any,
    config: Config,
    placed: Placed,
    reductions: Sequence[tuple[Any, Any]],
    readers: Sequence[tuple[str, int]],
    column_lanes: int | None = None,
) -> None:
    """Place the columns and decompose every reduction; the last step.

    `reductions`: the strategy's reduction sblocks, each with the outermost loop of its reduction.
    `readers`: names of the sblocks that read the columns, and the index of their row iterator.
    `column_lanes`: lanes of the loop that computes the columns; by default, those of the rows' vectors.
    """
    lanes = int(config["lanes"])
    by_tree = config["axis"] == "trees"
    for name, row in readers:
        state_tile(sch, sch.get_sblock(name), "columns", row)
    if column_lanes is None:
        column_lanes = 1 if by_tree else lanes
    place_columns(sch, placed.tile, column_lanes)
    for block, loop in (*reductions, *([] if placed.sums is None else [placed.sums])):
        decompose(sch, block, loop, lanes)
    if not by_tree and placed.sums is not None:
        scores = sch.get_sblock("scores")
        decompose(sch, scores, sch.get_loops(scores)[1], lanes)


def state_read(sch: Any, block: Any, buffer: str, ranges: Callable[..., Sequence[tuple[Any, Any]]]) -> None:
    """Declare the region of a buffer that an sblock reads by data-dependent indices.

    Otherwise `compute_at` has no bound for the region. (`Schedule.annotate_buffer_access` demands a range for
    each iterator of the sblock; the function behind it does not.)

    `buffer`: the buffer's name.
    `ranges`: from the sblock's iterators to (begin, end) for each dimension of the buffer.
    """
    here = sch.get(block)
    names = [region.source.name for region in here.reads]
    iterators = [axis.var for axis in here.iter_vars]
    flat = [bound for pair in ranges(*iterators) for bound in pair]
    _ffi_api.ScheduleAnnotateBufferAccess(sch, block, names.index(buffer), 0, IndexMap(iterators, flat, None))


def state_tile(sch: Any, block: Any, buffer: str, row_axis: int, by_row: bool = False) -> None:
    """Declare that an sblock reads any entry of a buffer for its tile (iterator 0) and row.

    `buffer`: of shape (tiles, entries, rows), or (tiles, rows, entries) with `by_row`.
    `row_axis`: index of the sblock's row iterator.
    """
    shape = next(region.source for region in sch.get(block).reads if region.source.name == buffer).shape

    def ranges(*iterators: Any) -> list[tuple[Any, Any]]:
        tile, row = iterators[0], iterators[row_axis]
        this_row, all_entries = (row, row + 1), (0, shape[2 if by_row else 1])
        return [(tile, tile + 1), *((this_row, all_entries) if by_row else (all_entries, this_row))]

    state_read(sch, block, buffer, ranges)


def place_columns(sch: Any, tile: Any, lanes: int) -> None:
    """Compute a row tile's columns at the head of the loop over tiles, `lanes` rows at a time."""
    columns = sch.get_sblock("columns")
    if TRANSPOSED in sch.get(columns).annotations:
        sch.compute_at(columns, tile, True)
        transpose_stage(sch, columns, lanes)
        return
    transposed = any(region.source.name == "transposed" for region in sch.get(columns).reads)
    if transposed:
        state_tile(sch, columns, "transposed", 2)
    sch.compute_at(columns, tile, True)
    column, row = sch.get_loops(columns)[-2:]
    row, lane = sch.split(row, [None, lanes])
    vectorize(sch, lane, lanes)
    if transposed:
        # Few rows at a time, so that a transposed block is still cached when its columns are copied.
        sch.reorder(row, column, lane)
        block = sch.get_sblock("transposed")
        sch.compute_at(block, row, True)
        transpose_stage(sch, block, lanes)


def transpose_stage(sch: Any, block: Any, lanes: int) -> None:
    """Annotate the square blocks of a stage whose last two loops are over features and rows."""
    feature, row = sch.get_loops(block)[-2:]
    lanes = transposed_lanes(lanes, str(sch.get(block).writes[0].source.dtype))
    row, lane = sch.split(row, [None, lanes])
    feature, inner = sch.split(feature, [None, lanes])
    sch.reorder(row, feature, inner, lane)
    sch.annotate(inner, TRANSPOSED, 1)


def vectorize(sch: Any, lane: Any, lanes: int) -> None:
    """Vectorise a loop of `lanes` iterations, unless it is 1."""
    if lanes > 1:
        sch.vectorize(lane)


def mark(sch: Any, register: Any, lane: Any) -> None:
    """Vectorise the lanes and unroll the registers, unless there are more than a CPU has."""
    if int(sch.get(register).extent) <= 32:
        sch.unroll(register)
    sch.vectorize(lane)


def decompose(sch: Any, block: Any, loop: Any, lanes: int) -> None:
    """Move a reduction's initial value in front of `loop`, in vectors of `lanes`.

    Annotate the reduction's loops before: TVM 0.27 would lose the annotation.
    """
    init = sch.decompose_reduction(block, loop)
    vectorize(sch, sch.get_loops(init)[-1], lanes)
