"""Encoders of feature-engine."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hbtvm.frontends.feature_engine.columns import Columns
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.dispatch import require_width
from hbtvm.frontends.transformers.encoders.rare import Rare
from hbtvm.frontends.transformers.encoders.tables import Coding, Numbers, category, coded, is_missing
from hbtvm.frontends.transformers.values import scalar
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table


def by_value(record: Record, table: Table, where: Where) -> Table:
    """Read an encoder with a number for each category (MeanEncoder, OrdinalEncoder, ...)."""
    columns = Columns(record, table, where)
    unseen, missing = record.get("unseen", "ignore"), record.get("missing_values", "raise")
    unknown: Numbers | None = (math.nan,)
    if unseen == "encode":
        unknown = (record.number("_unseen"),)
    elif unseen == "raise":
        unknown = None
    for label, numbers in record.get("encoder_dict_").items():
        known: dict[object, Numbers] = {}
        absent = unknown
        for value, number in numbers.items():
            if math.isnan(number):  # as if it were unknown
                continue
            if is_missing(category(value)):
                absent = (float(number),)
            else:
                known[category(value)] = (float(number),)
        coding = Coding(known, None if missing == "raise" else absent, unknown)
        columns[label] = coded(columns[label], coding, where)[0]
    return columns.table()


def rare(record: Record, table: Table, where: Where) -> Table:
    """Read ``RareLabelEncoder``: rare categories become a single value, which the next encoder reads."""
    columns = Columns(record, table, where)
    value = scalar(record.get("replace_with"), f"the replace_with of {where.step}")
    for label, kept in record.get("encoder_dict_").items():
        column = columns[label]
        values, takes = tuple(map(category, kept)), record.get("missing_values") == "ignore"
        columns[label] = column.then(Rare(values, value, takes, where.column(column), where.step))
    return columns.table()


def one_hot(record: Record, table: Table, where: Where) -> Table:
    """Read ``OneHotEncoder``: a column of marks for each category, behind all others."""
    columns, stored = Columns(record, table, where), record.get("encoder_dict_")
    if not isinstance(stored, Mapping):
        raise where.damaged("its encoder_dict_ is not a dictionary.")
    variables, count = columns.variables(), 0
    for label in variables:
        values = [category(value) for value in stored[label]]
        count += len(values)
        require_width(count, where)
        if not values:
            continue
        hot: dict[object, Numbers] = {
            value: [float(i == at) for i in range(len(values))] for at, value in enumerate(values)
        }
        marks = coded(columns[label], Coding(hot, None, [0.0] * len(values)), where)
        for value, mark in zip(stored[label], marks, strict=True):
            columns[f"{label}_{value}"] = mark
    columns.drop(variables)
    return columns.table()
