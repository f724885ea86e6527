"""Metrics of scikit-learn's neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hbtvm.frontends.matrices import type_of
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.transformers.where import Where
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance, Metric
from hbtvm.operators.formulas import cosines, least_norm
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract

_NAMES: dict[str, Metric] = {
    "euclidean": "squared_euclidean",
    "l2": "squared_euclidean",
    "sqeuclidean": "squared_euclidean",
    "seuclidean": "squared_euclidean",
    "manhattan": "manhattan",
    "cityblock": "manhattan",
    "l1": "manhattan",
    "chebyshev": "chebyshev",
    "minkowski": "minkowski",
    "p": "minkowski",
}


@dataclass(frozen=True)
class Measure:
    """A distance of rows to stored points."""

    power: float  # what `away` computes is the distance to this power, which orders points alike
    away: Callable[[Node, np.ndarray], Node]  # from rows and points, float64 (T, F), to a node of width T

    def root(self, x: Node) -> Node:
        """Return distances from the values of `away`."""
        if self.power == 1.0:
            return x
        return apply("sqrt", x) if self.power == 2.0 else apply("power", x, 1.0 / self.power)


def measure_of(record: Record, where: Where) -> Measure:
    """The metric of a neighbours' estimator.

    Raises `UnsupportedModel` for metrics other than Minkowski's, with or without weights, cosine distance and
    Mahalanobis'.
    """
    name = record.get("effective_metric_", None) or record.get("metric", "minkowski")
    parameters = record.get("effective_metric_params_", None) or record.get("metric_params", None) or {}
    if not isinstance(parameters, dict):
        raise where.damaged("its metric's parameters are not a dictionary.")
    if name == "cosine":
        return Measure(1.0, _cosine(least_norm(type_of(record, "_fit_X"))))
    if name == "mahalanobis":
        return Measure(2.0, _mahalanobis(parameters, where))
    if not isinstance(name, str) or name not in _NAMES:
        actual = f"{name!r:.40}" if isinstance(name, str) else "a custom function"
        known = ", ".join((*_NAMES, "cosine", "mahalanobis"))
        raise where.unsupported(f"has {actual} as its metric; supported are {known}.")
    metric, power = _NAMES[name], 1.0
    weight = parameters.get("w") if metric == "minkowski" else None
    if metric == "minkowski":
        power = _power(parameters.get("p", record.get("p", 2)), where)
        metric, power = _special(power)
    elif metric == "squared_euclidean" and name != "sqeuclidean":
        power = 2.0
    scale: np.ndarray | None = None
    if weight is not None:
        scale = _positive(weight, "w", where) ** (1.0 / power)
    elif name == "seuclidean":
        scale = 1.0 / np.sqrt(_positive(parameters.get("V"), "V", where))

    def away(rows: Node, points: np.ndarray) -> Node:
        factors = None if scale is None else np.ascontiguousarray(np.broadcast_to(scale, points.shape))
        return Distance(rows, points, metric, factors, power).checked()

    return Measure(power, away)


def _special(power: float) -> tuple[Metric, float]:
    """Return the metric of a power; some powers have simpler metrics."""
    if power == 1.0:
        return "manhattan", 1.0
    if power == 2.0:
        return "squared_euclidean", 2.0
    return ("chebyshev", 1.0) if power == np.inf else ("minkowski", power)


def _power(value: object, where: Where) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        raise where.damaged("its p is not a number.")
    if not float(value) > 0:
        raise where.damaged("its p is not positive.")
    return float(value)


def _positive(value: object, name: str, where: Where) -> np.ndarray:
    values = as_array(value, f"{name!r} of {where.step}", "biuf", 1).astype(np.float64)
    if not np.isfinite(values).all() or (values < 0).any() or (name == "V" and not values.all()):
        raise where.damaged(f"its metric's {name} are not weights.")
    return values


def _cosine(least: float) -> Callable[[Node, np.ndarray], Node]:
    def away(rows: Node, points: np.ndarray) -> Node:
        near = apply("subtract", 1.0, cosines(rows, points, least))
        return apply("minimum", apply("maximum", near, 0.0), 2.0)

    return away


def _mahalanobis(parameters: Mapping[str, object], where: Where) -> Callable[[Node, np.ndarray], Node]:
    """Return Euclidean distances after a product with a root of the inverse covariance."""
    inverse = parameters.get("VI")
    name = "V" if inverse is None else "VI"
    matrix = as_array(parameters.get(name), f"{name!r} of {where.step}", "biuf", 2).astype(np.float64)
    if matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise where.damaged(f"its metric's {name} is not a square matrix of numbers.")
    try:
        values, vectors = np.linalg.eigh(matrix if inverse is not None else np.linalg.inv(matrix))
    except np.linalg.LinAlgError:
        raise where.damaged(f"its metric's {name} has no inverse.") from None
    if (values < -1e-9 * np.abs(values).max(initial=0.0)).any():
        raise where.unsupported(f"has a {name} of its metric that is not positive definite.")
    root = vectors * np.sqrt(np.maximum(values, 0.0))

    def away(rows: Node, points: np.ndarray) -> Node:
        if points.shape[1] != len(root):
            raise where.damaged(f"its metric's {name} does not fit its points' columns.")
        return Distance(Contract(rows, root).checked(), points @ root).checked()

    return away
