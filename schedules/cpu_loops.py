"""What every CPU schedule's loop nest looks like around its main stage (see `hbtvm.schedules.loops`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.schedules.loops import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Access, Loop, Number, Statement
from hbtvm.schedules.space import Columns


@dataclass(frozen=True)
class Surroundings:
    """The loops around a strategy's main stage, for a batch of configurations.

    Attributes
    ----------
    loops
        Threads' chunks, row tiles, groups, the outer and inner of (tree tiles, row blocks), steps
        over trees.
    by_tree, outer_trees
        bool, shape (n,): vectors of trees; tree tiles outside row blocks.
    x_bytes, value_bytes
        Sizes of a column's and a leaf's value.
    tile_columns
        Elements of a row tile's columns that a gather may land in.
    """

    workload: dict[str, Any]
    columns: Columns
    loops: tuple[Loop, ...]
    by_tree: np.ndarray
    outer_trees: np.ndarray
    x_bytes: int
    value_bytes: int
    tile_columns: np.ndarray

    def table_strides(self, entries: Number, inner: tuple[Number, ...]) -> tuple[Number, ...]:
        """Strides of a table with `entries` for each tree.

        Parameters
        ----------
        inner
            Strides (vectors of rows) between iterations of the stage's own loops but for
            registers and lanes; with vectors of trees, entries lie `tree_tile` apart.
        """
        tree_tile, lanes = self.columns["tree_tile"], self.columns["lanes"]
        tile = tree_tile * entries * self.workload["groups"]
        return (
            0,
            0,
            tree_tile * entries,
            np.where(self.outer_trees, tile, 0),
            np.where(self.outer_trees, 0, tile),
            np.where(self.by_tree, 0, self.columns.get("together", 1) * entries),
            *(np.where(self.by_tree, tree_tile * step, step) for step in inner[:-1]),
            np.where(self.by_tree, lanes, 0),
            np.where(self.by_tree, 1, inner[-1]),
        )

    def slot_strides(self, entries: Number, inner: tuple[Number, ...]) -> tuple[Number, ...]:
        """As `table_strides`, where trees lie one behind the other even with vectors of trees."""
        step, lanes = self.columns.get("together", 1) * entries, self.columns["lanes"]
        around = self.table_strides(entries, (*(0 for _ in inner[:-1]), 0))[:5]
        return (
            *around,
            np.where(self.by_tree, 0, step),
            *inner[:-1],
            np.where(self.by_tree, lanes * entries, 0),
            np.where(self.by_tree, entries, inner[-1]),
        )

    def row_strides(self, inner: tuple[Number, ...]) -> tuple[Number, ...]:
        """Strides of a column of the row tile; `inner` as in `table_strides`, lanes left out."""
        block = self.columns["lanes"] * self.columns["vectors"]
        row = np.where(self.by_tree, 0, 1)
        inside, outside = np.where(self.outer_trees, block, 0), np.where(self.outer_trees, 0, block)
        return (0, 0, 0, outside, inside, 0, *inner, row * self.columns["lanes"], row)

    def lookup(self, leaves: int, operations: int) -> Statement:
        """Describe the statement that adds leaf values to the sums.

        Parameters
        ----------
        operations
            Bit operations that make the index.
        """
        entries = leaves * self.workload["width"]
        return Statement(
            (
                *self.loops,
                Loop(self.columns.get("together", 1), UNROLLED),
                Loop(self.workload["width"]),
                Loop(self.columns["vectors"], UNROLLED),
                Loop(self.columns["lanes"], VECTORIZED),
            ),
            {"bit": operations, "add": 1, **lookup_operations(self.columns["leaf_lookup"], entries)},
            (
                Access(
                    "value",
                    self.value_bytes,
                    self.table_strides(entries, (entries, 1, 0)),
                    gather=True,
                    span=leaves,
                ),
            ),
            lane_bytes=self.value_bytes,
        )


def lookup_operations(method: np.ndarray, entries: int) -> dict[str, Number]:
    """What fetching a vector of a table's entries costs beyond loading them, for each lane."""
    return {
        "convert": np.where(method == "scalar", 2, 0),  # out of the vector of indices, into the result
        "other": np.where(method == "gather", 1, 0),
        "select": np.where(method == "permute", -(-entries // 16), 0),
    }


def add_operations(*parts: dict[str, Number]) -> dict[str, Number]:
    """Operations of all parts, by kind."""
    kinds = sorted({kind for part in parts for kind in part})
    return {kind: sum(part.get(kind, 0) for part in parts) for kind in kinds}


def surroundings(workload: dict[str, Any], columns: Columns, together: Number = 1) -> Surroundings:
    """Describe what `place` arranges around a main stage that handles `together` trees at once."""
    by_tree, outer_trees = columns["axis"] == "trees", columns["order"] == "trees"
    tree_tiles = -(-workload["trees"] // columns["tree_tile"])
    blocks = np.where(by_tree, 1, columns["row_tile"] // (columns["lanes"] * columns["vectors"]))
    split = columns["parallel"] == "trees" if "parallel" in columns else np.zeros(by_tree.shape, bool)
    around = (
        *row_loops(workload, columns),
        Loop(workload["groups"]),
        Loop(np.where(outer_trees, tree_tiles, blocks), np.where(outer_trees & split, PARALLEL, SERIAL)),
        Loop(np.where(outer_trees, blocks, tree_tiles), np.where(~outer_trees & split, PARALLEL, SERIAL)),
        Loop(np.where(by_tree, 1, columns["tree_tile"] // together)),
    )
    count = workload["numeric"] + workload["categorical"]
    return Surroundings(
        workload,
        columns,
        around,
        by_tree,
        outer_trees,
        8 if workload["dtype"] == "float64" else 4,
        8 if workload["value_dtype"] == "float64" else 4,
        count * columns["row_tile"],
    )


def row_loops(workload: dict[str, Any], columns: Columns) -> tuple[Loop, Loop]:
    """The loops over chunks of row tiles (one for each piece of work of a thread) and over their tiles."""
    tiles = -(-workload["rows"] // columns["row_tile"])
    if "parallel" not in columns:
        return Loop(1, PARALLEL), Loop(tiles)
    most = np.minimum(tiles // columns["grain"], 4 * workload["threads"])
    chunks = np.where(columns["parallel"] == "rows", np.maximum(most, 1), 1)
    return Loop(chunks, PARALLEL), Loop(-(-tiles // chunks))


def column_statement(workload: dict[str, Any], columns: Columns) -> Statement:
    """Describe the stage that `place_columns` places."""
    count = workload["numeric"] + workload["categorical"]
    lanes = np.where(columns["axis"] == "trees", 1, columns["lanes"])
    room: Number = count
    if "column_lookup" in columns:  # permutes read whole registers
        per_register = 64 // (8 if workload["dtype"] == "float64" else 4)
        room = np.where(
            columns["column_lookup"] == "permute", -(-count // per_register) * per_register, count
        )
    return read_columns(workload, columns, lanes, np.ones(len(lanes), bool), room)


def read_columns(
    workload: dict[str, Any], columns: Columns, lanes: np.ndarray, by_row: np.ndarray, room: Number
) -> Statement:
    """Describe a stage that turns a row tile into `room` columns.

    Parameters
    ----------
    by_row
        bool, shape (n,): whether a vector's `lanes` are rows of one column; else columns of one row.
    """
    row_tile, features = columns["row_tile"], workload["features"]
    size = 8 if workload["dtype"] == "float64" else 4
    chunk, tile = row_loops(workload, columns)
    return Statement(
        (
            chunk,
            tile,
            Loop(np.where(by_row, room, -(-room // lanes))),
            Loop(np.where(by_row, row_tile // lanes, row_tile)),
            Loop(lanes, VECTORIZED),
        ),
        {"select": 2 * bool(workload["fills_missing"] or workload["zeros_missing"])},
        (
            Access(
                "x",
                size,
                (
                    tile.extent * row_tile * features,
                    row_tile * features,
                    np.where(by_row, 1, lanes),
                    np.where(by_row, lanes * features, features),
                    np.where(by_row, features, 1),
                ),
            ),
            Access(
                "scratch",
                size,
                (
                    0,
                    0,
                    np.where(by_row, row_tile, lanes * row_tile),
                    np.where(by_row, lanes, 1),
                    np.where(by_row, 1, row_tile),
                ),
                store=True,
            ),
        ),
        lane_bytes=size,
    )
