"""``BaggingClassifier``, ``BaggingRegressor``: means over estimators that read some of the columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.predictors.meta.members import by_label, output, prediction, single_target
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks import join_trees, joined
from hbtvm.graph.networks.network import Trees
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node, constant
from hbtvm.operators.shapes import concat, reduce, select


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``BaggingClassifier``: the mean of probabilities, or of votes if estimators have none."""
    labels = labels_of(record.get("classes_"))
    members = _members(record, table, where)
    proba = joined.mean([_shares(member, len(labels), where) for member in members])
    outputs: dict[str, Node] = {"index": reduce("argmax", proba), "proba": proba}
    if all("decision" in member.outputs for member in members):
        outputs["decision"] = joined.mean([member.outputs["decision"] for member in members])
    trees = proba if isinstance(proba, Trees) and proba.width > 1 else None
    return Predictor("classifier", outputs, (labels,), trees=trees)


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``BaggingRegressor``: the mean of responses."""
    response = joined.mean([output(member, "response", where) for member in _members(record, table, where)])
    trees = response if isinstance(response, Trees) else None
    return Predictor("regressor", {"response": response}, trees=trees)


def _members(record: Record, table: Table, where: Where) -> list[Predictor]:
    estimators, chosen = record.records("estimators_"), record.sequence("estimators_features_")
    if not estimators or len(estimators) != len(chosen):
        raise where.damaged(f"it has columns of {len(chosen)} estimators, but {len(estimators)} estimators.")
    members = []
    whole = np.arange(len(table))
    for i, (estimator, columns) in enumerate(zip(estimators, chosen, strict=True)):
        features = as_array(columns, f"the columns of an estimator of {where.step}", "iu", 1)
        if not len(features) or features.min() < 0 or features.max() >= len(table):
            raise where.damaged("an estimator reads an unknown column.")
        part = table if np.array_equal(features, whole) else table.select(features.tolist())
        members.append(read_predictor(estimator, part, where.child(i)))
    return members


def _shares(predictor: Predictor, n_classes: int, where: Where) -> Node:
    """Return an estimator's probabilities of all classes."""
    if "proba" not in predictor.outputs:
        return by_label(prediction(predictor, where), n_classes)
    proba, classes = predictor.outputs["proba"], single_target(predictor, where)
    if len(classes) == n_classes:
        return proba
    # The sample lacked some classes; the estimator's labels are positions of labels.
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= n_classes:
        raise where.damaged("an estimator has an unknown class.")
    return placed(proba, classes.astype(np.int64).tolist(), n_classes)


def placed(values: Node, positions: Sequence[int], width: int) -> Node:
    """Return columns at some positions of `width`, 0 elsewhere."""
    if isinstance(values, Trees):
        wide = join_trees.widened(values, positions, width)
        if wide is not None:
            return wide
    at = np.full(width, values.width)
    at[list(positions)] = np.arange(values.width)
    return select(concat([values, constant(0.0)]), at)
