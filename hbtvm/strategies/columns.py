"""Tensor expressions for the columns of a row tile (see `forest`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.strategies.forest import Forest


@dataclass(frozen=True)
class ColumnStage:
    """The tensors of the stage that turns a row tile into columns.

    Attributes
    ----------
    rows
        Placeholder, shape (tiles, row_tile, n_features): the input.
    tables
        Placeholders of the stage's tables, in argument order.
    columns
        Computed, shape (tiles, room, row_tile): C + K columns, and zeros behind them.
    """

    rows: Any
    tables: tuple[Any, ...]
    columns: Any


def column_tables(forest: Forest) -> dict[str, np.ndarray]:
    """The stage's tables by name, in argument order."""
    tables = {"column_feature": forest.column_feature}
    if forest.fills_missing or forest.zeros_missing:
        tables["column_fill"] = forest.column_fill
    if forest.zeros_missing:
        tables["column_zero"] = forest.column_zero
    if len(forest.category_feature):
        tables["category_feature"] = forest.category_feature
        tables["category_bits"] = forest.category_bits
    return tables


def column_stage(workload: dict[str, Any], tiles: Any, row_tile: int, room: int = 0) -> ColumnStage:
    """Express the columns of `tiles` tiles of `row_tile` rows.

    Parameters
    ----------
    workload
        The shapes (see `base.workload_of`).
    tiles
        Symbolic number of row tiles.
    row_tile
        Rows in a tile.
    room
        Columns to make room for, if more than there are: a lookup by permutes reads whole registers.
    """
    dtype, numeric, categorical = workload["dtype"], workload["numeric"], workload["categorical"]
    rows = te.placeholder((tiles, row_tile, workload["features"]), dtype, name="rows")
    feature = te.placeholder((numeric,), "int32", name="column_feature")
    tables = [feature]
    value = _numeric_value(workload, rows, feature, tables)

    def stage(count: int, column: Callable[..., Any]) -> ColumnStage:
        zero = tirx.const(0, dtype)
        columns = te.compute(
            (tiles, max(count, room), row_tile),
            lambda i, c, r: (
                tirx.if_then_else(c < count, column(i, c, r), zero) if room > count else column(i, c, r)
            ),
            name="columns",
        )
        return ColumnStage(rows, tuple(tables), columns)

    if not categorical:
        return stage(numeric, value)

    cat_feature = te.placeholder((categorical,), "int32", name="category_feature")
    bits = te.placeholder((categorical, workload["category_words"]), "int32", name="category_bits")
    tables += [cat_feature, bits]
    size = tirx.const(float(workload["category_size"]), dtype)

    def goes_right(i: Any, k: Any, r: Any) -> Any:
        x = rows[i, r, cat_feature[k]]
        above = (
            x > tirx.const(-1.0, dtype)
            if workload["negative_fraction_is_zero"]
            else x >= tirx.const(0.0, dtype)
        )
        inside = tirx.all(above, x < size)
        bit = tirx.Select(inside, x, tirx.Select(tirx.isnan(x), size + tirx.const(1.0, dtype), size)).astype(
            "int32"
        )
        return ((bits[k, bit >> 5] >> (bit & 31)) & 1).astype(dtype)

    # The condition is the same for a whole vector of rows, so the branch is never taken apart.
    return stage(
        numeric + categorical,
        lambda i, c, r: tirx.if_then_else(c < numeric, value(i, c, r), goes_right(i, c - numeric, r)),
    )


def _numeric_value(
    workload: dict[str, Any], rows: Any, feature: Any, tables: list[Any]
) -> Callable[..., Any]:
    dtype, numeric = workload["dtype"], workload["numeric"]
    if not (workload["fills_missing"] or workload["zeros_missing"]):
        return lambda i, c, r: rows[i, r, feature[c]]
    fill = te.placeholder((numeric,), dtype, name="column_fill")
    tables.append(fill)
    if not workload["zeros_missing"]:

        def filled(i: Any, c: Any, r: Any) -> Any:
            x = rows[i, r, feature[c]]
            return tirx.Select(tirx.isnan(x), fill[c], x)

        return filled
    zero = te.placeholder((numeric,), dtype, name="column_zero")
    tables.append(zero)

    def filled_zero(i: Any, c: Any, r: Any) -> Any:
        x = rows[i, r, feature[c]]
        missing = tirx.any(tirx.isnan(x), tirx.all(x <= zero[c], x >= tirx.const(0, dtype) - zero[c]))
        return tirx.Select(missing, fill[c], x)

    return filled_zero
