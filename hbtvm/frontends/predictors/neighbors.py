"""scikit-learn's nearest neighbours: the k nearest, those within a radius, and local outlier factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.metrics import Measure, measure_of
from hbtvm.frontends.predictors.reading import NO_LABEL
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.transformers.projections.matrices import finite
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Take, TopK
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import Repeat, concat, reduce, select


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``KNeighborsClassifier``: votes of the nearest points, for one or several targets."""
    points = _points(record, table, where)
    labels, indicators = _classes(record, len(points), where)
    votes = _nearest(record, table, points, indicators, where)
    return Predictor("classifier", _voted(votes, labels), labels)


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``KNeighborsRegressor``: means of the nearest points' targets."""
    points = _points(record, table, where)
    targets, keeps_axis = _targets(record, len(points), where)
    sums = _nearest(
        record, table, points, np.concatenate([targets, np.ones((len(points), 1))], axis=1), where
    )
    return Predictor("regressor", {"response": _mean(sums)}, keeps_axis=keeps_axis)


def radius_classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``RadiusNeighborsClassifier``.

    Where a row has no neighbours and there is no ``outlier_label``, scikit-learn raises an error; here
    probabilities are NaN, and there is no label.
    """
    points = _points(record, table, where)
    labels, indicators = _classes(record, len(points), where)
    votes, has_votes = _within(record, table, points, indicators, where)
    outliers = record.get("outlier_label_", None)
    if outliers is None:
        return Predictor("classifier", _voted(votes, labels, has_votes), labels)
    values = outliers if isinstance(outliers, (list, tuple)) else np.asarray(outliers).reshape(-1).tolist()
    at = [np.flatnonzero(classes == value) for classes, value in zip(labels, values, strict=False)]
    if len(at) != len(labels) or any(len(places) != 1 for places in at):
        raise where.unsupported("has an outlier_label that is not a class, which is not supported.")
    lone = np.concatenate(
        [np.eye(len(classes))[places[0]] for classes, places in zip(labels, at, strict=True)]
    )
    return Predictor("classifier", _voted(apply("where", has_votes, votes, lone), labels), labels)


def radius_regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``RadiusNeighborsRegressor``; rows without neighbours get NaN."""
    points = _points(record, table, where)
    targets, keeps_axis = _targets(record, len(points), where)
    values = np.concatenate([targets, np.ones((len(points), 1))], axis=1)
    sums, _ = _within(record, table, points, values, where)
    return Predictor("regressor", {"response": _mean(sums)}, keeps_axis=keeps_axis)


def outlier_factor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``LocalOutlierFactor`` for novelties: the density about a row relative to its neighbours'."""
    if record.get("novelty", False) is not True:
        raise where.unsupported(
            "has novelty=False, with which scikit-learn predicts for training rows alone."
        )
    points = _points(record, table, where)
    k = _count(record, "n_neighbors_", points, where)
    neighbor_distances = finite(record, "_distances_fit_X_", where, len(points), None)
    if neighbor_distances.shape[1] < k:
        raise where.damaged(f"it has distances to {neighbor_distances.shape[1]} neighbours.")
    density = finite(record, "_lrd", where, len(points))
    away, at, measure = _top(record, table, points, k, where)
    neighbors = Take(at, np.stack([density, neighbor_distances[:, k - 1]], axis=1))
    densities, reaches = select(neighbors, range(k)), select(neighbors, range(k, 2 * k))
    reach = reduce("sum", apply("maximum", measure.root(away), reaches))
    own_density = apply("reciprocal", apply("add", apply("divide", reach, float(k)), 1e-10))
    shares = reduce("sum", apply("divide", densities, own_density))
    score = apply("negative", apply("divide", shares, float(k)))
    decision = apply("subtract", score, record.number("offset_"))
    outputs = {
        "index": apply("where", apply("less", decision, 0.0), -1.0, 1.0),
        "decision": decision,
        "score": score,
    }
    return Predictor("anomaly", outputs, label_dtype="int64")


def distances(record: Record, table: Table, k: int, where: Where) -> Node:
    """Return the distances of a row to its k nearest points, ascending."""
    points = _points(record, table, where)
    if k > len(points):
        raise where.damaged(f"{k} neighbours of {len(points)} points.")
    away, _, measure = _top(record, table, points, k, where)
    return measure.root(away)


