"""Encoders of category_encoders.

Most encoders first number the categories (1, 2, ...; -1 for unknown, -2 for missing values), and then look up
these codes in a series or a data frame. Both tables are joined here: from a category to its numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hbtvm.frontends.category_encoders.columns import Encoded, encoded, lumped
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.pandas_objects import frame, objects, series
from hbtvm.frontends.transformers.dispatch import apply
from hbtvm.frontends.transformers.encoders.tables import Coding, Numbers, category, is_missing, side_by_side
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table

_UNKNOWN, _MISSING = -1, -2
"""The codes of unknown and of missing values."""


def by_value(record: Record, table: Table, where: Where) -> Table:
    """Read an encoder with a number for each category (TargetEncoder, WOEEncoder, ...)."""
    codes, mappings = _codes(record.record("ordinal_encoder"), where), record.get("mapping")

    def read(label: Any) -> Encoded:
        index, values = series(mappings[label])
        rows = dict(zip(index, ((float(value),) for value in values), strict=True))
        return Encoded(_joined(record, codes[label], rows, (np.nan,)), (str(label),))

    return encoded(record, table, where, read)


def summary(record: Record, table: Table, where: Where) -> Table:
    """Read ``SummaryEncoder``: several quantiles of the target for each category."""
    parts = record.records("encoder_list")
    readers = [(part, _codes(part.record("ordinal_encoder"), where)) for part in parts]
    if not parts or record.get("drop_invariant"):
        raise where.unsupported("drops columns (drop_invariant), which is not supported; leave it False.")

    def read(label: Any) -> Encoded:
        codings = []
        for part, codes in readers:
            index, values = series(part.get("mapping")[label])
            rows = dict(zip(index, ((float(value),) for value in values), strict=True))
            codings.append(_joined(part, codes[label], rows, (np.nan,)))
        names = [f"{label}_{round(part.number('quantile') * 100)}" for part in parts]
        return Encoded(side_by_side(codings), names)

    return encoded(record, table, where, read)


def rank_hot(record: Record, table: Table, where: Where) -> Table:
    """Read ``RankHotEncoder``: a column for each category, 1 up to the row's."""
    codes = _codes(record.record("ordinal_encoder"), where)
    mappings = {part["col"]: part["mapping"] for part in record.sequence("mapping")}
    unknown, missing = record.get("handle_unknown"), record.get("handle_missing")

    def read(label: Any) -> Encoded:
        index, names, values = frame(mappings[label])
        rows: dict[Any, Numbers] = dict(zip(index, values.tolist(), strict=True))
        nothing = [np.nan if unknown == "return_nan" else 0.0] * len(names)
        known = {value: rows.get(code, nothing) for value, code in codes[label].items() if value is not None}
        absent: Numbers | None = rows.get(codes[label].get(None, _UNKNOWN), nothing)
        if missing == "return_nan":
            absent = [np.nan] * len(names)
        others = None if unknown == "error" else nothing
        return Encoded(Coding(known, None if missing == "error" else absent, others), names)

    return encoded(record, table, where, read)


def nested(record: Record, table: Table, where: Where) -> Table:
    """Read ``NestedCVWrapper``: for new rows, the encoder that all training rows fitted."""
    return apply(record.record("feature_encoder"), table, where)


def nested_encoder(record: Record, where: Where) -> list[Record]:
    """Return the encoder of a ``NestedCVWrapper``."""
    return [record.record("feature_encoder")]


def by_columns(record: Record, table: Table, where: Where) -> Table:
    """Read an encoder with several columns for each category (OneHotEncoder, BinaryEncoder, ...)."""
    codes = _codes(record.record("ordinal_encoder"), where)
    mappings = {part["col"]: part["mapping"] for part in record.sequence("mapping")}

    def read(label: Any) -> Encoded:
        if label not in mappings:
            raise where.unsupported(f"saw no category in column {label!r:.60}; leave it out of cols.")
        index, names, values = frame(mappings[label])
        rows = dict(zip(index, values.tolist(), strict=True))
        nothing = [np.nan] * len(names)
        return Encoded(_joined(record, codes[label], rows, nothing), [str(name) for name in names])

    return encoded(record, table, where, read)


def ordinal(record: Record, table: Table, where: Where) -> Table:
    """Read ``OrdinalEncoder``: a whole number for each category."""
    codes = _codes(record, where)
    unknown, missing = record.get("handle_unknown"), record.get("handle_missing")

    def read(label: Any) -> Encoded:
        known = codes[label]
        others = _chosen(unknown, float(_UNKNOWN), where)
        numbers: dict[Any, Numbers] = {}
        for value, code in known.items():
            number = float(code)
            if code == _MISSING and missing != "value":
                chosen = _chosen(missing, number, where)
                number = number if chosen is None else chosen[0]
            numbers[value] = (number,)
        absent = numbers.pop(None, others)
        return Encoded(Coding(numbers, None if missing == "error" else absent, others), (str(label),))

    return encoded(record, table, where, read)


