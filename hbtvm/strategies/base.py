"""What a strategy is: one way to express a forest, or another operand, as tensor expressions.

All strategies share the form of a kernel's arguments (`Strategy.signature`)::

    kernel(rows[n, R, F], <column tables>, <strategy tables>, scores[n, G, V, R])

with n row tiles of R rows (n is symbolic, so one kernel takes any number of rows) and a
symbolic number of tree tiles in every table (so one kernel takes any number of trees).
Scores are float64 sums of leaf values, or of what else an operand adds up; base score and divisor come
afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from tvm.s_tir import Schedule

from hbtvm.runtime.package.signature import Argument, Signature, rows_argument, scores_argument
from hbtvm.schedules.cpu.sharing import with_threads
from hbtvm.schedules.space import Config, Space
from hbtvm.schedules.workload import Target, Workload, row_dtype_of
from hbtvm.strategies.columns import column_arguments, column_tables
from hbtvm.strategies.trees.forest import DType, Forest


class Operand(Protocol):
    """An anchor of a graph, prepared for kernels that read rows of one type.

    `family`: which strategies are for it: ``"trees"`` or ``"linear"``.
    `n_features`: width of an input row.
    `dtype`, `row_dtype`: type of the numbers that kernels compute with, and of the rows.
    `value_dtype`: type in which what is summed is kept, which decides how exact scores are.
    `missing`: whether rows may have missing values.
    `memo`: cache of what strategies compute from it, the same for all configurations.
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
    """What a module of `schedules` offers: a strategy's schedules for one kind of target."""

    def space(self, workload: Workload, target: Target) -> Space:
        """The schedule choices on a target (as `target.resolve` describes it)."""

    def default(self, workload: Workload, target: Target) -> Config:
        """A good configuration of one thread where nothing was measured."""

    def apply(self, sch: Any, workload: Workload, config: Config) -> None:
        """Schedule a strategy's expressions in place."""


class Strategy(ABC):
    """One way to express an operand. Instances hold no state.

    What is said of trees here holds for forests; strategies for other operands say their own.
    """

    name: str  # what users call it; the same for all kinds of targets
    schedule: Schedules  # the module of its schedules

    @abstractmethod
    def refuse(self, workload: Workload) -> str | None:
        """Why this strategy cannot hold such an operand; None if it can."""

    def space(self, workload: Workload, target: Target) -> Space:
        """The schedule choices on a target (as `target.resolve` describes it)."""
        return self.schedule.space(workload, target)

    def default(self, workload: Workload, target: Target) -> Config:
        """A good configuration where nothing was measured."""
        return self.with_sharing(self.serial_default(workload, target), workload, target)

    def with_sharing(self, config: Config, workload: Workload, target: Target) -> Config:
        """A configuration for one thread with a good choice of what threads share."""
        return with_threads(config, workload, self.nanoseconds(workload), self.space(workload, target))

    @abstractmethod
    def nanoseconds(self, workload: Workload) -> float:
        """About what one tree takes for one row of a large batch, to tell which calls are worth threads."""

    def serial_default(self, workload: Workload, target: Target) -> Config:
        """A good configuration of one thread where nothing was measured."""
        return self.schedule.default(workload, target)

    def signature(self, workload: Workload, config: Config) -> Signature:
        """What a configuration's kernel takes; `function`'s parameters, and `shared` and `tables`, are so."""
        rows, scores, parts = self.ends(workload, config)
        tables = (*column_arguments(workload), *self.arguments(workload, config))
        return Signature((rows, *tables, scores), int(workload["groups"]), parts)

    def ends(self, workload: Workload, config: Config) -> tuple[Argument, Argument, int]:
        """A kernel's first and last argument, rows and scores, and the parts of a score that it leaves."""
        row_tile = int(config["row_tile"])
        scores = scores_argument((workload["groups"], workload["width"], row_tile))
        return rows_argument(row_dtype_of(workload), row_tile, workload["features"]), scores, 1

    @abstractmethod
    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        """The strategy's own tables in argument order: those of `shared` behind the columns', then `tables`.

        It is here that names, types, shapes and contents of tables are stated; what makes the tables and
        what reads them goes by it.
        """

    def shared(self, operand: Any) -> dict[str, np.ndarray]:
        """Tables that no configuration changes, by name, in argument order; the operand remembers them."""
        # Two of one name, for different kinds of target, lay tables out differently.
        key = type(self).__name__
        if key not in operand.memo:
            operand.memo[key] = self._shared(operand)
        found: dict[str, np.ndarray] = operand.memo[key]
        return found

    def _shared(self, operand: Any) -> dict[str, np.ndarray]:
        return column_tables(operand)

    @abstractmethod
    def tables(self, operand: Any, config: Config) -> dict[str, np.ndarray]:
        """The strategy's tables by name, in argument order, laid out as the configuration says."""

    @abstractmethod
    def function(self, workload: Workload, config: Config) -> Any:
        """The tensor expressions, as a `PrimFunc` ready to be scheduled."""

    def module(self, workload: Workload, config: Config) -> Any:
        """The scheduled module (`tvm.IRModule`) whose function ``main`` is the kernel."""
        sch = Schedule(self.function(workload, config))
        self.schedule.apply(sch, workload, config)
        return sch.mod

    def sizes(self, workload: Workload, config: Config) -> dict[str, int]:
        """Values of the symbolic sizes in the kernel's signature for a call with all of a workload's rows."""
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

    `parts`: parts of each group that have tiles of their own: part b gets every `parts`-th tree, from tree b
        on.
    Returns int64, shape (tiles, parts * G, tree_tile): tree indices, -1 where a tile has no tree. Part b of
    group g is at b * G + g.
    """
    groups, trees = forest.group_trees.shape
    tiles = -(-trees // (parts * tree_tile))
    padded = np.full((groups, tiles * tree_tile * parts), -1, np.int64)
    padded[:, :trees] = forest.group_trees
    by_part = padded.reshape(groups, tiles, tree_tile, parts).transpose(1, 3, 0, 2)
    tiled: np.ndarray = by_part.reshape(tiles, parts * groups, tree_tile)
    return tiled


def spread(table: np.ndarray, tiles: np.ndarray, empty: Any, trees_inner: bool) -> np.ndarray:
    """Lay a per-tree table out in tiles.

    `table`: shape (T, ...): one row for each tree.
    `tiles`: from `tile_trees`.
    `empty`: what fills the rows of places without a tree.
    `trees_inner`: whether a tile's trees are its last axis (vectors of trees) or its first.
    Returns shape (tiles, G, tree_tile, ...), or (tiles, G, ..., tree_tile); contiguous.
    """
    out = np.empty((*tiles.shape, *table.shape[1:]), table.dtype)
    out[:] = empty
    real = tiles >= 0
    out[real] = table[tiles[real]]
    return np.ascontiguousarray(np.moveaxis(out, 2, -1) if trees_inner else out)


def leaf_ranges(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Number the leaves of each tree from left to right.

    Returns start, count; int64, shape (N,) each: the first leaf in a node's subtree, and how many it has.
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
    """Position of each entry among those of its tree; `tree` is sorted."""
    first = np.searchsorted(tree, np.arange(trees))
    return np.arange(len(tree)) - first[tree] if len(tree) else tree
