"""Scalers and binarizers of single columns, and norms of whole rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import one_of
from hbtvm.frontends.transformers.dispatch import names_in
from hbtvm.frontends.transformers.texts import normalized
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.row_operations import Normalize
from hbtvm.graph.columns.steps import Above, Arithmetic, Clip, Step
from hbtvm.graph.columns.table import Column, Made, Table

Operation = Literal["subtract", "divide", "multiply", "add"]


def standard(record: Record, table: Table, where: Where) -> Table:
    """``StandardScaler``: minus the mean, then divided by the scale, each rounded."""
    # Since scikit-learn 1.8 the constants are rounded to the rows' type first.
    cast = record.version() >= (1, 8)
    changes = []
    if record.get("with_mean", True):
        where.refuse_sparse(table, "cannot centre sparse rows in scikit-learn")
        changes.append(_arithmetic(record, "mean_", "subtract", len(table), where, cast))
    if record.get("with_std", True):
        changes.append(_scale(record, table, where, cast))
    return _one_to_one(record, table, changes)


def robust(record: Record, table: Table, where: Where) -> Table:
    """``RobustScaler``: minus the median, then divided by the range of quantiles."""
    changes = []
    # scikit-learn never centres sparse rows.
    if record.get("with_centering", True) and not table.sparse:
        where.refuse_sparse(table, "does not centre sparse rows in scikit-learn")
        changes.append(_arithmetic(record, "center_", "subtract", len(table), where))
    if record.get("with_scaling", True):
        changes.append(_scale(record, table, where))
    return _one_to_one(record, table, changes)


def max_abs(record: Record, table: Table, where: Where) -> Table:
    """``MaxAbsScaler``: divided by the largest absolute value."""
    changes = [_scale(record, table, where)]
    if record.get("clip", False):
        changes.append([Clip(-1.0, 1.0)] * len(table))
    return _one_to_one(record, table, changes)


def min_max(record: Record, table: Table, where: Where) -> Table:
    """``MinMaxScaler``: times the scale, plus the minimum; clipped if asked."""
    where.refuse_sparse(table, "takes no sparse rows in scikit-learn")
    changes = [
        _arithmetic(record, "scale_", "multiply", len(table), where),
        _arithmetic(record, "min_", "add", len(table), where),
    ]
    if record.get("clip", False):
        low, high = (float(bound) for bound in record.array("feature_range", "biuf", 1))
        changes.append([Clip(low, high)] * len(table))
    return _one_to_one(record, table, changes)


def binarizer(record: Record, table: Table, where: Where) -> Table:
    """``Binarizer``: 1 above the threshold, else 0."""
    threshold = record.number("threshold", 0.0)
    if threshold < 0:
        where.refuse_sparse(table, "has a threshold below 0, which scikit-learn refuses for sparse rows")
    return _one_to_one(record, table, [[Above(threshold)] * len(table)], nan=False)


def normalizer(record: Record, table: Table, where: Where) -> Table:
    """``Normalizer``: each row divided by its norm."""
    norm = one_of(record, "norm", ("l1", "l2", "max"))
    scaled = normalized(table, norm)
    if scaled is not None:
        return replace(scaled, names=names_in(record, table))
    inputs = accepting(unified(table), nan=False)
    operation = Normalize(inputs, norm, bool(table.sparse))  # type: ignore[arg-type]
    columns = tuple(Column(Made(operation, i)) for i in range(len(table)))
    return Table(columns, table.sparse, names_in(record, table))


def _scale(record: Record, table: Table, where: Where, cast: bool = False) -> list[Step]:
    if not table.sparse:
        return _arithmetic(record, "scale_", "divide", len(table), where, cast)
    # The values of sparse rows are multiplied by the reciprocal, in float64.
    scale = record.array("scale_", "f", 1)
    _require_width(scale, "scale_", len(table), where)
    return [Arithmetic("multiply", float(factor)) for factor in (1.0 / scale).tolist()]


def _arithmetic(
    record: Record, name: str, operation: Operation, width: int, where: Where, cast: bool = False
) -> list[Step]:
    constants = record.array(name, "f", 1)
    _require_width(constants, name, width, where)
    # numpy computes float32 rows and float32 constants in float32.
    cast = cast or constants.dtype == np.float32
    return [Arithmetic(operation, constant, cast) for constant in constants.tolist()]


def _require_width(constants: np.ndarray, name: str, width: int, where: Where) -> None:
    if len(constants) != width:
        raise where.damaged(f"{name} has {len(constants)} values for {width} columns.")


def _one_to_one(record: Record, table: Table, changes: list[list[Step]], nan: bool = True) -> Table:
    result = accepting(unified(table), nan=nan)
    # A scaler that changes no number still converts integers to floats.
    changes = changes or [[Arithmetic("multiply", 1.0)] * len(table)]
    columns = tuple(
        column.then(*steps) for column, steps in zip(result.columns, zip(*changes, strict=True), strict=True)
    )
    return replace(result, columns=columns, names=names_in(record, table))
