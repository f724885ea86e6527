"""Calibration of a classifier's scores to probabilities, and isotonic regression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import floats
from hbtvm.frontends.sklearn.common import one_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node, constant
from hbtvm.operators.formulas import shares, softmax
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, select
from hbtvm.operators.tables import Interpolate

_LEAST = 1e-12  # scikit-learn adds this to a probability before its logarithm


def calibrated(record: Record, scores: Node, where: Where) -> Node:
    """Return a column of scores, calibrated.

    `record`: ``_SigmoidCalibration`` or ``IsotonicRegression``.
    `scores`: width 1.
    Raises `UnsupportedModel` for other calibrators.
    """
    if record.kind == "_SigmoidCalibration":
        return platt(scores, record.number("a_"), record.number("b_"))
    if record.kind == "IsotonicRegression":
        return isotonic(record, scores, where)
    raise where.unsupported(f"has the calibrator {record.kind}, which is not supported.")


def platt(scores: Node, slope: float, intercept: float) -> Node:
    """Return ``1 / (1 + exp(slope * score + intercept))``, of any width."""
    return apply("sigmoid", apply("negative", apply("add", apply("multiply", scores, slope), intercept)))


def isotonic(record: Record, scores: Node, where: Where) -> Node:
    """Return the values of an ``IsotonicRegression``; level beyond its ends, or NaN."""
    at_name, value_name = "X_thresholds_", "y_thresholds_"
    if at_name not in record:
        # Their names before scikit-learn 0.24.
        at_name, value_name = "_necessary_X_", "_necessary_y_"
    at = floats(record, at_name, where, None)
    values = floats(record, value_name, where, len(at))
    if not len(at) or np.any(at[1:] <= at[:-1]):
        raise where.damaged("its thresholds don't rise.")
    outside = one_of(record, "out_of_bounds", ("nan", "clip", "raise"))
    if outside == "raise":
        raise where.unsupported("raises an error beyond its training's range (out_of_bounds='raise').")
    narrow = record.get(at_name).dtype == np.float32
    if len(at) == 1:
        return constant(values)
    x: Node = apply("round_float32", scores) if narrow else scores
    result: Node = Interpolate(x, at[None, :], values[None, :])
    if outside == "nan":
        known = apply("multiply", apply("greater_equal", x, at[0]), apply("less_equal", x, at[-1]))
        result = apply("where", known, result, np.nan)
    return apply("round_float32", result) if narrow else result


def temperature(scores: Node, beta: float, probabilities: bool) -> Node:
    """Return the softmax of `beta` times logits: a ``_TemperatureScaling``.

    `scores`: a decision function, width 1 or the number of classes, or probabilities.
    `probabilities`: whether they are probabilities, of the second class if the width is 1.
    """
    if scores.width == 1:
        other = apply("subtract", 1.0, scores) if probabilities else apply("negative", scores)
        scores = concat([other, scores])
    if probabilities:
        scores = apply("log", apply("add", scores, _LEAST))
    return softmax(apply("multiply", scores, beta))


def calibrated_probabilities(
    calibrators: Sequence[Record],
    scores: Node,
    positions: Sequence[int],
    n_classes: int,
    probabilities: bool,
    where: Where,
) -> Node:
    """Return a ``_CalibratedClassifier``'s probabilities of all classes.

    `calibrators`: a calibrator for each column of `scores`, or a single ``_TemperatureScaling``.
    `scores`: the estimator's decision function, else its probabilities; with two classes those of the second
        class alone, width 1.
    `positions`: the positions of the estimator's classes among all classes.
    `n_classes`: number of all classes.
    `probabilities`: whether `scores` are probabilities.
    Raises `ModelError` if the calibrators don't fit the scores.
    """
    if not calibrators:
        raise where.damaged("it has no calibrators.")
    if calibrators[0].kind == "_TemperatureScaling":
        if max(2, scores.width) != n_classes:
            raise where.damaged(f"it calibrates {scores.width} scores for {n_classes} classes.")
        # Some releases store the number as an array.
        beta = floats(calibrators[0], "beta_", where).reshape(-1)
        if len(beta) != 1:
            raise where.damaged("its temperature is not a single number.")
        return apply("minimum", temperature(scores, float(beta[0]), probabilities), 1.0)
    if len(calibrators) != scores.width or len(positions) < scores.width:
        raise where.damaged(f"it has {len(calibrators)} calibrators for {scores.width} scores.")
    columns = [calibrated(calibrator, select(scores, [i]), where) for i, calibrator in enumerate(calibrators)]
    if n_classes == 2:
        if len(columns) != 1:
            raise where.damaged(f"it has {len(columns)} calibrators for two classes.")
        return concat([apply("subtract", 1.0, columns[0]), columns[0]])
    by_class = dict(zip(positions, columns, strict=False))
    if any(not 0 <= at < n_classes for at in by_class):
        raise where.damaged("it calibrates an unknown class.")
    # Classes that the estimator has not seen have the probability 0.
    zero = constant(0.0)
    return apply("minimum", shares(concat([by_class.get(i, zero) for i in range(n_classes)])), 1.0)


def isotonic_regression(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``IsotonicRegression``, a model of a single column."""
    if len(table) != 1:
        raise where.damaged(f"it gets {len(table)} columns, but takes one.")
    return Predictor("regressor", {"response": isotonic(record, TableRows(table), where)})