def counts(record: Record, table: Table, where: Where) -> Table:
    """Read ``CountEncoder``: how often each category occurred."""
    groups = record.get("_min_group_categories", None) or {}

    def read(label: Any) -> Encoded:
        unknown, missing = record.get("_handle_unknown")[label], record.get("_handle_missing")[label]
        index, values = series(record.get("mapping")[label])
        pairs = [(category(value), (float(number),)) for value, number in zip(index, values, strict=True)]
        known: dict[Any, Numbers] = {value: number for value, number in pairs if not is_missing(value)}
        absent: Numbers = next((number for value, number in pairs if is_missing(value)), (np.nan,))
        others: Numbers | None = (np.nan,)
        if unknown == "error":
            others = None
        elif isinstance(unknown, int | np.integer):
            others = (float(unknown),)
        elif unknown == "value" and missing != "return_nan":
            others = (0.0,)
        coding = lumped(Coding(known, absent, others), groups.get(label) or {})
        if coding.missing is not None and np.isnan(coding.missing[0]):
            coding = Coding(coding.known, others, others)
        if record.get("handle_missing") == "error":
            coding = Coding(coding.known, None, others)
        return Encoded(coding, (str(label),))

    return encoded(record, table, where, read)


def leave_one_out(record: Record, table: Table, where: Where) -> Table:
    """Read ``LeaveOneOutEncoder``: the mean target of each category."""
    return _means(record, table, where, lambda total, count: total / count)


def catboost(record: Record, table: Table, where: Where) -> Table:
    """Read ``CatBoostEncoder``: the mean target of each category and of `a` rows of the mean."""
    mean, a = record.number("_mean"), record.number("a")
    return _means(record, table, where, lambda total, count: (total + mean * a) / (count + a))


def _means(
    record: Record, table: Table, where: Where, mean_of: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Table:
    mean, mappings = record.number("_mean"), record.get("mapping")
    unknown, missing = record.get("handle_unknown"), record.get("handle_missing")
    dtypes = dict(
        zip(record.sequence("feature_names_in_"), record.sequence("feature_dtypes_in_"), strict=True)
    )

    def read(label: Any) -> Encoded:
        if isinstance(dtypes[label], np.dtype) and dtypes[label].kind == "b":
            raise where.unsupported(
                f"was fitted on bools in column {label!r:.60}, which its library takes for unknown values; "
                "convert them to strings."
            )
        index, names, numbers = frame(mappings[label])
        if names != ["sum", "count"]:
            raise where.damaged("its mapping has no sums and counts.")
        total, count = numbers.T
        with np.errstate(all="ignore"):
            levels = np.where(count > 1, mean_of(total, count), mean).tolist()
        known: dict[Any, Numbers] = {}
        seen: Numbers | None = None
        for value, level in zip(map(category, index), levels, strict=True):
            if is_missing(value):
                seen = (level,)
            else:
                known[value] = (level,)
        others = {"value": (mean,), "error": None}.get(unknown, (np.nan,))
        # In an index of objects, pandas tells None and pandas.NA from the NaN that the encoder stored.
        foreign: Numbers | None = (mean,) if missing == "value" else (np.nan,)
        absent = foreign if seen is None or (objects(mappings[label]) and of_na(dtypes[label])) else seen
        if not objects(mappings[label]):
            foreign = absent
        if missing in ("error", "return_nan"):
            absent = foreign = None if missing == "error" else (np.nan,)
        return Encoded(Coding(known, absent, others, foreign), (str(label),))

    return encoded(record, table, where, read)


def of_na(dtype: Any) -> bool:
    """Return whether the missing value of a type is pandas.NA rather than NaN."""
    if not isinstance(dtype, Record) or dtype.kind != "StringDtype":
        return False
    return not any(isinstance(part, float) for part in dtype.args)


def _codes(ordinal_encoder: Record, where: Where) -> dict[Any, dict[Any, int]]:
    """Return the codes of categories by column; the key None stands for missing values."""
    result: dict[Any, dict[Any, int]] = {}
    for part in ordinal_encoder.sequence("mapping"):
        index, values = series(part["mapping"])
        codes: dict[Any, int] = {}
        for value, code in zip(map(category, index), values, strict=True):
            if not float(code).is_integer():
                raise where.unsupported("maps categories to fractions, which is not supported.")
            codes[None if is_missing(value) else value] = int(code)
        result[part["col"]] = codes
    return result


def _joined(
    record: Record, codes: Mapping[Any, int], rows: Mapping[Any, Numbers], nothing: Numbers
) -> Coding:
    """Return the numbers of each category's code; `nothing` for codes without numbers."""
    known = {value: rows.get(code, nothing) for value, code in codes.items() if value is not None}
    absent = codes.get(None, _UNKNOWN)
    return Coding(
        known,
        None if record.get("handle_missing") == "error" else rows.get(absent, nothing),
        None if record.get("handle_unknown") == "error" else rows.get(_UNKNOWN, nothing),
    )


def _chosen(choice: Any, value: float, where: Where) -> Numbers | None:
    """Return the number of a strategy: the value, NaN or a number; None for an error."""
    if choice in ("value", "error"):
        return (value,) if choice == "value" else None
    if choice == "return_nan":
        return (np.nan,)
    if isinstance(choice, int | float | np.number):
        return (float(choice),)
    raise where.unsupported(
        "calls a function for unknown or missing values, which is not supported; use a number."
    )
