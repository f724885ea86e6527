"""Spark's transformers of numbers: assembler, scalers, imputer, bins, selectors, projections.

Spark computes in float64, so each column of numbers is cast to it first.
"""

from __future__ import annotations

import math
from dataclasses import replace
from math import comb
from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import floats_of
from hbtvm.frontends.spark.cells import cell, floats, handling, of_column, parameter
from hbtvm.frontends.spark.parquet import vector
from hbtvm.frontends.transformers.dispatch import MOST_COLUMNS, require_width
from hbtvm.frontends.transformers.typed import accepting, float64
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.curves import Bins
from hbtvm.graph.columns.steps import Above, Arithmetic, Clip, Fill, Step, Within
from hbtvm.graph.columns.table import Raw, Table
from hbtvm.graph.networks.network import TableRows, computed_columns
from hbtvm.graph.refused_rows import INTEGERS, RefusedTypes
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract, Monomials
from hbtvm.operators.shapes import reduce
from hbtvm.operators.tables import Bucketize

_MOST_DEGREE = 64  # factors of a product; files may claim any number


def assembler(record: Record, table: Table, where: Where) -> Table:
    """``VectorAssembler``: columns side by side; NaN is refused, unless it is kept."""
    # Vectors among the inputs may hold NaN.
    scalars = record.get("scalars", ())
    wide = float64(table)
    if handling(record, where) == "keep":
        return wide
    refusing = accepting(wide, nan=False, inf=True).columns
    columns = zip(wide.columns, refusing, scalars, strict=True)
    return replace(wide, columns=tuple(strict if scalar else column for column, strict, scalar in columns))


def _each(table: Table, steps: list[list[Step]]) -> Table:
    """Return a table with further steps on each column."""
    wide = float64(table)
    columns = zip(wide.columns, steps, strict=True)
    return replace(wide, columns=tuple(column.then(*some) for column, some in columns))


def _scaled(table: Table, shift: np.ndarray | None, scale: np.ndarray | None) -> Table:
    steps: list[list[Step]] = [[] for _ in range(len(table))]
    for values, operation in ((shift, "subtract"), (scale, "multiply")):
        if values is not None:
            for some, value in zip(steps, values.tolist(), strict=True):
                some.append(Arithmetic(operation, value))  # type: ignore[arg-type]
    return _each(table, steps)


