"""Stages that all GPU kernels share: rows and trees distributed to a block's threads, and sums.

A block takes a tile of rows and one group of outputs. If blocks share a group's trees (knob
``tree_blocks``), each part counts as a group. A block's threads form a grid:
`row_threads` along the rows times `tree_threads` along the trees. In a tile of trees, a thread walks
`trees_each` of them for `rows_each` rows; a tile's rows lie `row_threads` apart, so that neighbouring
threads have neighbouring rows::

    parts[o, y, p, x]  = sum over q of the value that tree q * Y + y of tile o has for row p * X + x
    lane_sums[y, p, x] = sum over o of parts[o, y, p, x]                      (float64)
    scores[p * X + x]  = sum over y of lane_sums[y, p, x]                     (float64)

Here x < X = row_threads, p < P = rows_each, y < Y = tree_threads, q < Q = trees_each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from tvm import IRModule, te

from hbtvm.runtime.package.signature import (
    GPU_ROW_ALIGNMENT,
    TREE_TILES,
    Argument,
    rows_argument,
    scores_argument,
    table,
)
from hbtvm.schedules.cuda import carveout
from hbtvm.schedules.cuda.shape import Shape, shared_out, tree_tiles
from hbtvm.schedules.cuda.space import Needs
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import Schedules, Strategy, spread, tile_trees
from hbtvm.strategies.columns import column_stage, placeholder
from hbtvm.strategies.once import bind_once, once
from hbtvm.strategies.trees.forest import Forest


class CudaSchedules(Schedules, Protocol):
    """The interface of a module of `hbtvm.schedules` for kernels on CUDA."""

    def needs(self, workload: Workload, config: Config) -> Needs:
        """Return a block's resources."""


class OnGpu(Strategy):
    """Base of all strategies on CUDA."""

    schedule: CudaSchedules

    def module(self, workload: Workload, config: Config) -> Any:
        """Return the scheduled module, with the attribute of the knob ``carveout`` if it is set."""
        module = bind_once(super().module(workload, config))
        size = carveout.wanted(config, self.schedule.needs(workload, config).shared)
        if size is None:
            return module
        return IRModule({"main": module["main"].with_attr(carveout.ATTRIBUTE, size)})

    def ends(self, workload: Workload, config: Config) -> tuple[Argument, Argument, int]:
        """Return rows, scores and parts; a tile's rows are two axes of the scores (see `Grid.scores`)."""
        shape, parts = Shape.of(config), int(config["tree_blocks"])
        rows = rows_argument(workload["dtype"], shape.row_tile, workload["features"], GPU_ROW_ALIGNMENT)
        extents = (parts * workload["groups"], workload["width"], shape.rows_each, shape.row_threads)
        return rows, scores_argument(extents), parts


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
    trees, groups = int(config["tree_tile"]), int(shared_out(workload, int(config["tree_blocks"]))["groups"])
    # Tables that stay resident in shared memory need a static size.
    tiles = tree_tiles(workload, config) if config["tables"] == "kept" else TREE_TILES
    # Neighbouring threads with neighbouring trees read adjacent entries.
    entries = (*shape, trees) if config["layout"] == "trees" else (trees, *shape)
    return table(name, dtype, (tiles, groups, *entries), kind, **bounds)


