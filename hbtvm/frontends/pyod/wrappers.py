"""PyOD's detectors around estimators of scikit-learn: their scores, turned to be higher for outliers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors import neighbors
from hbtvm.frontends.predictors.gaussian.envelopes import squared_distance
from hbtvm.frontends.predictors.reading import choice, floats
from hbtvm.frontends.pyod.detectors import outputs_of
from hbtvm.frontends.transformers.dispatch import apply as transformed
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.where import Estimator, Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce, select

Score = Callable[[Record, Table, Where], Node]
"""From a detector, its rows and its place to its score."""


def _reader(score: Score, inner: str) -> Estimator:
    """Return the readers of a detector; `inner` names the estimator that reads its rows."""

    def predicts(record: Record, table: Table, where: Where) -> Predictor:
        return Predictor("anomaly", outputs_of(record, score(record, table, where)), (np.arange(2),))

    def first(record: Record, where: Where) -> list[Record]:
        if "decision_scores_" not in record:
            raise where.of(record).unsupported("is not fitted; hbtvm compiles trained models.")
        return [record.record(inner)]

    return Estimator(predicts=predicts, first=first)


def _negative(output: str) -> Score:
    def score(record: Record, table: Table, where: Where) -> Node:
        inner = read_predictor(record.record("detector_"), table, where.child("detector_"))
        return apply("negative", inner.outputs[output])

    return score


def _k_nearest(record: Record, table: Table, where: Where) -> Node:
    """The distance to the furthest of the nearest training rows, their mean or median."""
    method = choice(record, "method", where, ("largest", "mean", "median"))
    count = record.whole("n_neighbors", 1)
    distances = neighbors.distances(record.record("neigh_"), table, count, where)
    if method == "mean":
        return apply("divide", reduce("sum", distances), float(count))
    middle = [count - 1] if method == "largest" else [(count - 1) // 2, count // 2]
    return apply("divide", reduce("sum", select(distances, middle)), float(len(middle)))


def _components(record: Record, table: Table, where: Where) -> Node:
    """The distances to the selected components, divided by their weights."""
    if record.get("standardization", True):
        table = transformed(record.record("scaler_"), table, where.child("scaler_"))
    components = floats(record, "selected_components_", where, None, len(table))
    weights = floats(record, "selected_w_components_", where, len(components))
    away = Distance(TableRows(table), components, "squared_euclidean").checked()
    return reduce("sum", apply("divide", apply("sqrt", away), weights))


def _covariance(record: Record, table: Table, where: Where) -> Node:
    """The squared Mahalanobis distance to the robust centre."""
    return squared_distance(record.record("detector_"), table, where)


SECTION = {
    "OCSVM": _reader(_negative("decision"), "detector_"),
    "LOF GMM": _reader(_negative("score"), "detector_"),
    "KNN": _reader(_k_nearest, "neigh_"),
    "PCA": _reader(_components, "detector_"),
    "MCD": _reader(_covariance, "detector_"),
}
"""Their readers."""
