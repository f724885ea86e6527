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

from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.intrinsics.lookup import lookup
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


def rank_stage(workload: Workload, config: Config, columns: Any, table: Any, room: int) -> Any:
    """Return the expressions of the ranks of a row tile's columns.

    `columns`: tensor, shape (tiles, columns, row_tile).
    `table`: placeholder of `rank_table`.
    `room`: columns to pad the result to; a lookup by permutes reads whole registers.
    Returns tensor, int32, shape (tiles, row_tile, room).
    """
    tiles, rows = columns.shape[0], int(columns.shape[2])
    count = workload["numeric"] + workload["categorical"]
    bits = int(workload["rank_bits"])
    step = te.reduce_axis((0, bits), "step")

    def position(i: Any, c: Any, r: Any) -> Any:
        x = columns[i, c, r]

        def narrow(below: Any, size: Any) -> Any:
            # All lanes share one flat table, whether they are rows of one column or columns of one row.
            at = c * (2**bits) + below + size - 1
            above = lookup(table[0, 0], at, count * 2**bits, str(config["search_lookup"]))
            # The comparison is false for NaN, which therefore ranks highest.
            return below + tirx.Select(x <= above, tirx.const(0, "int32"), size)

        search = te.comm_reducer(narrow, lambda t: tirx.const(0, t), name="search")
        size = tirx.shift_left(tirx.const(1, "int32"), bits - 1 - step.var)
        # TVM finds the tensors that a reduction depends on only in its operand.
        return search(tirx.Select(x <= x, size, size), axis=step)

    positions = te.compute((tiles, count, rows), position, name="positions")
    return te.compute(
        (tiles, rows, room),
        lambda i, r, c: (
            tirx.if_then_else(c < count, positions[i, c, r], 0) if room > count else positions[i, c, r]
        ),
        name="ranks",
    )