def _top(
    record: Record, table: Table, points: np.ndarray, k: int, where: Where
) -> tuple[Node, Node, Measure]:
    """Return the values of `Measure.away` for a row's k nearest points, their positions, and the metric."""
    measure = measure_of(record, where)
    top = TopK(measure.away(TableRows(table), points), k).checked()
    return select(top, range(k)), select(top, range(k, 2 * k)), measure


def _nearest(record: Record, table: Table, points: np.ndarray, values: np.ndarray, where: Where) -> Node:
    """Return weighted sums of the nearest points' values; values: float64, shape (T, O)."""
    k = _count(record, "n_neighbors", points, where)
    by_distance = _by_distance(record, where)
    away, at, measure = _top(record, table, points, k, where)
    nearest: Node = Take(at, values)
    if by_distance:
        nearest = apply(
            "multiply", nearest, Repeat(_weights(measure.root(away)), values.shape[1], tiled=True)
        )
    return reduce("sum", nearest, values.shape[1])


def _within(
    record: Record, table: Table, points: np.ndarray, values: np.ndarray, where: Where
) -> tuple[Node, Node]:
    """Return weighted sums of values of the points within the radius, and whether there are any."""
    measure = measure_of(record, where)
    away = measure.away(TableRows(table), points)
    near: Node = apply("less_equal", away, record.number("radius") ** measure.power)
    has_neighbors = reduce("max", near)
    if _by_distance(record, where):
        # Of those further away, whatever number.
        inside = apply("where", near, measure.root(away), np.inf)
        near = _weights(inside)
    return Contract(near, values).checked(), has_neighbors


def _weights(distance: Node) -> Node:
    """Return reciprocals of distances; points equal to the row outweigh all others."""
    same = apply("equal", distance, 0.0)
    return apply("where", reduce("max", same), same, apply("divide", 1.0, distance))


def _voted(votes: Node, labels: Sequence[np.ndarray], has_votes: Node | None = None) -> dict[str, Node]:
    """Return labels and probabilities of all targets from their classes' votes.

    `has_votes`: whether a row has votes; None if every row has.
    """
    first, index, proba = 0, [], []
    for classes in labels:
        class_votes = select(votes, range(first, first + len(classes)))
        first += len(classes)
        largest: Node = reduce("argmax", class_votes)
        index.append(largest if has_votes is None else apply("where", has_votes, largest, NO_LABEL))
        proba.append(apply("divide", class_votes, reduce("sum", class_votes)))
    return {"index": concat(index), "proba": concat(proba)}


def _mean(sums: Node) -> Node:
    """Return sums of targets divided by the last column, the sum of weights."""
    last = sums.width - 1
    return apply("divide", select(sums, range(last)), select(sums, [last]))


def _points(record: Record, table: Table, where: Where) -> np.ndarray:
    return finite(record, "_fit_X", where, None, len(table))


def _count(record: Record, name: str, points: np.ndarray, where: Where) -> int:
    k = record.whole(name, 1)
    if k > len(points):
        raise where.damaged(f"{k} neighbours of {len(points)} points.")
    return k


def _by_distance(record: Record, where: Where) -> bool:
    weights: Any = record.get("weights")
    if weights not in ("uniform", "distance", None):
        actual = f"{weights!r:.40}" if isinstance(weights, str) else "a custom function"
        raise where.unsupported(f"has {actual} as its weights; supported are uniform and distance.")
    return bool(weights == "distance")


def _classes(record: Record, count: int, where: Where) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return the labels of each target, and each point's classes as 1, float64, shape (T, all classes)."""
    if record.get("outputs_2d_", False):
        labels = tuple(labels_of(classes) for classes in record.sequence("classes_"))
    else:
        labels = (labels_of(record.get("classes_")),)
    codes = record.array("_y", "iu").astype(np.int64)
    codes = codes.reshape(len(codes), -1)
    if codes.shape != (count, len(labels)):
        raise where.damaged("its points have no class labels.")
    indicators = []
    for classes, target in zip(labels, codes.T, strict=True):
        if not np.all((target >= 0) & (target < len(classes))):
            raise where.damaged("its points have no class labels.")
        indicators.append(np.eye(len(classes))[target])
    return labels, np.concatenate(indicators, axis=1)


def _targets(record: Record, count: int, where: Where) -> tuple[np.ndarray, bool]:
    """Return targets, float64, shape (T, O), and whether they are a matrix."""
    values = record.array("_y", "biuf").astype(np.float64)
    if values.ndim not in (1, 2) or len(values) != count or not np.isfinite(values).all():
        raise where.damaged("its points have no targets.")
    return values.reshape(count, -1), values.ndim == 2
