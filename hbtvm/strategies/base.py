"""The interface of strategies, which express a forest or another operand as tensor expressions.

All strategies share the form of a kernel's arguments (`Strategy.signature`)::

    kernel(rows[n, R, F], <column tables>, <strategy tables>, scores[n, G, V, R])

with n row tiles of R rows (n is symbolic, so one kernel takes any number of rows) and a
symbolic number of tree tiles in every table (so one kernel takes any number of trees).
Scores are float64 sums of leaf values or other terms; base score and divisor come afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from tvm.s_tir import Schedule

from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_argument
from hbtvm.schedules.cpu.sharing import with_threads
from hbtvm.schedules.cpu.steps import apart_config, apart_space
from hbtvm.schedules.space import Config, Space
from hbtvm.schedules.workload import Target, Workload, apart_of, row_dtype_of
from hbtvm.strategies.columns import column_arguments, column_tables
from hbtvm.strategies.memo import remembered
from hbtvm.strategies.trees.forest import DType, Forest


class Operand(Protocol):
    """An anchor of a graph, prepared for kernels that read rows of one type.

    `family`: the family of strategies that support it: ``"trees"``, ``"linear"`` or a network's.
    `n_features`: width of an input row.
    `dtype`, `row_dtype`: type of the numbers that kernels compute with, and of the rows.
    `value_dtype`: type of the terms of sums, which decides how exact scores are.
    `missing`: whether rows may have missing values.
    `memo`: cache of strategies' results that no configuration changes.
    """

    @property
    def family(self) -> str: ...
    @property
    def n_features(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def row_dtype(self) -> DType: ...
    @property
    def value_dtype(self) -> DType: ...
    @property
    def missing(self) -> bool: ...
    @property
    def memo(self) -> dict[str, Any]: ...

    def workload(self, rows: int, threads: int = 1) -> Workload:
        """See `workload_of`."""


def workload_of(operand: Operand, rows: int, threads: int = 1) -> Workload:
    """Describe an operand's shape, the number of rows in a call, and the threads it may use.

    Two models with the same workload can run each other's kernels (not each other's tables).
    """
    return operand.workload(rows, threads)


class Schedules(Protocol):
    """The interface of a module of `schedules`: a strategy's schedules for one kind of target."""

    def space(self, workload: Workload, target: Target) -> Space:
        """Return the schedule choices on a target (as `target.resolve` describes it)."""

    def default(self, workload: Workload, target: Target) -> Config:
        """Return a good single-thread configuration for unmeasured workloads."""

    def apply(self, sch: Any, workload: Workload, config: Config) -> None:
        """Schedule a strategy's expressions in place."""


