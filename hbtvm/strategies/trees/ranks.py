"""Ranks of columns: the number of a column's thresholds below a value.

``x <= t[k]`` holds exactly if ``rank(x) <= k``, where t is the sorted list of all distinct
thresholds that any tree compares the column with, and ``rank(x)`` counts those for which
``x <= t`` is false (so NaN, for which it always is, ranks highest). A walk over
integers then takes the same paths with one word per node, in which the column and the threshold's rank share
32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.schedules.cpu.oblivious import COMPARE, rank_dtype, rank_room
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.intrinsics.lookup import lookup
from hbtvm.strategies.intrinsics.rank import rank_of, register_order, starts_of
from hbtvm.strategies.trees.forest import Forest


def rank_table(forest: Forest) -> np.ndarray:
    """Return the thresholds to search in: shape (columns, 2 ** bits), sorted, padded with infinity."""
    lists = forest.thresholds
    table = np.full((len(lists), 2**forest.rank_bits), np.inf, forest.dtype)
    for row, values in zip(table, lists, strict=True):
        row[: len(values)] = values
    return table


def node_ranks(forest: Forest) -> np.ndarray:
    """Return the rank of each split's threshold in its column, 0 at leaves: int32, shape (N,)."""
    ranks = np.zeros(len(forest.left), np.int32)
    split = forest.left >= 0
    for column, values in enumerate(forest.thresholds):
        of_column = split & (forest.column == column)
        ranks[of_column] = np.searchsorted(values, forest.threshold[of_column])
    return ranks


def level_order(forest: Forest) -> np.ndarray:
    """Return each column's thresholds as a perfect tree, stored level by level from entry 1 on.

    Returns shape `schedules.cpu.oblivious.rank_room`; padding is infinite.
    """
    bits, thresholds = forest.rank_bits, rank_table(forest)
    table = np.full(rank_room(len(thresholds), bits), np.inf, forest.dtype)
    for level in range(bits):
        step = 2 ** (bits - level)
        table[: len(thresholds), 2**level : 2 ** (level + 1)] = thresholds[:, step // 2 - 1 :: step]
    return table


def search_table(forest: Forest, config: Config) -> np.ndarray:
    """Return the table of thresholds in which a configuration searches; shape `search_room`."""
    if config["search_lookup"] == COMPARE:
        return register_order(rank_table(forest), forest.rank_bits)
    return level_order(forest)


def search_room(columns: int, bits: int, config: Config) -> tuple[int, int]:
    """Return the shape of the table of thresholds."""
    return (columns, starts_of(bits)[-1]) if config["search_lookup"] == COMPARE else rank_room(columns, bits)


def search_stage(
    workload: Workload,
    config: Config,
    columns: Any,
    table: Any,
    dtype: str,
    lowest: int | None = None,
    falling: bool = False,
) -> Any:
    """Return the expressions of the ranks of a row tile's columns, by a search in `search_table`.

    `columns`: tensor, shape (tiles, columns, row_tile).
    `table`: placeholder of `search_table`.
    `dtype`: type of the ranks.
    `lowest`: the lowest rank; None for the lowest value of `rank_dtype`.
    `falling`: whether ranks fall from ``-1 - lowest``; only for searches by `COMPARE`.
    Returns tensor, shape (tiles, columns, row_tile), or (tiles, row_tile, columns) for vectors of trees.
    """
    tiles, count, rows = columns.shape
    bits, by_tree = int(workload["rank_bits"]), config["axis"] == "trees"
    if lowest is None:
        lowest = int(np.iinfo(rank_dtype(bits)).min)
    if config["search_lookup"] == COMPARE:

        def search(i: Any, c: Any, r: Any) -> Any:
            rank = rank_of(table[c, 0], columns[i, c, r], bits)
            if falling:
                return (tirx.const(-1 - int(lowest), "int32") - rank).astype(dtype)
            return (rank + tirx.const(lowest, "int32")).astype(dtype)

        return te.compute((tiles, count, rows), search, name="ranks")

    def step(node: Any, level: int) -> Any:
        def below(i: Any, c: Any, r: Any) -> Any:
            if node is None:
                here, entry = tirx.const(0, "int32"), table[c, 1]
            elif by_tree:
                here = node[i, r, c]
                at = c * int(table.shape[1]) + 2**level + here
                entry = lookup(table[0, 0], at, int(np.prod(table.shape)), str(config["search_lookup"]))
            else:
                here = node[i, c, r]
                permuted = level <= int(config["search_permutes"])
                method = "permute" if permuted else str(config["search_lookup"])
                entry = lookup(table[c, 2**level], here, 2**level, method)
            # The comparison is false for NaN, which therefore ranks highest.
            above = tirx.Select(columns[i, c, r] <= entry, tirx.const(0, "int32"), tirx.const(1, "int32"))
            rank = here * 2 + above
            if level < bits - 1 or (not lowest and dtype == "int32"):
                return rank
            return (rank + tirx.const(lowest, "int32")).astype(dtype)

        name = "ranks" if level == bits - 1 else f"search_{level}"
        if by_tree:
            return te.compute((tiles, rows, count), lambda i, r, c: below(i, c, r), name=name)
        return te.compute((tiles, count, rows), below, name=name)

    node = None
    for level in range(bits):
        node = step(node, level)
    return node