class Grid:
    """Builds the expressions that GPU kernels share: symbolic sizes, column stage, tables, scores.

    `lowest`: whether to add a column that is always -inf.
    `stage`: the columns, shape (tiles, columns, row_tile).
    `trees_inner`: whether per-tree tables end in the tree axis (knob ``layout``).
    `in_place`: whether readers compute the columns of categories (knob ``columns``).
    """

    def __init__(self, workload: Workload, config: Config, lowest: bool = False) -> None:
        self.workload, self.config = workload, config
        self.shape = Shape.of(config)
        self.trees_inner = config["layout"] == "trees"
        self.groups: int = shared_out(workload, int(config["tree_blocks"]))["groups"]
        self.tiles = te.var("tiles", "int64")
        resident = config["tables"] == "kept"
        self.tree_tiles = tree_tiles(workload, config) if resident else te.var("tree_tiles", "int64")
        count = workload["numeric"] + workload["categorical"]
        room, padding = (count + 1, -np.inf) if lowest else (count, 0.0)
        self.in_place = bool(workload["categorical"]) and config["columns"] == "global"
        self.stage = column_stage(
            workload, self.tiles, self.shape.row_tile, room, padding=padding, in_place=self.in_place
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

    def at(self, o: Any, g: Any, q: Any, y: Any, *entry: Any) -> tuple[Any, ...]:
        """Return the index of an entry of a thread's tree in a per-tree table."""
        t = q * self.shape.tree_threads + y
        return (o, g, *entry, t) if self.trees_inner else (o, g, t, *entry)

    def column(self, i: Any, column: Any, p: Any, x: Any) -> Any:
        """Return a row's value of a column."""
        return self.stage.columns[i, column, p * self.shape.row_threads + x]

    def by_test(self, left: Any, choice: Callable[[Any], Any]) -> Any:
        """Return a walk's choice by a test; a walk makes several choices by the same test."""
        # TVM's passes would repeat an inlined column's expression for each choice.
        return once(left, choice) if self.in_place else choice(left)

    def per_tree(self, body: Callable[..., Any], name: str) -> Any:
        """Return a tensor of one value for each (tile i, tree tile o, group g, tree q, y, row p, x)."""
        shape = self.shape
        axes = (shape.trees_each, shape.tree_threads, shape.rows_each, shape.row_threads)
        return te.compute((self.tiles, self.tree_tiles, self.groups, *axes), body, name=name)

    def scores(self, leaf_value: Callable[..., Any]) -> Any:
        """Return the sums of the trees' values.

        A thread sums its trees of a tile in the type of the leaf values, and everything else in float64, so
        the error does not grow with the number of trees.

        `leaf_value`: from (i, o, g, q, y, p, x, v) to a tree's term of output v of its group.
        Returns tensor, float64, shape (tiles, tree_blocks * G, V, rows_each, row_threads): a tile's rows in
        their order. With two axes for rows, TVM proves that no threads share a value, and uses registers.
        """
        width, shape = int(self.workload["width"]), self.shape
        threads = (shape.tree_threads, shape.rows_each, shape.row_threads)
        tree = te.reduce_axis((0, shape.trees_each), "tree")
        parts = te.compute(
            (self.tiles, self.tree_tiles, self.groups, width, *threads),
            lambda i, o, g, v, y, p, x: te.sum(leaf_value(i, o, g, tree, y, p, x, v), axis=tree),
            name="parts",
        )
        tile = te.reduce_axis((0, self.tree_tiles), "tile")
        lane_sums = te.compute(
            (self.tiles, self.groups, width, *threads),
            lambda i, g, v, y, p, x: te.sum(parts[i, tile, g, v, y, p, x].astype("float64"), axis=tile),
            name="lane_sums",
        )
        extents = (self.tiles, self.groups, width, shape.rows_each, shape.row_threads)
        if shape.tree_threads == 1:
            return te.compute(extents, lambda i, g, v, p, x: lane_sums[i, g, v, 0, p, x], name="scores")
        lane = te.reduce_axis((0, shape.tree_threads), "lane")
        return te.compute(
            extents, lambda i, g, v, p, x: te.sum(lane_sums[i, g, v, lane, p, x], axis=lane), name="scores"
        )

    def function(self, tables: Sequence[Any], scores: Any) -> Any:
        """Return the kernel's `PrimFunc`: rows, column tables, the strategy's tables, scores."""
        return te.create_prim_func([self.stage.rows, *self.stage.tables, *tables, scores])


def tiles_of(forest: Forest, config: Config) -> np.ndarray:
    """Return the trees of each tile; a group's parts for several blocks are groups (see `tile_trees`)."""
    return tile_trees(forest, int(config["tree_tile"]), int(config["tree_blocks"]))


def tiled_tables(
    forest: Forest, config: Config, tables: dict[str, tuple[np.ndarray, Any]]
) -> dict[str, np.ndarray]:
    """Return per-tree tables laid out in tiles of trees (see `hbtvm.strategies.base.spread`).

    `tables`: by name: an array of shape (T, ...), and the padding where a tile has no tree.
    """
    tiles = tiles_of(forest, config)
    inner = config["layout"] == "trees"
    return {name: spread(table, tiles, empty, inner) for name, (table, empty) in tables.items()}


def padded(table: np.ndarray, count: int) -> np.ndarray:
    """Pad a table of shape (T, n, ...) to `count` entries of each tree."""
    return np.pad(table, [(0, 0), (0, count - table.shape[1]), *((0, 0),) * (table.ndim - 2)])
