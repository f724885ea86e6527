"""scikit-learn's Gaussian processes: means of a regressor, and the binary classifier's approximation."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.gaussian.process_kernels import Kernel, kernel_of, total
from hbtvm.frontends.predictors.meta.members import single_target
from hbtvm.frontends.predictors.reading import classes_of, floats
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.error_function import erf
from hbtvm.operators.formulas import with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce

_SCALES = np.array([0.41, 0.4, 0.37, 0.44, 0.39])
_WEIGHTS = np.array([-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654])
"""The logistic function as a sum of error functions, in scikit-learn's constants (Williams and Barber 1998,
appendix A)."""


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``GaussianProcessRegressor``: the posterior's mean."""
    points, rows = _points(record, table, where), TableRows(table)
    weight = floats(record, "alpha_", where).reshape(len(points), -1)
    count = weight.shape[1]
    scale, mean = (
        np.broadcast_to(floats(record, name, where).reshape(-1), (count,))
        for name in ("_y_train_std", "_y_train_mean")
    )
    sums = total(kernel_of(record.record("kernel_"), rows, points, where).values, weight * scale)
    return Predictor("regressor", {"response": apply("add", sums, mean)})


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``GaussianProcessClassifier``: a binary classifier, or one for each class or pair of classes."""
    labels = classes_of(record)
    inner = read_predictor(record.record("base_estimator_"), table, where.child("base_estimator_"))
    if len(single_target(inner, where)) != len(labels):
        raise where.damaged(f"it holds a classifier of other classes than its {len(labels)}.")
    # The library uses only votes of classifiers of pairs.
    outputs = {name: node for name, node in inner.outputs.items() if name in ("index", "proba")}
    return Predictor("classifier", outputs, (labels,))


def binary_classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read the classifier of two classes: Laplace's approximation, by the latent function's moments."""
    labels = classes_of(record)
    if len(labels) != 2:
        raise where.damaged(f"it is binary, but has {len(labels)} classes.")
    points, rows = _points(record, table, where), TableRows(table)
    count = len(points)
    kernel = kernel_of(record.record("kernel_"), rows, points, where)
    mean = total(kernel.values, _residuals(record, where, count))
    spread = apply("subtract", kernel.diagonal, _explained(record, kernel, where, count))
    # Each error function's width adds to the spread of its argument.
    width = apply("sqrt", apply("add", apply("multiply", spread, 2.0 * _SCALES**2), 1.0))
    parts = erf(apply("divide", apply("multiply", mean, _SCALES), width))
    share = apply("add", Contract(parts, 0.5 * _WEIGHTS[:, None]), 0.5 * _WEIGHTS.sum())
    outputs = {"index": apply("greater", mean, 0.0), "proba": with_complement(share)}
    return Predictor("classifier", outputs, (labels,))


def _points(record: Record, table: Table, where: Where) -> np.ndarray:
    return floats(record, "X_train_", where, None, len(table))


def _residuals(record: Record, where: Where, count: int) -> np.ndarray:
    """Return targets minus their probabilities, shape (T, 1)."""
    targets = record.array("y_train_", "biuf", 1).astype(np.float64)
    if len(targets) != count:
        raise where.damaged(f"it has {len(targets)} targets of {count} rows.")
    residuals: np.ndarray = targets - floats(record, "pi_", where, count)
    return residuals[:, None]


def _explained(record: Record, kernel: Kernel, where: Where, count: int) -> Node:
    """Return the reduction of the latent function's variance by the training rows."""
    lower = floats(record, "L_", where, count, count)
    roots = floats(record, "W_sr_", where, count)
    if not np.diagonal(lower).all():
        raise where.damaged("its L_ can't be inverted.")
    weight = np.linalg.solve(np.tril(lower), np.diag(roots)).T
    moved = apply("square", total(kernel.values, np.ascontiguousarray(weight)))
    return reduce("sum", moved)
