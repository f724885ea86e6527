"""``StackingClassifier`` and ``StackingRegressor``: a model over the predictions of others."""

from __future__ import annotations

from dataclasses import replace

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.meta.members import (
    in_their_type,
    made_by_members,
    members,
    output,
    prediction,
)
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.transformers.dispatch import names_in, read_predictor
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table, side_by_side
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.shapes import select

_METHODS = ("predict_proba", "decision_function", "predict")


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``StackingClassifier``."""
    if isinstance(record.get("_label_encoder", None), list):
        raise where.unsupported("was trained on several targets, which is not supported.")
    labels = labels_of(record.get("classes_"))
    last = _last(record, table, where, len(labels))
    if "index" not in last.outputs or len(last.classes) != 1:
        raise where.unsupported("has a final estimator that is not a classifier of one target.")
    if len(last.classes[0]) != len(labels):
        raise where.damaged(f"its final estimator has {len(last.classes[0])} labels, not {len(labels)}.")
    # The final estimator learned positions of labels.
    return replace(last, classes=(labels,))


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``StackingRegressor``."""
    return _last(record, table, where, 0)


def columns(record: Record, table: Table, where: Where) -> Table:
    """Read ``transform``: each estimator's predictions, which the final estimator reads.

    With ``passthrough``, the rows' columns follow.
    """
    n_classes = len(labels_of(record.get("classes_"))) if record.kind == "StackingClassifier" else 0
    predictions, estimators = _predictions(record, table, where, n_classes)
    return _beside(record, in_their_type(predictions, estimators), table)


def _last(record: Record, table: Table, where: Where, n_classes: int) -> Predictor:
    predictions, _ = _predictions(record, table, where, n_classes)
    return read_predictor(
        record.record("final_estimator_"),
        _beside(record, predictions, table),
        where.child("final_estimator_"),
    )


def _predictions(record: Record, table: Table, where: Where, n_classes: int) -> tuple[Table, list[Predictor]]:
    """Return the estimators' predictions, and the estimators."""
    estimators = members(record, table, where)
    methods = record.sequence("stack_method_")
    if len(methods) != len(estimators):
        raise where.damaged(f"it has {len(methods)} methods of {len(estimators)} estimators.")
    parts = [
        _columns_of(estimator, method, n_classes, where)
        for estimator, method in zip(estimators, methods, strict=True)
    ]
    return made_by_members(record, parts), estimators


def _beside(record: Record, predictions: Table, table: Table) -> Table:
    """Return the final estimator's input: predictions, and the rows' columns with ``passthrough``."""
    if not record.get("passthrough", False):
        return predictions
    # Beside sparse rows, the library makes predictions sparse as well.
    names = names_in(record, table)
    both = None if predictions.names is None or names is None else predictions.names + names
    return side_by_side((predictions, table), table.sparse, both)


def _columns_of(predictor: Predictor, method: object, n_classes: int, where: Where) -> Node:
    """Return an estimator's columns of the final estimator's input."""
    if method == "predict":
        return prediction(predictor, where)
    if method == "decision_function":
        return output(predictor, "decision", where)
    if method != "predict_proba":
        raise where.damaged(f"a stack_method_ is none of {', '.join(_METHODS)}.")
    proba = output(predictor, "proba", where)
    if len(predictor.classes) > 1:
        raise where.unsupported("holds an estimator of several targets, which is not supported.")
    # With two classes, the library drops the first.
    return select(proba, [1]) if n_classes == 2 and proba.width == 2 else proba
