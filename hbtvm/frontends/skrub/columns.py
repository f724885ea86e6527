"""Steps of skrub: each reads a single column; ``ApplyToEachCol`` applies them to columns of a frame."""

from __future__ import annotations

import math
from typing import Any

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.containers import pipeline
from hbtvm.frontends.transformers.dispatch import apply, names_in
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.dates import PARTS, DatePart, Dates
from hbtvm.graph.columns.steps import Arithmetic, Cast, Fill, Function, is_nan
from hbtvm.graph.columns.table import Column, Table

_BLANKS = [" " * count for count in range(1, 9)]
"""Texts of blanks alone count as missing."""


def pipeline_of(record: Record, where: Where) -> list[Record]:
    """Return the pipeline of a ``TableVectorizer``."""
    if "_pipeline" not in record:
        raise where.of(record).unsupported("is not fitted; hbtvm compiles trained models.")
    return [record.record("_pipeline")]


def table_vectorizer(record: Record, table: Table, where: Where) -> Table:
    """Read ``TableVectorizer``: its pipeline of steps for single columns."""
    steps = pipeline_of(record, where)[0]
    parts = [part[1] for part in steps.sequence("steps") if isinstance(part, tuple) and len(part) == 2]
    each = [part for part in parts if isinstance(part, Record) and part.kind == "ApplyToEachCol"]
    converted = {name for part in each if _is_of(part, "CleanCategories") for name in _by_column(part)}
    for part in each:
        for name, estimator in _by_column(part).items():
            if name in converted and _has_numbers(estimator):
                raise where.unsupported(
                    f"turns numbers in column {name!r:.60} into texts; convert them to strings before."
                )
    return pipeline(steps, table, where)


def same(record: Record, table: Table, where: Where) -> Table:
    """Read a step that changes no value that hbtvm reads."""
    return table


def dropped(record: Record, table: Table, where: Where) -> Table:
    """Read ``Drop`` and ``DropUninformative``: no column, or the column."""
    drops = record.kind == "Drop" or record.get("drop_")
    return table.select([]) if drops else table


def each_column(record: Record, table: Table, where: Where) -> Table:
    """Read ``ApplyToEachCol``: columns replaced by those that their transformers return."""
    transformers, names = _by_column(record), names_in(record, table)
    if names is None:
        raise where.damaged("its columns have no names.")
    columns: list[Column] = []
    for i, name in enumerate(names):
        column = table.select([i])
        if name in transformers:
            if record.get("keep_original", False):
                columns += column.columns
            column = Table(column.columns, False, (name,))
            column = apply(transformers[name], column, where.child(name))
        columns += column.columns
    outputs = tuple(map(str, record.sequence("all_outputs_")))
    if len(outputs) != len(columns):
        raise where.damaged(f"it has names of {len(outputs)} columns, but makes {len(columns)}.")
    return Table(tuple(columns), False, outputs)


def to_columns(record: Record, table: Table, where: Where) -> Table:
    """Read ``ApplyToCols``: each column by itself, or all together."""
    return apply(wrapped(record, where)[0], table, where)


def wrapped(record: Record, where: Where) -> list[Record]:
    """Return the ``ApplyToEachCol`` or ``ApplyToSubFrame`` of an ``ApplyToCols``."""
    if "_wrapped_transformer" not in record:
        raise where.of(record).unsupported("is not fitted; hbtvm compiles trained models.")
    return [record.record("_wrapped_transformer")]


def together(record: Record, table: Table, where: Where) -> Table:
    """Read ``ApplyToSubFrame``: some columns, replaced by what their transformer returns."""
    inside, names = _places(record, "_columns", table, where), names_in(record, table)
    kept = record.get("keep_original", False)
    others = [i for i in range(len(table)) if kept or i not in inside]
    parts = [table.select(others)] if others else []
    if inside:
        assert names is not None
        rows = Table(table.select(inside).columns, False, tuple(names[i] for i in inside))
        parts.append(apply(record.record("transformer_"), rows, where.child("transformer_")))
    columns = tuple(column for part in parts for column in part.columns)
    outputs = tuple(map(str, record.sequence("all_outputs_")))
    if len(outputs) != len(columns):
        raise where.damaged(f"it has names of {len(outputs)} columns, but makes {len(columns)}.")
    return Table(columns, False, outputs)


def chosen(record: Record, table: Table, where: Where) -> Table:
    """Read ``SelectCols`` and ``DropCols``: some columns."""
    return table.select(
        _places(record, "columns_" if record.kind == "SelectCols" else "kept_cols_", table, where)
    )


