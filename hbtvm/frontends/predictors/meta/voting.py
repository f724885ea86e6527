"""``VotingClassifier`` and ``VotingRegressor``."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.meta.members import (
    by_label,
    in_their_type,
    is_dropped,
    made_by_members,
    members,
    output,
    prediction,
    single_target,
)
from hbtvm.frontends.sklearn.common import labels_of, one_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks import joined
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.formulas import total
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``VotingClassifier``: the mean of probabilities, or the label with most votes (the first)."""
    estimators = members(record, table, where)
    weights = _weights(record, len(estimators), where)
    labels = labels_of(record.get("classes_"))
    for estimator in estimators:
        # The estimators learned positions of labels.
        if not np.array_equal(single_target(estimator, where), np.arange(len(labels))):
            raise where.unsupported("holds an estimator that was fitted on other labels.")
    if one_of(record, "voting", ("hard", "soft")) == "soft":
        proba = joined.mean([output(estimator, "proba", where) for estimator in estimators], weights)
        return Predictor("classifier", {"index": reduce("argmax", proba), "proba": proba}, (labels,))
    votes: list[Node] = [by_label(prediction(estimator, where), len(labels)) for estimator in estimators]
    if weights is not None:
        votes = [apply("multiply", vote, float(weight)) for vote, weight in zip(votes, weights, strict=True)]
    return Predictor("classifier", {"index": reduce("argmax", total(votes))}, (labels,))


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``VotingRegressor``: the mean of responses."""
    estimators = members(record, table, where)
    responses = [output(estimator, "response", where) for estimator in estimators]
    weights = _weights(record, len(estimators), where)
    # numpy's mean of float32 numbers is float32, unless it is weighted.
    single = weights is None and all(estimator.responds_in_float32 for estimator in estimators)
    dtype = "float32" if single else None
    return Predictor("regressor", {"response": joined.mean(responses, weights)}, label_dtype=dtype)


def columns(record: Record, table: Table, where: Where) -> Table:
    """Read ``transform``: the probabilities, labels or responses of each estimator.

    Raises `UnsupportedModel` if the library returns an array of three dimensions.
    """
    estimators = members(record, table, where)
    soft = record.kind == "VotingClassifier" and one_of(record, "voting", ("hard", "soft")) == "soft"
    if soft and not record.get("flatten_transform", True):
        raise where.unsupported("transforms to an array of three dimensions (flatten_transform=False).")
    parts = [
        output(estimator, "proba", where) if soft else prediction(estimator, where)
        for estimator in estimators
    ]
    if not soft and any(part.width != 1 for part in parts):
        raise where.unsupported("transforms to an array of three dimensions, as it has several targets.")
    return in_their_type(made_by_members(record, parts), estimators)


def _weights(record: Record, count: int, where: Where) -> np.ndarray | None:
    """Return the weights of the estimators that are not dropped."""
    if record.get("weights", None) is None:
        return None
    weights: np.ndarray = record.array("weights", "biuf", 1).astype(np.float64)
    parts = record.sequence("estimators")
    if len(parts) != len(weights):
        raise where.damaged(f"it has {len(weights)} weights for {len(parts)} estimators.")
    dropped = [isinstance(part, (tuple, list)) and is_dropped(part[-1]) for part in parts]
    weights = weights[~np.array(dropped, bool)]
    if len(weights) != count or not np.isfinite(weights).all() or not weights.sum():
        raise where.damaged(f"it has {len(weights)} weights for {count} estimators.")
    return weights
