"""PyOD's detectors of trees and histograms, and outputs of all detectors.

``decision_function`` is higher for outliers, ``predict`` is 1 above ``threshold_``, else 0, and
``predict_proba`` scales training's scores to 0 and 1 (``method="linear"``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import Tree, assemble
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.sklearn import isolation
from hbtvm.frontends.sklearn.common import require_fitted
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import LEAF
from hbtvm.graph.trees.ordinals import floats, last_true, ordinal
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import with_complement
from hbtvm.operators.pointwise import apply

_ROUNDING = 1e-13
"""Bound of the relative rounding of a score. The threshold is often a score itself, and not above it."""


def read_isolation_forest(model: Record) -> Graph:
    """Read ``IForest``, a wrapper of scikit-learn's IsolationForest."""
    require_fitted(model)
    graph = isolation.read(model.record("detector_"))
    score = apply("negative", graph.output.nodes["decision"])
    return _graph(model, graph.anchor, score)


def read_histograms(model: Record) -> Graph:
    """Read ``HBOS``: the sum of a step function of each column, as a tree for each."""
    require_fitted(model)
    alpha, tolerance = model.number("alpha"), model.number("tol")
    hist, edges = _columns(model.get("hist_")), _columns(model.get("bin_edges_"))
    if len(hist) != len(edges):
        raise ModelError("the HBOS is damaged: it has edges of another number of columns.")
    trees = []
    for column, (heights, bounds) in enumerate(zip(hist, edges, strict=True)):
        if not len(heights) or len(bounds) != len(heights) + 1 or np.any(np.diff(bounds) < 0):
            raise ModelError(f"the HBOS is damaged: its bins of column {column} do not rise.")
        scores = np.log2(heights + alpha)
        # Beyond its ends, a histogram's outer bins go on for a share of their width.
        first, last = _ends(bounds, tolerance)
        steps = np.concatenate([[first], bounds[1:-1], [last]])
        values = np.concatenate([[scores.min()], scores, [scores.min()]])
        trees.append(_step_function(column, steps, -values))
    ensemble = assemble(
        trees,
        n_features=len(trees),
        compare_dtype="float64",
        tree_output=np.zeros(len(trees)),
        base_score=np.zeros(1),
    )
    return _graph(model, ensemble, Input(1))


def _graph(model: Record, anchor: Any, score: Node) -> Graph:
    output = OutputSpec("anomaly", 1, outputs_of(model, score), (np.arange(2),))
    inputs = InputSpec(anchor.n_features, allow_nan=False, allow_inf=False)
    return Graph("pyod", model.kind, inputs, replace(anchor, precise=True), output)


def outputs_of(model: Record, score: Node) -> dict[str, Node]:
    """Return a detector's outputs by name, from its score."""
    contamination = model.get("contamination")
    if isinstance(contamination, bool) or not isinstance(contamination, (int, float, np.number)):
        raise UnsupportedModel(
            f"the {model.kind} has an object as its contamination, whose labels are not supported; set it to "
            "a number."
        )
    threshold = model.number("threshold_")
    nodes: dict[str, Node] = {
        "index": apply("greater", score, threshold + _ROUNDING * abs(threshold)),
        "decision": score,
    }
    if model.whole("_classes", 1) == 2:
        nodes["proba"] = with_complement(_scaled(model, score))
    return nodes


def _scaled(model: Record, score: Node) -> Node:
    """Return a score in units of training's range, as MinMaxScaler computes it, within 0 and 1."""
    training = model.array("decision_scores_", "f", 1).astype(np.float64)
    if not len(training) or not np.all(np.isfinite(training)):
        raise ModelError(f"the {model.kind} is damaged: it has no scores of training.")
    low, span = float(training.min()), float(training.max() - training.min())
    # The scaler leaves a span of nearly 0 as it is.
    scale = 1.0 / (1.0 if span < 10 * np.finfo(np.float64).eps else span)
    share = apply("add", apply("multiply", score, scale), -low * scale)
    return apply("minimum", apply("maximum", share, 0.0), 1.0)


def _columns(value: Any) -> list[np.ndarray]:
    """Return an array of each column, float64, from a list of arrays or a matrix of columns."""
    arrays = value if isinstance(value, list) else as_array(value, "a histogram", "f", 2).T
    columns = [as_array(array, "a histogram", "f", 1).astype(np.float64) for array in arrays]
    if not all(np.all(np.isfinite(column)) for column in columns):
        raise ModelError("the HBOS is damaged: a number of its histograms is not finite.")
    return columns


def _ends(bounds: np.ndarray, tolerance: float) -> tuple[float, float]:
    """Return the largest number below the first bin's extension, and the largest in the last bin's."""
    low, high = (ordinal(sign * np.finfo(np.float64).max, "float64") for sign in (-1, 1))
    room = bounds[1] - bounds[0], bounds[-1] - bounds[-2]
    with np.errstate(over="ignore"):
        before = last_true(lambda x: bounds[0] - x > room[0] * tolerance, low, high, 1, "float64")
        within = last_true(lambda x: x - bounds[-1] <= room[1] * tolerance, low, high, 1, "float64")
    first, last = floats(np.concatenate([before, within]), "float64").tolist()
    return first, last


def _step_function(column: int, steps: np.ndarray, values: np.ndarray) -> Tree:
    """Return a balanced tree: ``values[i]`` for numbers above i steps.

    `steps`: float64, shape (S,), ascending.
    `values`: float64, shape (S + 1,).
    """
    left, right, at = [LEAF], [LEAF], [0]
    frontier = [(0, 0, len(steps))]  # a node, and the first and last of its values
    while frontier:
        node, low, high = frontier.pop()
        at[node] = middle = (low + high) // 2
        if low == high:
            continue
        left[node], right[node] = len(left), len(left) + 1
        frontier += [(len(left), low, middle), (len(left) + 1, middle + 1, high)]
        left += [LEAF, LEAF]
        right += [LEAF, LEAF]
        at += [0, 0]
    place, children = np.array(at), np.array(left)
    return Tree(
        feature=np.full(len(place), column),
        threshold=np.append(steps, np.inf)[place],
        left=children,
        right=np.array(right),
        default_left=np.zeros(len(place), bool),
        value=values[place][:, None],
    )
