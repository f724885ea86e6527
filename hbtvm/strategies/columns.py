"""Tensor expressions for the columns of a row tile (see `hbtvm.strategies.trees.forest`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.graph.trees.prologue import OPERATIONS
from hbtvm.runtime.package.signature import Argument, Extent, table
from hbtvm.schedules.cpu.steps import TRANSPOSED, columns_are_features
from hbtvm.schedules.workload import Workload, prologue_of, row_dtype_of
from hbtvm.strategies.intrinsics.exact import exact
from hbtvm.strategies.once import once
from hbtvm.strategies.trees.forest import Forest


@dataclass(frozen=True)
class ColumnStage:
    """Tensors of the stage that computes the columns of a row tile."""

    rows: Any  # placeholder, shape (tiles, row_tile, n_features): the input
    tables: tuple[Any, ...]  # placeholders of the stage's tables, in argument order
    # Computed, shape (tiles, room, row_tile): C + K columns, then padding. (`row_stage` has another order.)
    columns: Any


_CONSTANTS = {
    "subtract": "column_shift",
    "divide": "column_divisor",
    "multiply": "column_factor",
    "add": "column_offset",
}
"""Tables of a prologue's constants, by operation, in order."""


def column_arguments(workload: Workload) -> tuple[Argument, ...]:
    """Return the stage's tables as kernel arguments, in order."""
    numeric, categorical, dtype = workload["numeric"], workload["categorical"], workload["dtype"]
    features = workload["features"]
    arguments = []
    if not columns_are_features(workload):
        arguments.append(table("column_feature", "int32", (numeric,), "index", below=features))
    for operation in prologue_of(workload) or ():
        arguments.append(table(_CONSTANTS[operation], "float64", (numeric,)))
    if workload["fills_missing"] or workload["zeros_missing"]:
        arguments.append(table("column_fill", dtype, (numeric,)))
    if workload["zeros_missing"]:
        arguments.append(table("column_zero", dtype, (numeric,)))
    if categorical:
        arguments.append(table("category_feature", "int32", (categorical,), "index", below=features))
        arguments.append(table("category_bits", "int32", (categorical, workload["category_words"])))
    return tuple(arguments)


def placeholder(argument: Argument, extents: Mapping[str, Any] | None = None) -> Any:
    """Return the placeholder of an argument; `extents` maps names in its shape to their sizes."""

    def size(extent: Extent) -> Any:
        return (extents or {}).get(extent) if isinstance(extent, str) else extent

    return te.placeholder(list(map(size, argument.shape)), argument.dtype, name=argument.name)


def column_tables(forest: Forest) -> dict[str, np.ndarray]:
    """Return the stage's tables by name, in argument order."""
    tables = {} if forest.columns_are_features else {"column_feature": forest.column_feature}
    if forest.prologue is not None:
        for operation in forest.prologue.operations:
            at = OPERATIONS.index(operation)
            tables[_CONSTANTS[operation]] = np.ascontiguousarray(forest.prologue.constants[at])
    if forest.fills_missing or forest.zeros_missing:
        tables["column_fill"] = forest.column_fill
    if forest.zeros_missing:
        tables["column_zero"] = forest.column_zero
    if len(forest.category_feature):
        tables["category_feature"] = forest.category_feature
        tables["category_bits"] = forest.category_bits
    return tables


def column_stage(
    workload: Workload,
    tiles: Any,
    row_tile: int,
    room: int = 0,
    block: int = 0,
    padding: float = 0.0,
    in_place: bool = False,
) -> ColumnStage:
    """Return the expressions of the columns of `tiles` tiles of `row_tile` rows.

    `workload`: the shapes (see `base.workload_of`).
    `tiles`: symbolic number of row tiles.
    `row_tile`: rows in a tile.
    `room`: number of columns to pad to: a lookup by permutes reads whole registers.
    `block`: if not 0, the tile is first transposed in blocks of this many rows and features
        (`hbtvm.compiler.lowering.block_transpose`), and columns are read from the transpose.
    `padding`: value of the padding columns.
    `in_place`: whether readers compute the columns, categories among them, from features that are read once
        (see `hbtvm.strategies.once`).
    """
    count = workload["numeric"] + workload["categorical"]
    if block and room <= count and _as_they_are(workload):
        rows = _rows(workload, tiles, row_tile)
        return ColumnStage(rows, (), transposed_tile(rows, block, "columns"))
    rows, tables, column = _stage(workload, tiles, row_tile, block, in_place)
    filler = tirx.const(padding, workload["dtype"])
    columns = te.compute(
        (tiles, max(count, room), row_tile),
        lambda i, c, r: (
            tirx.if_then_else(c < count, column(i, c, r), filler) if room > count else column(i, c, r)
        ),
        name="columns",
    )
    return ColumnStage(rows, tuple(tables), columns)


def row_stage(workload: Workload, tiles: Any, row_tile: int) -> ColumnStage:
    """Return the columns by rows: shape (tiles, row_tile, C + K + 1), the last column always -inf."""
    count, dtype = workload["numeric"] + workload["categorical"], workload["dtype"]
    rows, tables, column = _stage(workload, tiles, row_tile)
    lowest = tirx.const(-np.inf, dtype)
    columns = te.compute(
        (tiles, row_tile, count + 1),
        lambda i, r, c: tirx.if_then_else(c < count, column(i, c, r), lowest),
        name="columns",
    )
    return ColumnStage(rows, tuple(tables), columns)