def _reciprocals(values: np.ndarray, of_zero: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.where(values == 0, of_zero, 1.0 / values)


def standard_scaler(record: Record, table: Table, where: Where) -> Table:
    """``StandardScalerModel``: constant columns become 0."""
    shift = floats(record, "mean", where, len(table)) if record.get("withMean", False) else None
    scale = floats(record, "std", where, len(table)) if record.get("withStd", True) else None
    return _scaled(table, shift, None if scale is None else _reciprocals(scale, 0.0))


def robust_scaler(record: Record, table: Table, where: Where) -> Table:
    """``RobustScalerModel``: constant columns become 0."""
    shift = floats(record, "median", where, len(table)) if record.get("withCentering", False) else None
    scale = floats(record, "range", where, len(table)) if record.get("withScaling", True) else None
    return _scaled(table, shift, None if scale is None else _reciprocals(scale, 0.0))


def max_abs_scaler(record: Record, table: Table, where: Where) -> Table:
    """``MaxAbsScalerModel``: columns of zeros stay."""
    return _scaled(table, None, _reciprocals(floats(record, "maxAbs", where, len(table)), 1.0))


def min_max_scaler(record: Record, table: Table, where: Where) -> Table:
    """``MinMaxScalerModel``: constant columns become the middle of the range."""
    least = floats(record, "originalMin", where, len(table))
    extent = floats(record, "originalMax", where, len(table)) - least
    low, high = record.number("min"), record.number("max")
    steps: list[list[Step]] = []
    for start, width in zip(least.tolist(), extent.tolist(), strict=True):
        if width == 0:
            steps.append([Clip((low + high) / 2, (low + high) / 2)])
        else:
            factor = (high - low) / width
            steps.append(
                [Arithmetic("subtract", start), Arithmetic("multiply", factor), Arithmetic("add", low)]
            )
    return _each(table, steps)


def _rows(table: Table, nan: bool = True) -> TableRows:
    return TableRows(float64(table), allow_nan=nan, allow_inf=True)


def normalizer(record: Record, table: Table, where: Where) -> Table:
    """``Normalizer``: each row divided by its p-norm; rows of zeros stay."""
    p = parameter(record.get("p"), "p", where)
    if not p >= 1:
        raise where.damaged(f"its p is {p}.")
    rows = _rows(table, nan=False)
    size = apply("absolute", rows)
    if p == 2:
        norm: Node = apply("sqrt", reduce("sum", apply("square", rows)))
    elif p == 1:
        norm = reduce("sum", size)
    elif math.isinf(p):
        norm = reduce("max", size)
    else:
        norm = apply("power", reduce("sum", apply("power", size, p)), 1.0 / p)
    result = apply("divide", rows, apply("where", norm, norm, 1.0))
    return Table(computed_columns(result))


def binarizer(record: Record, table: Table, where: Where) -> Table:
    """``Binarizer``: 1 above a threshold, else 0, also for NaN."""
    threshold = parameter(of_column(record, "threshold", where), "threshold", where)
    # NaN is not above; a step that fills says that rows may lack numbers.
    return _each(table, [[Fill(threshold), Above(threshold)]] * len(table))


def bucketizer(record: Record, table: Table, where: Where) -> Table:
    """``Bucketizer``, also of a ``QuantileDiscretizer``: the number of each value's bucket."""
    splits = of_column(record, "splits", where)
    if not isinstance(splits, list) or len(splits) < 3:
        raise where.damaged("its splits are not a list of at least three numbers.")
    edges = np.array([parameter(value, "splits", where) for value in splits])
    if not (edges[1:] > edges[:-1]).all():
        raise where.damaged("its splits do not ascend.")
    inner = edges[1:-1]
    if handling(record, where) == "error":
        result = _each(table, [[Within(float(edges[0]), float(edges[-1])), Bins(inner)]])
        return accepting(result, nan=False, inf=True)
    if np.isfinite(edges[[0, -1]]).any():
        raise where.unsupported(
            'keeps NaN (handleInvalid="keep") but refuses numbers outside of its splits, which is not '
            "supported; let the first and last split be infinite."
        )
    rows = _rows(table)
    # NaN is above all edges; its bucket is the one behind.
    return Table(computed_columns(apply("add", Bucketize(rows, inner[None, :]), apply("isnan", rows))))


def imputer(record: Record, table: Table, where: Where) -> Table:
    """``ImputerModel``: a number in place of missing ones."""
    name = record.text("column")
    surrogate = float(floats(record, name, where))
    missing = parameter(record.get("missingValue", "NaN"), "missingValue", where)
    result = _each(table, [[Fill(surrogate, missing)]])
    if missing != missing:
        return result
    # Nulls are missing in any case, but NaN is not: rows do not tell one from the other.
    source = table.columns[0].source
    if not surrogate.is_integer() and isinstance(source, Raw):
        # Spark casts the number to the column's type.
        where.rules.types_refused.append(RefusedTypes((source.index,), INTEGERS[1:], where.step))
    return accepting(result, nan=False, inf=True)


def pca(record: Record, table: Table, where: Where) -> Table:
    """``PCAModel``: a product with the components; nothing is centred."""
    weight = floats(record, "pc", where, len(table), None)
    return Table(computed_columns(Contract(_rows(table), weight).checked()))


def _selected(table: Table, indices: Any, where: Where) -> Table:
    if not indices or any(not isinstance(i, int) or not 0 <= i < len(table) for i in indices):
        raise where.damaged(f"it selects other columns than 0 to {len(table) - 1}.")
    return table.select(indices)


def slicer(record: Record, table: Table, where: Where) -> Table:
    """``VectorSlicer`` by indices."""
    if record.get("names", None):
        raise where.unsupported("slices by names, which is not supported; set its indices instead.")
    return _selected(table, record.sequence("indices"), where)


def selector(record: Record, table: Table, where: Where) -> Table:
    """``ChiSqSelectorModel`` and the other selectors."""
    chosen = cell(record, "selectedFeatures", where)
    return _selected(table, np.asarray(chosen).tolist(), where)


def elementwise(record: Record, table: Table, where: Where) -> Table:
    """``ElementwiseProduct``: a product with a vector."""
    return _scaled(table, None, floats_of(vector(record.get("scalingVec")), "scalingVec", where, len(table)))


def size_hint(record: Record, table: Table, where: Where) -> Table:
    """``VectorSizeHint``, which changes nothing."""
    if record.whole("size") != len(table):
        raise where.damaged(f"its size is {record.whole('size')}, but it gets {len(table)} columns.")
    return table


def polynomial(record: Record, table: Table, where: Where) -> Table:
    """``PolynomialExpansion``: products of columns; exponents of the last column rise slowest."""
    degree, width = record.whole("degree", 1), len(table)
    require_width(comb(width + degree, degree) if degree <= _MOST_DEGREE else MOST_COLUMNS + 1, where)
    terms: list[tuple[int, ...]] = [()]
    for column in range(width):
        terms = [
            (*(column,) * power, *term)
            for power in range(degree + 1)
            for term in terms
            if len(term) + power <= degree
        ]
    factors = np.full((len(terms) - 1, degree), width, np.int32)
    for i, term in enumerate(terms[1:]):
        factors[i, : len(term)] = term
    # Spark's products stop at 0, even where another factor is not finite.
    rows = TableRows(float64(table), allow_nan=False, allow_inf=False)
    return Table(computed_columns(Monomials(rows, factors).checked()))


def cosine_transform(record: Record, table: Table, where: Where) -> Table:
    """``DCT``: the orthonormal cosine transform of type II, or its inverse."""
    count = len(table)
    at = np.arange(count)
    weight = np.cos(np.pi * np.outer(at + 0.5, at) / count) * math.sqrt(2.0 / count)
    weight[:, 0] = 1.0 / math.sqrt(count)
    weight = np.ascontiguousarray(weight.T) if record.get("inverse", False) else weight
    return Table(computed_columns(Contract(_rows(table), weight).checked()))
