"""``DatetimeFeatures``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from hbtvm.frontends.feature_engine.columns import Columns
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.dates import PARTS, DatePart, Dates
from hbtvm.graph.columns.steps import Cast
from hbtvm.graph.columns.table import Table

_NAMES = {"day_of_week": "weekday", "day_of_month": "day"}

_OF_MISSING = {
    **dict.fromkeys(("month_start", "month_end", "quarter_start", "quarter_end"), 0.0),
    **dict.fromkeys(("year_start", "year_end", "leap_year"), 0.0),
    "weekend": 1.0,
    "semester": 2.0,
}
"""The library's numbers for missing dates; NaN for other parts."""


def datetime_features(record: Record, table: Table, where: Where) -> Table:
    """Read ``DatetimeFeatures``: parts of dates behind all columns."""
    if record.get("variables", None) == "index":
        raise where.unsupported("reads the index of frames, which is not supported; make it a column.")
    columns = Columns(record, table, where)
    strict = record.get("missing_values", "raise") == "raise"
    form = record.get("format", None)
    if form is not None and not isinstance(form, str):
        raise where.damaged("its format is not a text.")
    dates = Dates(form, utc=bool(record.get("utc", None)))
    variables = columns.variables()
    for label in variables:
        for name in record.sequence("features_to_extract_"):
            part: Any = _NAMES.get(name, name)
            if part not in PARTS:
                raise where.damaged(f"it extracts {name!r:.40}.")
            # Numbers of weeks and days are whole numbers, which can't be missing.
            refuses = strict or part in ("week", "days_in_month")
            missing = math.nan if refuses else _OF_MISSING.get(part, math.nan)
            column = columns[label].then(dates, DatePart(part, missing), Cast("float64"))
            columns[f"{label}_{name}"] = replace(column, allow_nan=not refuses)
    if record.get("drop_original", True):
        columns.drop(variables)
    return columns.table()