class Strategy(ABC):
    """One way to express an operand, here a forest. Instances hold no state."""

    name: str  # the users' name, the same for all kinds of targets
    schedule: Schedules  # the module of its schedules

    @abstractmethod
    def refuse(self, workload: Workload) -> str | None:
        """Return why this strategy does not support such an operand; None if it does."""

    def space(self, workload: Workload, target: Target) -> Space:
        """Return the schedule choices on a target (as `target.resolve` describes it)."""
        return apart_space(self.schedule.space(workload, target), workload)

    def default(self, workload: Workload, target: Target) -> Config:
        """Return a good configuration for unmeasured workloads."""
        return self.with_sharing(self.serial_default(workload, target), workload, target)

    def with_sharing(self, config: Config, workload: Workload, target: Target) -> Config:
        """Add good values of the thread knobs to a single-thread configuration."""
        space = self.space(workload, target)
        return with_threads(config, workload, self.nanoseconds(workload), space, self.tree_bytes(workload))

    def tree_bytes(self, workload: Workload) -> int:
        """Return the bytes of a tree's tables; 0 where they hardly matter for threads."""
        return 0

    @abstractmethod
    def nanoseconds(self, workload: Workload) -> float:
        """Estimate the time of one tree for one row of a large batch; decides which calls use threads."""

    def serial_default(self, workload: Workload, target: Target) -> Config:
        """Return a good single-thread configuration for unmeasured workloads."""
        return apart_config(self.schedule.default(workload, target), workload)

    def signature(self, workload: Workload, config: Config) -> Signature:
        """Return the arguments of a configuration's kernel, in the order of `function`'s parameters."""
        rows, scores, parts = self.ends(workload, config)
        tables = (*column_arguments(workload), *self.arguments(workload, config))
        return Signature((rows, *tables, scores), apart_of(workload) or int(workload["groups"]), parts)

    def ends(self, workload: Workload, config: Config) -> tuple[Argument, Argument, int]:
        """Return a kernel's first and last argument (rows, scores), and the partial sums of each score."""
        row_tile = int(config["row_tile"])
        groups = apart_of(workload) or workload["groups"]
        scores = scores_argument((groups, workload["width"], row_tile))
        return rows_argument(row_dtype_of(workload), row_tile, workload["features"]), scores, 1

    @abstractmethod
    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        """Return the strategy's own tables in argument order: `shared` without the columns', then `tables`.

        This is the definition of their names, types, shapes and contents.
        """

    def shared(self, operand: Any) -> dict[str, np.ndarray]:
        """Return the tables that no configuration changes, by name, in argument order; cached."""
        # Strategies of the same name lay tables out differently for different kinds of target.
        return remembered(operand.memo, type(self).__name__, lambda: self._shared(operand))

    def _shared(self, operand: Any) -> dict[str, np.ndarray]:
        return column_tables(operand)

    @abstractmethod
    def tables(self, operand: Any, config: Config) -> dict[str, np.ndarray]:
        """Return a configuration's tables by name, in argument order."""

    @abstractmethod
    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as an unscheduled `PrimFunc`."""

    def module(self, workload: Workload, config: Config) -> Any:
        """Return the scheduled module (`tvm.IRModule`) whose function ``main`` is the kernel."""
        sch = Schedule(self.function(workload, config))
        self.schedule.apply(sch, workload, config)
        return sch.mod

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        """Return the values of the signature's symbolic sizes for a call with all of a workload's rows."""
        nodes = workload["groups"] * workload["trees"] * workload["nodes"]
        trees = -(-workload["trees"] // int(config.get("tree_blocks", 1)))
        return {
            "tiles": -(-workload["rows"] // int(config["row_tile"])),
            "tree_tiles": -(-trees // int(config["tree_tile"])),
            "slots": nodes,
            "leaves": nodes,
        }


def tile_trees(forest: Forest, tree_tile: int, parts: int = 1) -> np.ndarray:
    """Cut each group's trees into tiles.

    `parts`: parts of each group with separate tiles: part b gets every `parts`-th tree, from tree b on.
    Returns int64, shape (tiles, parts * G, tree_tile): tree indices, -1 where a tile has no tree. Part b of
    group g is at b * G + g.
    """
    groups, trees = forest.tiled_trees.shape
    tiles = -(-trees // (parts * tree_tile))
    padded = np.full((groups, tiles * tree_tile * parts), -1, np.int64)
    padded[:, :trees] = forest.tiled_trees
    by_part = padded.reshape(groups, tiles, tree_tile, parts).transpose(1, 3, 0, 2)
    tiled: np.ndarray = by_part.reshape(tiles, parts * groups, tree_tile)
    return tiled


def spread(table: np.ndarray, tiles: np.ndarray, empty: Any, trees_inner: bool) -> np.ndarray:
    """Lay a per-tree table out in tiles.

    `table`: shape (T, ...): one row for each tree.
    `tiles`: from `tile_trees`.
    `empty`: fills the rows of places without a tree.
    `trees_inner`: whether a tile's trees are its last axis (vectors of trees) or its first.
    Returns shape (tiles, G, tree_tile, ...), or (tiles, G, ..., tree_tile); contiguous.
    """
    out = np.empty((*tiles.shape, *table.shape[1:]), table.dtype)
    out[:] = empty
    filled = tiles >= 0
    out[filled] = table[tiles[filled]]
    return np.ascontiguousarray(np.moveaxis(out, 2, -1) if trees_inner else out)


def leaf_ranges(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Number the leaves of each tree from left to right.

    Returns start, count; int64, shape (N,) each: first leaf and number of leaves of a node's subtree.
    """
    levels = forest.levels()
    base = forest.base
    count = np.ones(len(base), np.int64)
    start = np.zeros(len(base), np.int64)
    parents = [level[forest.left[level] >= 0] for level in levels]
    for at in reversed(parents):
        count[at] = count[base[at] + forest.left[at]] + count[base[at] + forest.right[at]]
    for at in parents:
        left, right = base[at] + forest.left[at], base[at] + forest.right[at]
        start[left] = start[at]
        start[right] = start[at] + count[left]
    return start, count


def rank_in_tree(tree: np.ndarray, trees: int) -> np.ndarray:
    """Return each entry's position among its tree's entries; `tree` is sorted."""
    first = np.searchsorted(tree, np.arange(trees))
    return np.arange(len(tree)) - first[tree] if len(tree) else tree
