"""scikit-learn's predictors by kernels with all training rows."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.matrices import type_of
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice, classes_of, floats
from hbtvm.frontends.transformers.projections.kernel_maps import kernel_of
from hbtvm.frontends.transformers.projections.matrices import finite
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance, Take, TopK
from hbtvm.operators.formulas import least_norm
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce, select

_NORMAL, _VANISHING = 708.0, 1074 * np.log(2.0)
"""Powers of 1/e that float64 holds with all digits, and that are its smallest number."""


def kernel_ridge(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``KernelRidge``: weighted sums of kernels."""
    points = finite(record, "X_fit_", where, None, len(table))
    weight = floats(record, "dual_coef_", where)
    if weight.ndim not in (1, 2) or len(weight) != len(points):
        raise where.damaged(f"its dual_coef_ has the shape {weight.shape}.")
    rows = TableRows(table)
    values: Node = rows
    if record.get("kernel") != "precomputed":
        values = kernel_of(record, rows, points, least_norm(type_of(record, "X_fit_")), where)
    response = Contract(values, weight.reshape(len(weight), -1)).checked()
    return Predictor("regressor", {"response": response}, keeps_axis=weight.ndim == 2)


def _weights(rows: TableRows, points: np.ndarray, gamma: float) -> Node:
    """Return radial kernels up to a factor that depends on the row; all are 0 where the library's vanish.

    The nearest point's is 1, so that kernels, which take small numbers for 0, keep those of far rows.
    """
    away = apply("multiply", Distance(rows, points).checked(), gamma)
    least = reduce("min", away)
    near = apply("less", least, _NORMAL)
    weight = apply("exp", apply("subtract", apply("where", near, least, _VANISHING), away))
    # Below the smallest normal number, float64 has whole multiples of the smallest number.
    return apply("where", near, weight, apply("rint", weight))


def label_propagation(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``LabelPropagation`` or ``LabelSpreading``: weighted sums of training rows' labels."""
    labels = classes_of(record)
    points = finite(record, "X_", where, None, len(table))
    shares = floats(record, "label_distributions_", where, len(points), len(labels))
    rows = TableRows(table)
    if choice(record, "kernel", where, ("rbf", "knn")) == "rbf":
        if type_of(record, "X_") == np.float32:
            raise where.unsupported(
                "was fitted on float32 rows, whose kernels vanish early; fit it on float64 rows."
            )
        votes: Node = Contract(_weights(rows, points, record.number("gamma")), shares).checked()
    else:
        k = record.whole("n_neighbors", 1)
        if k > len(points):
            raise where.damaged(f"it has {k} neighbours of {len(points)} points.")
        nearest = select(TopK(Distance(rows, points).checked(), k).checked(), range(k, 2 * k))
        votes = reduce("sum", Take(nearest, shares), len(labels))
    proba = apply("divide", votes, reduce("sum", votes))
    return Predictor("classifier", {"index": reduce("argmax", votes), "proba": proba}, (labels,))
