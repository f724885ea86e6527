"""Outputs of graphs with stages, by the references of their anchors, against their libraries."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import Linear, Network
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from tests.answers import METHODS, same
from tests.feeds import feed_matrix
from tests.frontends.transformers.oracle import raw_of


def check(model: Any, X: Any, tolerance: float = 1e-9) -> Graph:
    """Compare all that a fitted model offers with what is read of it; return that."""
    graph = from_object(model)
    found = outputs_of(graph, X)
    offered = {name for name, method in METHODS.items() if hasattr(model, method)}
    assert offered == METHODS.keys() & found.keys()
    same(found[None], np.asarray(model.predict(X)), tolerance, tolerance)
    for name in offered:
        same(found[name], getattr(model, METHODS[name])(X), tolerance, tolerance)
    return graph


def scores_of(graph: Graph, X: Any) -> np.ndarray:
    """Raw scores of a user's rows, float64, shape (n, O)."""
    raw = raw_of(X)
    matrix = feed_matrix(graph.feeds, raw, "float64") if graph.feeds else np.stack(raw, axis=1)
    for stage in graph.stages:
        matrix = np.concatenate([matrix, _scores(stage.anchor, matrix[:, list(stage.columns)])], axis=1)
    return _scores(graph.anchor, matrix[:, list(graph.columns)] if graph.stages else matrix)


def outputs_of(graph: Graph, X: Any) -> dict[str | None, Any]:
    """All outputs of a graph by name; None is what ``predict`` returns."""
    scores = scores_of(graph, X)
    # Raw scores are no library's method here.
    return {name: graph.output.compute(name, scores) for name in (None, *graph.output.outputs)}


def _scores(anchor: Any, rows: np.ndarray) -> np.ndarray:
    if isinstance(anchor, TreeEnsemble):
        return margins(anchor, rows.astype(anchor.compare_dtype))
    assert isinstance(anchor, Network | Linear)
    return anchor.reference(rows)
