"""Transformers of numbers of feature-engine: imputers, cappers, bins, functions, selections."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from hbtvm.frontends.feature_engine.columns import Columns, each_variable, numbers_by_label
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import one_of
from hbtvm.frontends.transformers.encoders.tables import category
from hbtvm.frontends.transformers.values import scalar
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.curves import Bins, Power
from hbtvm.graph.columns.steps import (
    NA,
    Above,
    Arithmetic,
    Cast,
    Clip,
    Fill,
    Function,
    IsMissing,
    Within,
    ZeroIsMissing,
)
from hbtvm.graph.columns.table import Column, Table

_WIDE = Cast("float64")
_POSITIVE = Within(math.ulp(0.0), math.inf)

_POWERS = {1: "positive", 2: "square", 0.5: "sqrt", -1: "reciprocal"}
"""numpy's functions that equal its powers to the last bit."""


def imputer(record: Record, table: Table, where: Where) -> Table:
    """Read an imputer that has a value for each of its columns."""
    columns = Columns(record, table, where)
    for label, value in record.get("imputer_dict_").items():
        plain = scalar(value, f"a value of {where.step}")
        if plain is None:
            raise where.damaged("it fills missing values with None.")
        if plain == plain:
            columns[label] = columns[label].then(Fill(plain, NA))
    return columns.table()


def indicator(record: Record, table: Table, where: Where) -> Table:
    """Read ``AddMissingIndicator``: marks of missing values behind all columns."""
    columns = Columns(record, table, where)
    for label in columns.variables():
        columns[f"{label}_na"] = columns[label].then(IsMissing(NA), _WIDE)
    return columns.table()


def capper(record: Record, table: Table, where: Where) -> Table:
    """Read an outlier capper; marks of outliers may follow all columns."""
    columns = Columns(record, table, where)
    if record.get("missing_values") == "raise":
        columns.check_numbers()
    high = numbers_by_label(record, "right_tail_caps_", where)
    low = numbers_by_label(record, "left_tail_caps_", where)
    variables = columns.variables()
    raw = {label: columns[label] for label in variables}
    for label in {**high, **low}:
        if label in high:
            columns[label] = columns[label].then(Clip(-math.inf, high[label]))
        if label in low:
            columns[label] = columns[label].then(Clip(low[label], math.inf))
    if record.get("add_indicators", False):
        for label in variables:
            if label in low:
                below = Function("negative"), Above(-low[label]), _WIDE
                columns[f"{label}_left"] = raw[label].then(*below)
            if label in high:
                columns[f"{label}_right"] = raw[label].then(Above(high[label]), _WIDE)
    return columns.table()


def discretiser(record: Record, table: Table, where: Where) -> Table:
    """Read a discretiser that returns the numbers of bins; bins include their right ends."""
    returned = record.get("bin_output", "bin_number")
    if record.get("return_boundaries", False) or returned == "boundaries":
        raise where.unsupported("returns intervals as texts, which is not supported; return bin numbers.")
    if returned == "prediction":
        raise where.unsupported(
            'returns predictions of trees, which is not supported; fit it with bin_output="bin_number".'
        )
    columns = Columns(record, table, where)
    columns.check_numbers()
    refuses = record.get("errors", "ignore") == "raise"
    for label in columns.variables():
        edges = [float(edge) for edge in record.get("binner_dict_")[label]]
        if len(edges) < 2 or any(not a < b for a, b in pairwise(edges)):
            raise where.unsupported("has bins that are not intervals between ascending numbers.")
        column = columns[label]
        if math.isfinite(edges[0]) or math.isfinite(edges[-1]):
            # Values outside of all bins become NaN.
            within = Within(edges[0], edges[-1])
            column = Column(column.source, (*column.steps, _WIDE, within), not refuses, column.allow_inf)
        columns[label] = column.then(Bins(np.nextafter(np.array(edges[1:-1]), math.inf)), _WIDE)
    return columns.table()


def dropped(record: Record, table: Table, where: Where) -> Table:
    """Read a selection: all columns but those that it drops."""
    columns = Columns(record, table, where)
    columns.drop([category(label) for label in record.sequence("features_to_drop_")])
    if not len(columns.table()):
        raise where.damaged("it drops all columns.")
    return columns.table()


def _log(column: Column, label: Any, record: Record, where: Where) -> Column:
    base = Function("log" if one_of(record, "base", ("e", "10")) == "e" else "log10")
    constant = record.get("C_", 0)
    constant = constant.get(label) if isinstance(constant, dict) else constant
    number = scalar(constant, f"the constant of {where.step}")
    if not isinstance(number, int | float):
        raise where.damaged("its constant is not a number.")
    moved = (Arithmetic("add", float(number)),) if "C_" in record else ()
    return column.then(_WIDE, *moved, _POSITIVE, base)


def _power(column: Column, label: Any, record: Record, where: Where) -> Column:
    exponent = record.number("exp")
    if exponent not in _POWERS:
        raise where.unsupported(f"raises to the power {exponent:g}; supported are 0.5, 1, 2 and -1.")
    return column.then(_WIDE, Function(_POWERS[exponent]))


def _reciprocal(column: Column, label: Any, record: Record, where: Where) -> Column:
    finite = Within(-sys.float_info.max, sys.float_info.max)
    return column.then(_WIDE, ZeroIsMissing(), finite, Function("reciprocal"))


def _box_cox(column: Column, label: Any, record: Record, where: Where) -> Column:
    exponent = numbers_by_label(record, "lambda_dict_", where)[label]
    return column.then(_POSITIVE, Power("box-cox", exponent))


def _yeo_johnson(column: Column, label: Any, record: Record, where: Where) -> Column:
    return column.then(Power("yeo-johnson", numbers_by_label(record, "lambda_dict_", where)[label]))


def _arcsin(column: Column, label: Any, record: Record, where: Where) -> Column:
    return column.then(_WIDE, Within(0.0, 1.0), Function("sqrt"), Function("arcsin"))


def _arcsinh(column: Column, label: Any, record: Record, where: Where) -> Column:
    shift = Arithmetic("subtract", record.number("loc"))
    return column.then(_WIDE, shift, Arithmetic("divide", record.number("scale")), Function("arcsinh"))


def _mean(column: Column, label: Any, record: Record, where: Where) -> Column:
    shift = Arithmetic("subtract", numbers_by_label(record, "mean_", where)[label])
    return column.then(_WIDE, shift, Arithmetic("divide", numbers_by_label(record, "range_", where)[label]))


def cyclical(record: Record, table: Table, where: Where) -> Table:
    """Read ``CyclicalFeatures``: sine and cosine of each column, behind all columns."""
    columns = Columns(record, table, where)
    columns.check_numbers()
    highest = numbers_by_label(record, "max_values_", where)
    for label in columns.variables():
        angle = Arithmetic("multiply", 2.0 * math.pi / highest[label])
        for name in ("sin", "cos"):
            columns[f"{label}_{name}"] = columns[label].then(_WIDE, angle, Function(name))
    if record.get("drop_original", False):
        columns.drop(columns.variables())
    return columns.table()


Reader = Callable[[Record, Table, Where], Table]

log: Reader = each_variable(_log)
power: Reader = each_variable(_power)
reciprocal: Reader = each_variable(_reciprocal)
box_cox: Reader = each_variable(_box_cox)
yeo_johnson: Reader = each_variable(_yeo_johnson)
arcsin: Reader = each_variable(_arcsin)
arcsinh: Reader = each_variable(_arcsinh)
mean_normalization: Reader = each_variable(_mean)
