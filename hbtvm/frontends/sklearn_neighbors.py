"""scikit-learn's k nearest neighbours."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn_common import input_spec, labels_of, one_of
from hbtvm.graph.graph import Graph
from hbtvm.graph.neighbors import Neighbors
from hbtvm.graph.output import OutputSpec


def read(model: Record) -> Graph:
    """Read a ``KNeighborsClassifier`` or ``KNeighborsRegressor`` of Euclidean distances."""
    _require_euclidean(model)
    weights = one_of(model, "weights", ("uniform", "distance"))
    points = model.array("_fit_X", "f", 2).astype(np.float64)
    k = model.whole("n_neighbors", 1)
    if k > len(points):
        raise ModelError(f"the {model.kind} is damaged: {k} neighbours of {len(points)} points.")
    if model.kind == "KNeighborsClassifier":
        values, output = _classes(model, len(points))
    else:
        values = model.array("_y", "iuf").astype(np.float64).reshape(len(points), -1)
        output = OutputSpec(kind="regressor", n_outputs=values.shape[1])
    anchor = Neighbors(points, values, k, cast(Literal["uniform", "distance"], weights))
    return Graph(
        "scikit-learn", model.kind, input_spec(model, allow_nan=False, allow_inf=False), anchor, output
    )


def _classes(model: Record, count: int) -> tuple[np.ndarray, OutputSpec]:
    """1 for the class of each point, and the outputs of a classifier."""
    if model.get("outputs_2d_", False):
        raise UnsupportedModel(f"the {model.kind} was trained on several targets; supported is one.")
    labels = labels_of(model.get("classes_"))
    codes = model.array("_y", "iu").reshape(-1).astype(np.int64)
    if len(codes) != count or not np.all((codes >= 0) & (codes < len(labels))):
        raise ModelError(f"the {model.kind} is damaged: its points have no class labels.")
    output = OutputSpec(
        kind="classifier",
        n_outputs=len(labels),
        outputs=("label", "proba"),
        classes=(labels,),
        label_rule="argmax",
    )
    return np.eye(len(labels))[codes], output


def _require_euclidean(model: Record) -> None:
    metric = model.get("effective_metric_", model.get("metric", "minkowski"))
    power = model.get("effective_metric_params_", None) or {}
    euclidean = metric == "euclidean" or (metric == "minkowski" and power.get("p", model.get("p", 2)) == 2)
    if not euclidean or (isinstance(power, dict) and power.get("w") is not None):
        raise UnsupportedModel(f"the {model.kind} has another metric than Euclidean distance.")
