"""Stages that all strategies for CPUs share: columns, lookups, and sums of leaf values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import te, tirx

from hbtvm.runtime.package.signature import TREE_TILES, Argument, table
from hbtvm.schedules.cpu.steps import transposed_lanes, transposes_blocks
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload, apart_of, row_dtype_of
from hbtvm.strategies.columns import ColumnStage, column_stage, placeholder, row_stage
from hbtvm.strategies.intrinsics.lookup import lookup, padded


class StageBuilder:
    """Builds the expressions that strategies share: symbolic sizes, column stage, tables, scores.

    `by_row`: whether the columns' layout is by rows (`row_stage`), else by columns (`column_stage`).
    `room`: number of columns to pad to.
    `trees_inner`: whether vectors run over trees (knob ``axis``); the tree axis is then last in per-tree
        tables and intermediate tensors.
    `tree_tiles`, `groups`, `tree_tile`: extents of the leading axes of every table; `tree_tiles` is symbolic.
    """

    def __init__(self, workload: Workload, config: Config, by_row: bool = False, room: int = 0) -> None:
        self.workload, self.config = workload, config
        self.row_tile, self.tree_tile = int(config["row_tile"]), int(config["tree_tile"])
        self.trees_inner = config["axis"] == "trees"
        self.groups: int = workload["groups"]
        self.apart = apart_of(workload)
        self.tiles = te.var("tiles", "int64")
        self.tree_tiles = self.apart // self.tree_tile or te.var("tree_tiles", "int64")
        self.column_lookup = str(config.get("column_lookup", "scalar"))
        count = workload["numeric"] + workload["categorical"]
        room = max(room, padded(count, workload["dtype"], self.column_lookup))
        block = (
            transposed_lanes(int(config["lanes"]), row_dtype_of(workload))
            if transposes_blocks(workload, config)
            else 0
        )
        self.stage: ColumnStage = (
            row_stage(workload, self.tiles, self.row_tile)
            if by_row
            else column_stage(workload, self.tiles, self.row_tile, room, block)
        )

    def placeholders(self, arguments: Sequence[Argument]) -> list[Any]:
        """Return placeholders of a strategy's tables."""
        extents = {
            symbol: te.var(symbol, "int64")
            for a in arguments
            for symbol in a.shape
            if isinstance(symbol, str)
        }
        return [placeholder(argument, {**extents, TREE_TILES: self.tree_tiles}) for argument in arguments]

    def at(self, o: Any, g: Any, t: Any, *entry: Any) -> tuple[Any, ...]:
        """Return the index of a tree's entry in a per-tree table."""
        return (o, g, *entry, t) if self.trees_inner else (o, g, t, *entry)

    def column(self, i: Any, column: Any, r: Any) -> Any:
        """Return a row's value of a column whose number depends on data, one for each lane."""
        columns = self.stage.columns
        entries = int(columns.shape[1]) * self.row_tile
        index = column if self.row_tile == 1 else column * self.row_tile + r
        return lookup(columns[i, 0, 0], index, entries, self.column_lookup)

    def entry(self, table: Any, o: Any, g: Any, t: Any, run: range, index: Any, method: str) -> Any:
        """Return the entry at a data-dependent `index` of a run of a tree's entries."""
        if self.trees_inner:
            index = index * self.tree_tile + t
            return lookup(table[o, g, run.start, 0], index, len(run) * self.tree_tile, method)
        return lookup(table[o, g, t, run.start], index, len(run), method)

    def leaf_value(self, table: Any, o: Any, g: Any, t: Any, leaf: Any, v: Any) -> Any:
        """Return output v of a tree's leaf, looked up by the method of the knob ``leaf_lookup``."""
        width: int = self.workload["width"]
        rows = int(table.shape[2 if self.trees_inner else 3])
        index = leaf if width == 1 else leaf * width + v
        method = str(self.config["leaf_lookup"])
        if self.trees_inner:
            index = index * self.tree_tile + t
            return lookup(table[o, g, 0, 0, 0], index, rows * width * self.tree_tile, method)
        return lookup(table[o, g, t, 0, 0], index, rows * width, method)

    def per_tree(self, body: Callable[..., Any], name: str) -> Any:
        """Return a tensor of one value for each (tile i, tree tile o, group g, tree t, row r)."""
        if self.trees_inner:
            shape = (self.tiles, self.tree_tiles, self.groups, self.row_tile, self.tree_tile)
            return te.compute(shape, lambda i, o, g, r, t: body(i, o, g, t, r), name=name)
        shape = (self.tiles, self.tree_tiles, self.groups, self.tree_tile, self.row_tile)
        return te.compute(shape, body, name=name)

    def read(self, tensor: Any, i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        """Return an element of a tensor made by `per_tree`."""
        return tensor[i, o, g, r, t] if self.trees_inner else tensor[i, o, g, t, r]

    def scores(self, leaf_value: Callable[..., Any]) -> Any:
        """Return the sums of the trees' values; in an `ApartWorkload` the values themselves, G trees of them.

        Trees of a tile are summed in the type of the leaf values, and tiles in float64, so the error does not
        grow with the number of trees.

        `leaf_value`: from (i, o, g, t, r, v) to tree t's term of output v of its group.
        Returns tensor, float64, shape (tiles, G, V, row_tile).
        """
        width: int = self.workload["width"]
        if self.apart:
            return te.compute(
                (self.tiles, self.apart, width, self.row_tile),
                lambda i, p, v, r: leaf_value(i, p // self.tree_tile, 0, p % self.tree_tile, r, v).astype(
                    "float64"
                ),
                name="scores",
            )
        shape = (self.tiles, self.groups, width, self.row_tile)
        tile = te.reduce_axis((0, self.tree_tiles), "tile")
        tree = te.reduce_axis((0, self.tree_tile), "tree")
        if self.trees_inner:
            lane_sums = te.compute(
                (*shape, self.tree_tile),
                lambda i, g, v, r, t: te.sum(leaf_value(i, tile, g, t, r, v).astype("float64"), axis=tile),
                name="lane_sums",
            )
            return te.compute(
                shape, lambda i, g, v, r: te.sum(lane_sums[i, g, v, r, tree], axis=tree), name="scores"
            )
        tile_sums = te.compute(
            (self.tiles, self.tree_tiles, self.groups, width, self.row_tile),
            lambda i, o, g, v, r: te.sum(leaf_value(i, o, g, tree, r, v), axis=tree),
            name="tile_sums",
        )
        return te.compute(
            shape,
            lambda i, g, v, r: te.sum(tile_sums[i, tile, g, v, r].astype("float64"), axis=tile),
            name="scores",
        )

    def function(self, tables: Sequence[Any], scores: Any) -> Any:
        """Return the kernel's `PrimFunc`: rows, column tables, the strategy's tables, scores."""
        function = te.create_prim_func([self.stage.rows, *self.stage.tables, *tables, scores])
        return unaligned_rows(function)


def unaligned_rows(function: Any) -> Any:
    """Return a function whose rows (its first argument) are aligned to their elements only."""
    rows = function.params[0]
    size = np.dtype(str(rows.dtype)).itemsize
    loose = tirx.decl_buffer(rows.shape, rows.dtype, rows.name, data_alignment=size)
    return tvm_ffi.structural_map(function, (tirx.Var, lambda var: loose if var.same_as(rows) else var))


def tree_table(
    workload: Workload,
    config: Config,
    name: str,
    dtype: str,
    shape: Sequence[int],
    kind: str | None = None,
    **bounds: int,
) -> Argument:
    """Return a table with `shape` entries for each tree, in a configuration's tiles of trees."""
    trees = int(config["tree_tile"])
    # Trees with outputs of their own are of a known number, and no part of them is a kernel's work.
    tiles = apart_of(workload) // trees or TREE_TILES
    entries = (*shape, trees) if config["axis"] == "trees" else (trees, *shape)
    return table(name, dtype, (tiles, workload["groups"], *entries), kind, **bounds)


def leaf_table(workload: Workload, config: Config, leaves: int) -> Argument:
    """Return the table of leaf values of trees with up to `leaves` leaves."""
    rows = leaf_rows(leaves, workload["value_dtype"], config)
    return tree_table(workload, config, "value", workload["value_dtype"], (rows, workload["width"]))


def leaf_rows(leaves: int, value_dtype: str, config: Config) -> int:
    """Return the entries of a tree's table of leaf values, padded for permutes."""
    return padded(leaves, value_dtype, str(config["leaf_lookup"]))
