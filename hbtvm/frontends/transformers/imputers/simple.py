"""Imputers and indicators of missing values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.frontends.pickles import ObjectArray, Record
from hbtvm.frontends.transformers.dispatch import names_in
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.values import is_na, missing_of, scalar
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import NA, Cast, Fill, IsMissing, Missing, is_nan
from hbtvm.graph.columns.table import Table, side_by_side


def simple_imputer(record: Record, table: Table, where: Where) -> Table:
    """``SimpleImputer``: a training statistic in place of missing values, and maybe indicators behind."""
    values = statistics(record, len(table), where)
    missing = _missing(record, where)
    if missing == 0 and table.sparse:
        raise where.unsupported("takes zeros of a sparse matrix for missing, which scikit-learn refuses.")
    names = names_in(record, table)
    table = accepting(unified(table), nan=_takes_nan(missing))
    # Columns that were all missing in training are left out.
    kept = [
        i for i, value in enumerate(values) if record.get("keep_empty_features", False) or not is_nan(value)
    ]
    keeps = record.get("strategy", "mean") in ("most_frequent", "constant")
    numbers = _reads_numbers(record)
    columns = tuple(table.columns[i].then(Fill(values[i], missing, keeps, numbers)) for i in kept)
    filled = Table(columns, table.sparse, None if names is None else tuple(names[i] for i in kept))
    if not record.get("add_indicator", False):
        return filled
    known = Table(table.columns, table.sparse, names)
    marks = indicators(record.record("indicator_"), known, missing, where)
    both = None if filled.names is None or marks.names is None else filled.names + marks.names
    return side_by_side((filled, marks), table.sparse, both)


def missing_indicator(record: Record, table: Table, where: Where) -> Table:
    """``MissingIndicator``: marks of missing values, of all columns or those that lacked some in training."""
    missing = _missing(record, where)
    known = Table(accepting(table, nan=_takes_nan(missing)).columns, table.sparse, names_in(record, table))
    marks = indicators(record, known, missing, where)
    wide = Cast("float64")
    chosen = record.get("sparse", "auto")
    sparse = table.sparse if chosen == "auto" else bool(chosen)
    return replace(marks, columns=tuple(column.then(wide) for column in marks.columns), sparse=sparse)


def indicators(record: Record, table: Table, missing: Missing, where: Where) -> Table:
    """Return the marks of a fitted ``MissingIndicator``, which are bools in the library."""
    columns = record.array("features_", "iu", 1).tolist()
    if any(not 0 <= i < len(table) for i in columns):
        raise where.damaged("it marks a column that does not exist.")
    mark = IsMissing(missing, _reads_numbers(record))
    marks = tuple(table.columns[i].then(mark) for i in columns)
    names = None if table.names is None else tuple(f"missingindicator_{table.names[i]}" for i in columns)
    return Table(marks, table.sparse, names)


def _missing(record: Record, where: Where) -> Missing:
    missing = missing_of(record, where)
    # Among numbers alone, NaN is all that can be missing.
    return np.nan if missing is NA and _fitted_type(record) not in (None, "O") else missing


def _takes_nan(missing: Missing) -> bool:
    return missing is NA or is_nan(missing)


def _reads_numbers(record: Record) -> bool:
    return _fitted_type(record) not in (None, "O")


def _fitted_type(record: Record) -> str | None:
    """Return the kind of the training rows' type; None if unknown."""
    dtype = record.get("_fit_dtype", None)
    return dtype.kind if isinstance(dtype, np.dtype) else None


def statistics(record: Record, width: int, where: Where) -> list[Any]:
    """Return a fitted ``SimpleImputer``'s value for each column; NaN if training lacked all values."""
    stored = record.get("statistics_")
    items = (
        stored.items if isinstance(stored, ObjectArray) else record.array("statistics_", "biufU", 1).tolist()
    )
    if len(items) != width:
        raise where.damaged(f"statistics_ has {len(items)} values for {width} columns.")
    values = [np.nan if is_na(item) else scalar(item, f"a statistic of {where.step}") for item in items]
    kind = record.get("_fill_dtype", None) or record.get("_fit_dtype", None)
    if not isinstance(kind, np.dtype) or kind.kind not in "fiu":
        return values
    # Rounded as numpy stores them in an array of the type that the imputer was fitted on.
    return [value if is_nan(value) else kind.type(value).item() for value in values]
