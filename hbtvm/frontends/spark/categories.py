"""Spark's ``StringIndexerModel`` and ``OneHotEncoderModel``."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.spark.cells import cell, handling
from hbtvm.frontends.transformers.dispatch import require_width
from hbtvm.frontends.transformers.typed import accepting, float64
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.kernel_input import Coded, resolve
from hbtvm.graph.columns.steps import Cast, Encode, Equals, Fill, Function, Lookup, Step, Within
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.networks.network import TableRows, computed_columns
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce

_NUMBER = re.compile(r"-?(\d+(\.\d+(E-?\d+)?)?|Infinity)|NaN")
"""Spark's text of an integer or a double."""

_BOOLS = {"true": True, "false": False}


def labels_of(record: Record, where: Where) -> list[str]:
    """Return the labels of the column that an indexer reads."""
    rows = record.sequence("data")
    name = "labelsArray" if rows and isinstance(rows[0], dict) and "labelsArray" in rows[0] else "labels"
    stored = cell(record, name, where)
    labels = stored[record.whole("at")] if name == "labelsArray" else stored
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise where.damaged("its labels are not strings.")
    if not labels or len({*labels}) != len(labels):
        raise where.damaged("it has no labels, or repeats some.")
    return labels


def string_indexer(record: Record, table: Table, where: Where) -> Table:
    """``StringIndexerModel``: the position of a text among labels; after the last for unknown texts."""
    unknown = handling(record, where)
    labels = labels_of(record, where)
    (column,) = table.columns
    if column.steps:
        # Spark would write the numbers of the earlier step as texts.
        raise where.unsupported("reads a column that another stage computes, which is not supported.")
    numbers = _numbers(labels)
    encoder = Encode((*labels, *numbers), "error" if unknown == "error" else "code", where.column(column))
    codes = np.arange(len(labels), dtype=np.float64)
    values = np.concatenate([codes, codes[: len(numbers)], [float(len(labels))]])
    steps: tuple[Step, ...] = (encoder, Lookup(values)) if numbers else (encoder,)
    return Table((column.then(*steps, Cast("float64")),))


def _numbers(labels: list[str]) -> list[Any]:
    """Return the numbers or bools of a column that Spark read as texts; empty if these are no such texts."""
    if all(label in _BOOLS for label in labels):
        return [_BOOLS[label] for label in labels]
    if not all(_NUMBER.fullmatch(label) for label in labels):
        return []
    numbers = [float(label.replace("Infinity", "inf")) for label in labels]
    return numbers if len({*map(repr, numbers)}) == len(numbers) else []


def one_hot(record: Record, table: Table, where: Where) -> Table:
    """``OneHotEncoderModel``: a column for each category; the last is dropped if ``dropLast``."""
    sizes = np.asarray(cell(record, "categorySizes", where))
    size = int(sizes[record.whole("at")])
    keeps = handling(record, where) == "keep"
    width = size + keeps - bool(record.get("dropLast", True))
    if width < 1:
        raise where.damaged(f"it has {width} columns.")
    require_width(width, where)
    (column,) = float64(table).columns
    form = resolve(column)
    if isinstance(form, Coded):
        positions = _positions(form.values, size, keeps)
        return Table(tuple(_of_codes(column, form, positions, i) for i in range(width)))
    last = float(np.nextafter(float(size), 0.0))
    steps: list[Step] = [Within(0.0, last), Function("floor")]
    if keeps:
        steps.append(Fill(float(size)))
    whole = column.then(*steps)
    result = Table(tuple(whole.then(Equals((i,))) for i in range(width)))
    return result if keeps else accepting(result, nan=False, inf=True)


def _positions(values: np.ndarray, size: int, keeps: bool) -> np.ndarray:
    """Return the position of each code's 1; NaN for codes that the encoder refuses."""
    valid = (values >= 0) & (values < size)
    return np.where(valid, np.floor(values), float(size) if keeps else np.nan)


def _of_codes(column: Column, form: Coded, positions: np.ndarray, i: int) -> Column:
    codes = np.flatnonzero(positions == i)
    encoder = form.prefix[-1]
    assert isinstance(encoder, Encode)
    occurring = positions[:-1] if encoder.unknown == "error" else positions
    bare = replace(column, steps=form.prefix)
    if not np.isnan(occurring).any():
        return bare.then(Equals(tuple(codes.tolist())), Cast("float64"))
    ones = np.where(np.isnan(positions), np.nan, (positions == i).astype(np.float64))
    return replace(bare.then(Lookup(ones), Cast("float64")), allow_nan=False)


def vector_indexer(record: Record, table: Table, where: Where) -> Table:
    """``VectorIndexerModel``: positions of numbers among categories, in some columns."""
    keeps = handling(record, where) == "keep"
    columns = list(float64(table).columns)
    for index, pairs in cell(record, "categoryMaps", where):
        numbers = {float(value): float(position) for value, position in pairs}
        columns[index] = _position(columns[index], numbers, keeps, where)
    return replace(table, columns=tuple(columns))


def _position(column: Column, numbers: dict[float, float], keeps: bool, where: Where) -> Column:
    """Return the position of a column's number; unknown numbers are errors, or behind the last."""
    unknown = float(len(numbers)) if keeps else math.nan
    form = resolve(column)
    if isinstance(form, Coded):
        codes = np.array([numbers.get(x, unknown) for x in form.values.tolist()])
        looked = replace(column, steps=form.prefix).then(Lookup(codes), Cast("float64"))
        return replace(looked, allow_nan=looked.allow_nan and not np.isnan(codes).any())
    if isinstance(column.source, Raw):
        encoder = Encode(tuple(numbers), "code" if keeps else "error", where.column(column))
        codes = np.array([*numbers.values(), float(len(numbers))])
        return column.then(encoder, Lookup(codes), Cast("float64"))
    rows = TableRows(Table((column,)), allow_nan=True, allow_inf=True)
    marks = apply("equal", rows, np.array(list(numbers)))
    position = Contract(marks, np.array(list(numbers.values()))[:, None]).checked()
    (result,) = computed_columns(apply("where", reduce("sum", marks), position, unknown))
    return replace(result, allow_nan=keeps)


def index_to_string(record: Record, table: Table, where: Where) -> Table:
    """Refuse an ``IndexToString`` that does not name the predictions of the last model."""
    raise where.unsupported("makes texts of other columns than the last model's prediction; not supported.")
