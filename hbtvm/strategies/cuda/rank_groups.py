"""Ranks by columns: each thread counts the thresholds of one group, kept in registers, in all rows of a tile.

With many columns of few thresholds each, loads dominate a search: a warp's values come from as many lines as
it has rows, and each step loads a threshold. So the thresholds of a column are cut into groups of
`RANK_GROUP` neighbours, and a thread takes a group rather than a row: it loads the thresholds once for all
rows, and neighbouring threads read neighbouring values of a row::

    for group of the thread:
        t[0..6] = thresholds of the group
        for row of the tile:
            ranks[row, group] = number of k for which ``rows[row, column of the group] <= t[k]`` is false

``x <= t[k]`` holds exactly if the rank in the group of t[k] is at most t[k]'s place there; other groups do
not matter. So a node refers to a group and a place of three bits.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cuda.ranked_layout import GROUPS, MISSING, RANKED, RankLayout, fills_only
from hbtvm.schedules.workload import RANK_GROUP, Workload
from hbtvm.strategies.columns import column_arguments
from hbtvm.strategies.cuda.grid import Grid
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.ranks import node_ranks

_WHOLE = 2.0**23  # added to a small whole number in float32, it leaves that number in the lowest bits


def _first_groups(forest: Forest) -> np.ndarray:
    """Return the first group of each column, then the number of groups: int64, shape (C + 1,)."""
    count = [-(-len(values) // RANK_GROUP) for values in forest.thresholds]
    return np.concatenate([[0], np.cumsum(count, dtype=np.int64)])


def node_groups(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each split's threshold, and its place in the group: int64, shape (N,) each."""
    ranks = node_ranks(forest).astype(np.int64)
    first = _first_groups(forest)[forest.column]
    split = forest.left >= 0
    return np.where(split, first + ranks // RANK_GROUP, 0), np.where(split, ranks % RANK_GROUP, 0)


def group_arguments(workload: Workload, ranks: RankLayout) -> tuple[Argument, ...]:
    """Return the tables of groups as kernel arguments, in order."""
    columns = int(workload["numeric"]) + int(workload["categorical"])
    return (
        table("group_column", "int32", (ranks.row_room,), "index", below=columns),
        table(GROUPS, workload["dtype"], (RANK_GROUP, ranks.row_room)),
    )


def group_tables(forest: Forest, ranks: RankLayout) -> dict[str, np.ndarray]:
    """Return the tables of groups by name; padding groups count nothing."""
    first = _first_groups(forest)
    column = np.zeros(ranks.row_room, np.int32)
    column[: ranks.count] = np.repeat(np.arange(len(first) - 1), np.diff(first))
    column[ranks.count :] = column[ranks.count - 1]
    threshold = np.full((ranks.row_room, RANK_GROUP), np.inf, forest.dtype)
    for begin, values in zip(first, forest.thresholds, strict=False):
        threshold[begin:].reshape(-1)[: len(values)] = values
    return {"group_column": column, GROUPS: np.ascontiguousarray(threshold.T)}


def ranks_by_columns(grid: Grid, ranks: RankLayout, column: Any, threshold: Any) -> Any:
    """Return the ranks of row tiles, shape (tiles, row_tile, row_room)."""
    tiles, shape = grid.tiles, (grid.tiles, ranks.row_tile, ranks.row_room)
    zero, one = tirx.const(0, "float32"), tirx.const(1, "float32")

    def total(ones: Iterable[Any]) -> Any:
        # Float32 additions run in parallel with comparisons; int32 additions compete with them.
        return functools.reduce(operator.add, ones)

    def no(test: Any) -> Any:
        # (TVM ignores NaN when it negates a comparison.)
        return tirx.Select(test, zero, one)

    def whole(count: Any) -> Any:
        return tirx.reinterpret("int32", count + tirx.const(_WHOLE, "float32")).astype(ranks.dtype)

    if not fills_only(grid.workload):
        value = te.compute(shape, lambda i, r, e: grid.stage.columns[i, column[e], r], name=RANKED)
        # The comparison is false for NaN, which therefore ranks highest.
        return te.compute(
            shape,
            lambda i, r, e: whole(total(no(value[i, r, e] <= threshold[k, e]) for k in range(RANK_GROUP))),
            name="ranks",
        )
    # Count the fill value's rank once and add it for NaN, rather than replace NaN in each row.
    names = [argument.name for argument in column_arguments(grid.workload)]
    tables = dict(zip(names, grid.stage.tables, strict=True))
    feature, fill = tables.get("column_feature"), tables["column_fill"]

    def column_value(i: Any, r: Any, e: Any) -> Any:
        return grid.stage.rows[i, r, column[e] if feature is None else feature[column[e]]]

    value = te.compute(shape, column_value, name=RANKED)
    missing = te.compute(
        (tiles, ranks.row_room),
        lambda i, e: total(no(fill[column[e]] <= threshold[k, e]) for k in range(RANK_GROUP)),
        name=MISSING,
    )
    lowest = tirx.const(-np.inf, grid.workload["dtype"])

    def rank(i: Any, r: Any, e: Any) -> Any:
        x = value[i, r, e]
        # All of these are false for NaN.
        above = total(tirx.Select(x > threshold[k, e], one, zero) for k in range(RANK_GROUP))
        return whole(above + no(x >= lowest) * missing[i, e])

    return te.compute(shape, rank, name="ranks")
