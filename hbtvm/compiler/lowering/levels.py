"""Loops over the levels of walks, which end when all walks have reached a leaf.

A tensor expression's reduction has a fixed extent: the deepest tree's levels, but paths differ in length
and the longest is rarely taken. If a schedule annotates its loop with `EARLY_EXIT`, it becomes a while
loop that continues while any walk moved in the last step.

Few rows touch a small part of a large tree, so that each step of a walk waits for memory. If a schedule
annotates the loop with `QUEUE`, all rows of a tile take a step before any takes the next, and each step
prefetches the line that the row's next step reads::

    for level in the first levels: for row in tile: step(row); prefetch(slot[row])
    queue = rows of the tile
    while queue:
        for row in queue: step(row); prefetch(slot[row])
        keep the rows that moved, in order

Many rows touch most of a tree, which is prefetched as a whole. If a schedule annotates the loop with
`BLOCKS`, walks of a block hide each other's latency, with their slots in registers. Rows leave them early,
since the longest of 16 paths has about 1.4 times the mean length::

    for block of 16 rows in tile:
        prefetch a share of the next tree
        for level in the first levels: for row in block: step(row)
        queue += rows of the block that moved
    while queue:
        for block of 8 rows in queue: for 3 levels: for row in block: step(row)
        keep the rows that moved, in order
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import tvm_ffi
from tvm import ir, tirx

from hbtvm.compiler.lowering.next_tree import prefetch_next
from hbtvm.schedules.cpu.traversal import BLOCKS, EARLY_EXIT, NEXT_TREE, QUEUE, WALKS
from hbtvm.schedules.statements import Scratch, const, prefetch, scratch, sequence, serial

_UNROLLED = 4  # rows in straight-line code
_QUEUED_WALKS = 8  # rows of a block of the queue, whose addresses take registers, too
_PASS = 3  # levels between two looks at the rows of a queue

Rows = Callable[[Any], Any]  # the number of a block's n-th row


def exit_early(loop: Any) -> Any:
    """Return an annotated loop of a lowered function as a while loop that ends when no walk moves."""
    lanes = int(loop.annotations[EARLY_EXIT])
    stored: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, lambda store: stored.append(store.buffer)))
    # The last buffer of the reduction's state: the distance that each walk moved in its last step.
    moved = stored[-1]
    count = int(moved.shape[0])
    places = range(0, count, lanes)
    distances = [tirx.BufferLoad(moved, [at if lanes == 1 else tirx.Ramp(at, 1, lanes)]) for at in places]
    combined, kind = distances[0], str(moved.dtype)
    for distance in distances[1:]:
        combined = combined | distance
    if lanes > 1:
        combined = tirx.call_llvm_pure_intrin(kind, "llvm.vector.reduce.or", combined)
    return tirx.While(combined != tirx.const(0, kind), loop.body)


@dataclass(frozen=True)
class _Walk:
    """A loop over levels: its loop over rows, and the slot and the last distance of each row."""

    row: Any
    reached: Any
    moved: Any

    @classmethod
    def of(cls, loop: Any) -> _Walk:
        loops: list[Any] = []
        stored: list[Any] = []
        tvm_ffi.structural_walk(loop.body, (tirx.For, loops.append))
        tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, lambda store: stored.append(store.buffer)))
        (row,) = (inner for inner in loops if int(inner.extent) > 1)
        return cls(row, stored[-2], stored[-1])

    @property
    def count(self) -> int:
        """The rows of the tile."""
        return int(self.row.extent)

    def step(self, number: Any, *more: Any) -> Any:
        """Return the statement that takes row `number` to its next slot, and `more` statements of the row."""
        bound: list[Any] = []
        tvm_ffi.structural_walk(self.row.body, (tirx.Bind, lambda bind: bound.append(bind.var)))
        fresh = [(variable, tirx.Var(variable.name, variable.ty)) for variable in bound]

        def chosen(variable: Any) -> Any:
            if variable.same_as(self.row.loop_var):
                return number.astype(variable.ty.dtype)
            return next((new for old, new in fresh if variable.same_as(old)), variable)

        return tvm_ffi.structural_map(sequence([self.row.body, *more]), (tirx.Var, chosen))

    def step_in(self, slots: Scratch, distances: Scratch, number: Any, member: Any) -> Any:
        """Return the same with the row's state at `member` of other arrays."""

        def other(access: Any) -> Scratch | None:
            buffer = access.buffer if isinstance(access, tirx.BufferStore) else access.source
            pairs = ((self.reached, slots), (self.moved, distances))
            return next((array for state, array in pairs if buffer.same_as(state)), None)

        def load(access: Any) -> Any:
            array = other(access)
            return access if array is None else array.load(member)

        def store(access: Any) -> Any:
            array = other(access)
            return access if array is None else array.store(access.value, member)

        return tvm_ffi.structural_map(self.step(number), [(ir.TensorLoad, load), (tirx.BufferStore, store)])