def _places(record: Record, name: str, table: Table, where: Where) -> list[int]:
    """Return the positions of columns that an attribute names."""
    names = names_in(record, table)
    if names is None:
        raise where.damaged("its columns have no names.")
    return [names.index(label) for label in record.sequence(name)]


def null_strings(record: Record, table: Table, where: Where) -> Table:
    """Read ``CleanNullStrings``: texts that stand for missing values become missing."""
    texts = record.sequence("null_strings_")
    if not all(isinstance(text, str) for text in texts):
        raise where.damaged("its null strings are not texts.")
    fills = [Fill(math.nan, text) for text in dict.fromkeys([*texts, *_BLANKS])]
    return Table(tuple(column.then(*fills) for column in table.columns), False, table.names)


def to_float(record: Record, table: Table, where: Where) -> Table:
    """Read ``ToFloat``: float32 numbers."""
    if any(map(_cleaned, table.columns)):
        raise where.unsupported("parses texts as numbers, which is not supported; convert them before.")
    narrow = Cast("float32")
    return Table(tuple(column.then(narrow) for column in table.columns), False, table.names)


def to_datetime(record: Record, table: Table, where: Where) -> Table:
    """Read ``ToDatetime``: dates, read from texts of a format if the training data had texts."""
    if record.get("output_time_zone_") is not None:
        raise where.unsupported("was fitted on dates with a time zone, which is not supported.")
    form = record.get("format_")
    if form is not None and not isinstance(form, str):
        raise where.damaged("its format is not a text.")
    dates = Dates(form, coerce=True, utc=True, unit="ns")
    # Texts of missing values are not in the format, so they are missing without a step.
    columns = (Column(column.source) if _cleaned(column) else column for column in table.columns)
    return Table(tuple(column.then(dates) for column in columns), False, table.names)


def datetime_encoder(record: Record, table: Table, where: Where) -> Table:
    """Read ``DatetimeEncoder``: parts of dates in float32, or their sines and cosines."""
    if len(table) != 1:
        raise where.damaged(f"it takes one column of dates, but gets {len(table)}.")
    periods, periodic = record.get("_periodic_encoders"), list[Column]()
    if not isinstance(periods, dict):
        raise where.damaged("its periodic encoders are not a dictionary.")
    plain: list[Column] = []
    for name in record.sequence("extracted_features_"):
        if name not in PARTS:
            raise where.damaged(f"it extracts {name!r:.40}.")
        part: Any = DatePart(name)
        column = _dates(table.columns[0], name).then(part)
        if name == "weekday":
            column = column.then(Arithmetic("add", 1.0))
        if name not in periods:
            plain.append(column.then(Cast("float32")))
            continue
        encoder = periods[name]
        if not isinstance(encoder, Record) or encoder.kind != "_CircularEncoder":
            raise where.unsupported(
                'makes splines, which is not supported; use periodic_encoding="circular".'
            )
        turn = [
            Arithmetic("divide", encoder.number("period")),
            Arithmetic("multiply", 2.0),
            Arithmetic("multiply", math.pi),
        ]
        angle = column.then(Cast("float64"), *turn)
        periodic += (angle.then(Function("sin")), angle.then(Function("cos")))
    columns = (*plain, *periodic)
    outputs = tuple(map(str, record.sequence("all_outputs_")))
    return Table(columns, False, outputs if len(outputs) == len(columns) else None)


def _dates(column: Column, part: str) -> Column:
    if column.steps and isinstance(column.steps[-1], Dates):
        return column
    # By itself, the encoder reads parts in local time, but seconds since 1970 in Greenwich.
    return column.then(Dates(utc=part == "total_seconds", unit="ns"))


def _cleaned(column: Column) -> bool:
    """Return whether a column has texts: it passed ``CleanNullStrings``, and no encoder."""
    return column.encoder is None and any(
        isinstance(step, Fill) and is_nan(step.value) for step in column.steps
    )


def _is_of(record: Record, kind: str) -> bool:
    inner = record.get("transformer", None)
    return isinstance(inner, Record) and inner.kind == kind


def _by_column(record: Record) -> dict[str, Record]:
    """Return the fitted transformers of an ``ApplyToEachCol``, by column."""
    transformers = record.get("transformers_")
    if not isinstance(transformers, dict):
        return {}
    return {name: part for name, part in transformers.items() if isinstance(part, Record)}


def _has_numbers(encoder: Record) -> bool:
    """Return whether an encoder has texts of numbers among its categories."""
    if "categories_" not in encoder:
        return False
    return any(_is_number(value) for values in encoder.sequence("categories_") for value in _items(values))


def _items(values: Any) -> list[Any]:
    return list(getattr(values, "items", values))


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, str) and float(value) == float(value)
    except ValueError:
        return value in ("True", "False")