def _stage(
    workload: Workload, tiles: Any, row_tile: int, block: int = 0, in_place: bool = False
) -> tuple[Any, list[Any], Callable[..., Any]]:
    """Return the rows, the stage's tables, and a function from (i, c, r) to column c of row r of tile i."""
    dtype, numeric, categorical = workload["dtype"], workload["numeric"], workload["categorical"]
    rows = _rows(workload, tiles, row_tile)
    inputs = {argument.name: placeholder(argument) for argument in column_arguments(workload)}
    tables = list(inputs.values())
    if block:
        transposed = _transposed(rows, block, "transposed")

    def read(i: Any, r: Any, f: Any) -> Any:
        return transposed[i, f, r] if block else rows[i, r, f]

    feature, value = inputs.get("column_feature"), _numeric_value(workload, inputs)

    def numeric_feature(c: Any) -> Any:
        return c if feature is None else feature[c]

    def numeric_column(i: Any, c: Any, r: Any) -> Any:
        return value(read(i, r, numeric_feature(c)), c)

    if not categorical:
        return rows, tables, numeric_column

    cat_feature, bits = inputs["category_feature"], inputs["category_bits"]
    row_dtype = row_dtype_of(workload)
    size = tirx.const(float(workload["category_size"]), row_dtype)

    def goes_right(x: Any, k: Any) -> Any:
        above = (
            x > tirx.const(-1.0, row_dtype)
            if workload["negative_fraction_is_zero"]
            else x >= tirx.const(0.0, row_dtype)
        )
        inside = tirx.all(above, x < size)
        outside = tirx.Select(_known(x, row_dtype), size, size + tirx.const(1.0, row_dtype))
        bit = tirx.Select(inside, x, outside).astype("int32")
        return ((bits[k, bit >> 5] >> (bit & 31)) & 1).astype(dtype)

    def column(i: Any, c: Any, r: Any) -> Any:
        # The condition is the same for a whole vector of rows, so the branch does not scalarize it.
        if not in_place:
            category = read(i, r, cat_feature[c - numeric])
            return tirx.if_then_else(c < numeric, numeric_column(i, c, r), goes_right(category, c - numeric))
        feature_index = tirx.if_then_else(c < numeric, numeric_feature(c), cat_feature[c - numeric])
        return once(
            read(i, r, feature_index),
            lambda x: tirx.if_then_else(c < numeric, value(x, c), goes_right(x, c - numeric)),
        )

    return rows, tables, column


def _rows(workload: Workload, tiles: Any, row_tile: int) -> Any:
    return te.placeholder((tiles, row_tile, workload["features"]), row_dtype_of(workload), name="rows")


def _as_they_are(workload: Workload) -> bool:
    """Return whether the columns are the features, with their values unchanged."""
    changed = workload["fills_missing"] or workload["zeros_missing"] or workload["categorical"]
    return columns_are_features(workload) and not changed and prologue_of(workload) is None


def transposed_tile(rows: Any, block: int, name: str) -> Any:
    """Return rows by columns, shape (tiles, room, row_tile), as `schedules.cpu` transposes them in blocks."""
    return _transposed(rows, block, name, {TRANSPOSED: 1})


def _transposed(rows: Any, block: int, name: str, annotations: dict[str, int] | None = None) -> Any:
    """Return the tile's transpose, padded with features of 0 to whole blocks."""
    tiles, row_tile, features = rows.shape
    features = int(features)
    room = -(-features // block) * block
    zero = tirx.const(0, rows.dtype)

    def feature(i: Any, f: Any, r: Any) -> Any:
        return tirx.if_then_else(f < features, rows[i, r, f], zero) if room > features else rows[i, r, f]

    return te.compute((tiles, room, row_tile), feature, name=name, attrs=annotations)


def _known(x: Any, dtype: str) -> Any:
    """Return whether a value is not NaN; TVM's test for NaN would scalarize vectors."""
    return x >= tirx.const(-np.inf, dtype)


def _applied(operation: str, x: Any, constant: Any) -> Any:
    """Return one of a prologue's operations, rounded separately."""
    if operation == "subtract":
        return x - constant
    if operation == "divide":
        return tirx.div(x, constant)
    return exact(x * constant) if operation == "multiply" else x + constant


def _numeric_value(workload: Workload, tables: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function from (x, c) to numeric column c of feature value x."""
    dtype, operations = workload["dtype"], prologue_of(workload)

    def raw(x: Any, c: Any) -> Any:
        if operations is None:
            return x
        for operation in operations:
            x = _applied(operation, x, tables[_CONSTANTS[operation]][c])
        return x.astype(dtype)

    if not (workload["fills_missing"] or workload["zeros_missing"]):
        return raw
    fill = tables["column_fill"]
    if not workload["zeros_missing"]:

        def filled(x: Any, c: Any) -> Any:
            x = raw(x, c)
            return tirx.Select(_known(x, dtype), x, fill[c])

        return filled
    zero = tables["column_zero"]

    def filled_zero(x: Any, c: Any) -> Any:
        x = raw(x, c)
        no_zero = tirx.any(x > zero[c], x < tirx.const(0, dtype) - zero[c])  # nor NaN
        return tirx.Select(no_zero, x, fill[c])

    return filled_zero