class _Queue(NamedTuple):
    """Rows that still move: their numbers, how many the next pass keeps, and how many this pass has."""

    rows: Scratch
    kept: Scratch
    live: Scratch

    @classmethod
    def of(cls, size: int) -> _Queue:
        """Return a queue of up to `size` rows."""
        names = (("queued_rows", size), ("kept_rows", 1), ("live_rows", 1))
        return cls(*(scratch(name, extent, "int32") for name, extent in names))

    @property
    def count(self) -> Any:
        """Rows of this pass."""
        return self.live.load(const(0)).astype("int64")

    def row(self, place: Any) -> Any:
        """Return the number of a row."""
        return self.rows.load(place).astype("int64")

    def keep(self, row: Any, moves: Any) -> list[Any]:
        """Return the statements that keep a row for the next pass if `moves` is 1, not 0."""
        zero = const(0)
        return [
            self.rows.store(row.astype("int32"), self.kept.load(zero).astype("int64")),
            self.kept.store(self.kept.load(zero) + moves, zero),
        ]

    def refilled(self, *walks: Any) -> list[Any]:
        """Return statements that make the rows that `walks` keep the rows of the next pass."""
        zero = const(0)
        return [
            self.kept.store(tirx.const(0, "int32"), zero),
            *walks,
            self.live.store(self.kept.load(zero), zero),
        ]

    def emptied(self, *walks: Any) -> Any:
        """Return a loop of `walks` that ends when no row is kept."""
        more = self.live.load(const(0)) > tirx.const(0, "int32")
        return tirx.While(more, sequence(self.refilled(*walks)))


def walk_by_queue(loop: Any) -> Any:
    """Return the statement that takes the place of a loop over levels, annotated with `QUEUE`.

    The annotation is the number of levels that all rows walk. The loop's body is a loop over rows, which
    stores the slot and the distance that each row moved.
    """
    walk = _Walk.of(loop)
    calls: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (ir.Call, calls.append))
    lookups = [call for call in calls if call.op.name == "hbtvm.lookup"]
    node = next(call for call in lookups if call.args[0].source.name.split("_")[0] == "node")
    # The index reads the slot from memory: after a step, the next one.
    following = tirx.BufferLoad(node.args[0].source, [node.args[0].indices[0] + node.args[1]])

    def step(number: Any) -> Any:
        return walk.step(number, prefetch(following, 3))

    queue = _Queue.of(walk.count)

    def ask(place: Any) -> Any:
        number = tirx.Var("number", "int64")
        return sequence(
            [
                tirx.Bind(number, queue.row(place)),
                step(number),
                *queue.keep(number, _moves(tirx.BufferLoad(walk.moved, [number]))),
            ]
        )

    blocks = serial(
        "block",
        walk.count // _UNROLLED,
        lambda block: _unrolled(_UNROLLED, lambda member: step(block * const(_UNROLLED) + member)),
    )
    return sequence(
        [
            *(statement for array in queue for statement in array.allocation()),
            serial("level", int(loop.annotations[QUEUE]), lambda _: blocks),
            serial("row", walk.count, lambda at: queue.rows.store(at.astype("int32"), at)),
            queue.live.store(tirx.const(walk.count, "int32"), const(0)),
            queue.emptied(serial("place", queue.count, ask)),
        ]
    )


def walk_in_blocks(loop: Any) -> Any:
    """Return the statement that takes the place of a loop over levels, annotated with `BLOCKS`.

    The annotation is the even number of levels that all rows walk, the body as for `walk_by_queue`.
    """
    walk = _Walk.of(loop)
    queue = _Queue.of(walk.count + _QUEUED_WALKS)
    slots, distances, rows = (scratch(name, WALKS, "int64") for name in ("slots", "distances", "queued"))

    def steps(walks: int, row: Rows) -> Any:
        return _unrolled(walks, lambda n: walk.step_in(slots, distances, row(n), n))

    def begin(walks: int, row: Rows) -> Any:
        return _unrolled(walks, lambda n: slots.store(tirx.BufferLoad(walk.reached, [row(n)]), n))

    def end(walks: int, row: Rows, counts: Rows) -> Any:
        def one(n: Any) -> Any:
            stored = tirx.BufferStore(walk.reached, slots.load(n), [row(n)])
            return sequence([stored, *queue.keep(row(n), _moves(distances.load(n)) & counts(n))])

        return _unrolled(walks, one)

    def first(block: Any) -> Any:
        def row(n: Any) -> Any:  # no variable, so that addresses of a block's rows differ by constants
            return block * const(WALKS) + n

        return sequence(
            [
                begin(WALKS, row),
                serial(
                    "level", int(loop.annotations[BLOCKS]) // 2, lambda _: sequence([steps(WALKS, row)] * 2)
                ),
                end(WALKS, row, lambda _: tirx.const(1, "int32")),
            ]
        )

    def again(block: Any) -> Any:
        place = block * const(_QUEUED_WALKS)

        def counts(n: Any) -> Any:
            return tirx.Cast("int32", place + n < queue.count)

        return sequence(
            [
                _unrolled(_QUEUED_WALKS, lambda n: rows.store(queue.row(place + n), n)),
                begin(_QUEUED_WALKS, rows.load),
                *([steps(_QUEUED_WALKS, rows.load)] * _PASS),
                end(_QUEUED_WALKS, rows.load, counts),
            ]
        )

    # The last block walks the first row again, without looking whether it moves.
    padding = _unrolled(_QUEUED_WALKS, lambda n: queue.rows.store(queue.rows.load(const(0)), queue.count + n))
    count = (queue.count + const(_QUEUED_WALKS - 1)) // const(_QUEUED_WALKS)
    blocks = serial("block", walk.count // WALKS, first)
    marked = tirx.For(
        blocks.loop_var, blocks.min, blocks.extent, blocks.kind, blocks.body, None, {NEXT_TREE: const(WALKS)}
    )
    return sequence(
        [
            *(a for array in (*queue, slots, distances, rows) for a in array.allocation()),
            *queue.refilled(prefetch_next(marked)),
            queue.emptied(padding, serial("block", count, again)),
        ]
    )


def _moves(distance: Any) -> Any:
    """Return 1 if a row moved in its last step, else 0."""
    return tirx.Cast("int32", distance != tirx.const(0, str(distance.ty.dtype)))


def _unrolled(extent: int, body: Callable[[Any], Any]) -> Any:
    """Return a loop in straight-line code."""
    loop = serial("member", extent, body)
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body)
