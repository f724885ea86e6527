"""scikit-learn's predictors by kernels with all training rows."""

from __future__ import annotations

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
from hbtvm.operators.formulas import kernel, least_norm
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce, select


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


def label_propagation(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``LabelPropagation`` or ``LabelSpreading``: weighted sums of training rows' labels."""
    labels = classes_of(record)
    points = finite(record, "X_", where, None, len(table))
    shares = floats(record, "label_distributions_", where, len(points), len(labels))
    rows = TableRows(table)
    if choice(record, "kernel", where, ("rbf", "knn")) == "rbf":
        weights = kernel(rows, points, "rbf", record.number("gamma"))
        votes: Node = Contract(weights, shares).checked()
    else:
        k = record.whole("n_neighbors", 1)
        if k > len(points):
            raise where.damaged(f"it has {k} neighbours of {len(points)} points.")
        nearest = select(TopK(Distance(rows, points).checked(), k).checked(), range(k, 2 * k))
        votes = reduce("sum", Take(nearest, shares), len(labels))
    proba = apply("divide", votes, reduce("sum", votes))
    return Predictor("classifier", {"index": reduce("argmax", votes), "proba": proba}, (labels,))
