"""What every CUDA schedule's loop nest looks like around its main stage (see `hbtvm.schedules.loops`).

Blocks count as parallel loops, and a block's threads as lanes: what neighbouring lanes do is what
neighbouring threads do, so that a contiguous vector is a coalesced load, and a gather is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.schedules.cuda_shape import persistent_blocks, shared_out
from hbtvm.schedules.cuda_space import element
from hbtvm.schedules.loops import PARALLEL, UNROLLED, VECTORIZED, Access, Loop, Number, Statement
from hbtvm.schedules.space import Columns

BLOCKS, THREADS = PARALLEL, VECTORIZED
"""Kinds of loop that are bound to blocks and to threads."""


@dataclass(frozen=True)
class Surroundings:
    """The loops around a strategy's main stage, for a batch of configurations.

    A statement's loops are: blocks (those that a multiprocessor holds at a time apart), groups, a block's
    row tiles, tree tiles, a thread's trees (those that it walks together apart), the statement's own, a
    thread's rows, threads along trees and along rows.

    Attributes
    ----------
    outer, inner
        The loops before and behind a statement's own.
    by_tree
        bool, shape (n,): tables end in the tree axis.
    blocks
        Blocks along the rows.
    together
        Trees that a thread walks together.
    """

    workload: dict[str, Any]
    columns: Columns
    outer: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    by_tree: np.ndarray
    blocks: np.ndarray
    together: Number

    def table(
        self,
        size: Number,
        entries: int,
        own: tuple[Number, ...],
        buffer: str = "table",
        span: int = 0,
        member: bool = False,
    ) -> Access:
        """Access to a table with `entries` for each tree.

        Parameters
        ----------
        own
            Entries between neighbouring iterations of the statement's own loops.
        span
            If not 0: the entry depends on data, and is one of so many.
        member
            Whether the statement's last own loop, not in `own`, is over trees that are walked together.
        """
        tree_tile, tree_threads = self.columns["tree_tile"], self.columns["tree_threads"]
        tree = np.where(self.by_tree, 1, entries)
        entry = np.where(self.by_tree, tree_tile, 1)
        strides = (
            0,
            0,
            tree_tile * entries,
            0,
            self.workload["groups"] * tree_tile * entries,
            self.together * tree_threads * tree,
            *(entry * step for step in own),
            *([tree_threads * tree] if member else []),
            0,
            tree,
            0,
        )
        return Access(buffer, size, strides, gather=span > 0, span=max(span, 1))

    def row(self, own: int, span: int) -> Access:
        """Access to a column of the thread's rows, staged in shared memory or where the rows lie.

        Parameters
        ----------
        own
            How many loops the statement has of its own.
        span
            Columns that neighbouring threads may ask for at the same time.
        """
        row_tile, row_threads = self.columns["row_tile"], self.columns["row_threads"]
        features = self.workload["features"]
        staged = self.columns["columns"] != "global"
        row = np.where(staged, 1, features)
        tile = np.where(staged, 0, row_tile * features)
        strides: tuple[Number, ...] = (
            tile,
            0,
            0,
            tile * self.blocks,
            *[0] * (own + 2),
            row_threads * row,
            0,
            row,
        )
        span_of = np.where(staged, span * row_tile, span)
        return Access("x", element(self.workload["dtype"]), strides, gather=True, span=span_of)

    def fetched(self) -> dict[str, Number]:
        """What reading a column takes where none are staged: finding its feature, and filling it."""
        filled = bool(self.workload["fills_missing"] or self.workload["zeros_missing"])
        return {"other": np.where(self.columns["columns"] == "global", 1 + 2 * filled, 0)}

    def statement(
        self, own: tuple[Loop, ...], operations: dict[str, Number], accesses: tuple[Access, ...], size: Number
    ) -> Statement:
        """A statement inside all of the loops; `size` is that of its values."""
        return Statement((*self.outer, *own, *self.inner), operations, accesses, lane_bytes=size)

    def load(self, own: tuple[Loop, ...], accesses: tuple[Access, ...], size: Number) -> Statement:
        """A statement that loads tables once for all rows of a thread."""
        inner = (Loop(1), *self.inner[1:])
        return Statement((*self.outer, *own, *inner), {}, accesses, lane_bytes=size)

    def lookup(self, leaves: int, operations: int) -> Statement:
        """The statement that adds leaf values to the sums; `operations` make the index."""
        width, size = self.workload["width"], element(self.workload["value_dtype"])
        return self.statement(
            (Loop(width, UNROLLED), Loop(self.together, UNROLLED)),
            {"bit": operations, "add": 1},
            (self.table(size, leaves * width, (1,), "value", leaves, member=True),),
            size,
        )


def surroundings(workload: dict[str, Any], columns: Columns) -> Surroundings:
    """Describe what `hbtvm.schedules.cuda.place` arranges around a main stage."""
    workload = shared_out(workload, columns["tree_blocks"])
    tiles = -(-workload["rows"] // columns["row_tile"])
    lasting = persistent_blocks(workload, columns["persistent"], columns["resident"])
    blocks = np.where(columns["persistent"] > 0, np.minimum(lasting, tiles), tiles)
    resident = np.minimum(columns["resident"], blocks)
    trees_each = columns["tree_tile"] // columns["tree_threads"]
    together = columns.get("together", 1)
    return Surroundings(
        workload,
        columns,
        (
            Loop(-(-blocks // resident), BLOCKS),
            Loop(resident, BLOCKS),
            Loop(workload["groups"], BLOCKS),
            Loop(-(-tiles // blocks)),
            Loop(-(-workload["trees"] // columns["tree_tile"])),
            Loop(trees_each // together),
        ),
        (
            Loop(columns["row_tile"] // columns["row_threads"], UNROLLED),
            Loop(columns["tree_threads"], THREADS),
            Loop(columns["row_threads"], THREADS),
        ),
        columns["layout"] == "trees",
        blocks,
        together,
    )


def column_statement(around: Surroundings, extra: int = 0) -> Statement:
    """Describe the stage that makes a row tile's columns, with `extra` more than there are."""
    workload, columns = around.workload, around.columns
    staged, turned = columns["columns"] != "global", columns["columns"] == "turned"
    count, features = workload["numeric"] + workload["categorical"] + extra, workload["features"]
    size, row_tile = element(workload["dtype"]), columns["row_tile"]
    rows, trees = columns["row_threads"], columns["tree_threads"]
    rounds = -(-count * row_tile // (rows * trees))
    return Statement(
        (*around.outer[:4], Loop(np.where(staged, rounds, 1)), *around.inner[1:]),
        {"select": 2 * bool(workload["fills_missing"] or workload["zeros_missing"])},
        (
            Access(
                "x",
                size,
                (
                    row_tile * features,
                    0,
                    0,
                    row_tile * features * around.blocks,
                    np.where(turned, features, 1),
                    np.where(turned, rows, rows * features),
                    np.where(turned, 1, features),
                ),
            ),
            Access(
                "scratch",
                size,
                (
                    0,
                    0,
                    0,
                    0,
                    np.where(turned, 1, rows * trees),
                    np.where(turned, rows * row_tile, rows),
                    np.where(turned, row_tile, 1),
                ),
                store=True,
            ),
        ),
        lane_bytes=size,
    )


def stage_statement(around: Surroundings, tree_bytes: Number, vector: Number) -> Statement:
    """Describe the copy of tables to shared memory, where a configuration has it: of a tile, or of all.

    Parameters
    ----------
    tree_bytes
        Bytes of a tree's tables.
    vector
        Bytes that a thread copies at once.
    """
    columns = around.columns
    kept = columns["tables"] == "kept"
    rows, trees = columns["row_threads"], columns["tree_threads"]
    *outside, row_tiles, tree_tiles, _ = around.outer
    copied = columns["tree_tile"] * np.where(kept, tree_tiles.extent, 1) * tree_bytes
    rounds = np.where(columns["tables"] == "global", 1, -(-copied // (rows * trees * vector)))
    steps = (rows * trees, rows, 1)
    tile = columns["tree_tile"] * tree_bytes // vector
    each = [Loop(np.where(kept, 1, loop.extent)) for loop in (row_tiles, tree_tiles)]
    return Statement(
        (*outside, *each, Loop(rounds), *around.inner[1:]),
        {},
        (
            Access("table", vector, (0, 0, tile, 0, around.workload["groups"] * tile, *steps)),
            Access("scratch", vector, (0, 0, 0, 0, 0, *steps), store=True),
        ),
    )


def score_statement(around: Surroundings) -> Statement:
    """Describe the sums over the threads that have the same rows, and the stores of scores."""
    workload, columns = around.workload, around.columns
    width, row_tile = workload["width"], columns["row_tile"]
    group = width * row_tile
    return Statement(
        (*around.outer[:4], Loop(width), *around.inner),
        {"add": 1},
        (
            Access(
                "out",
                8,
                (
                    workload["groups"] * group,
                    0,
                    group,
                    workload["groups"] * group * around.blocks,
                    row_tile,
                    columns["row_threads"],
                    0,
                    1,
                ),
                store=True,
            ),
        ),
        lane_bytes=8,
    )
