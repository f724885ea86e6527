"""The models whose defaults are judged: 24 shapes, of which no record ships."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import catboost_model, higgs_like
from benchmarks.search.spaces import SHAPES, ensemble
from benchmarks.synthetic import graph
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input
from hbtvm.run import read_model

ROWS = (1, 100, 10_000)


def _trained(shape: str) -> Graph:
    """A model of the replay bench: LightGBM, XGBoost or a forest of scikit-learn."""
    anchor = ensemble(shape)
    output = OutputSpec("regressor", anchor.n_outputs, {"response": Input(anchor.n_outputs)})
    return Graph("bench", shape, InputSpec(anchor.n_features), anchor, output)


def _logistic() -> Graph:
    from sklearn.linear_model import LogisticRegression

    X, _ = higgs_like(2_000, 100, 0)
    level = np.digitize(X[:, :4].sum(axis=1), np.linspace(-4, 4, 9))
    return read_model(LogisticRegression(max_iter=50).fit(X, level))


def _perceptron() -> Graph:
    from sklearn.neural_network import MLPClassifier

    X, y = higgs_like(2_000, 40, 0)
    return read_model(MLPClassifier((64, 32), max_iter=5, random_state=0).fit(X, y))


def _boosted(depth: int) -> Graph:
    return read_model(catboost_model(trees=300, depth=depth))


_SHAPES: dict[str, dict[str, Any]] = {
    "500 × 31": {"trees": 500, "leaves": 31, "features": 30, "depth": 11},
    "1,000 × 31, 100 columns": {"trees": 1000, "leaves": 31, "features": 100, "depth": 12, "missing": True},
    "300 × 64": {"trees": 300, "leaves": 64, "features": 50, "depth": 12, "missing": True},
    "400 × depth 8": {"trees": 400, "leaves": 256, "features": 28, "depth": 8},
    "100 × depth 8, mean": {"trees": 100, "leaves": 220, "features": 20, "depth": 8, "precise": True},
    "300 × 120, depth 7": {"trees": 300, "leaves": 120, "features": 100, "depth": 7, "missing": True},
    "100 × 2,000": {"trees": 100, "leaves": 2000, "features": 30, "depth": 20},
    "300 × 500": {"trees": 300, "leaves": 500, "features": 60, "depth": 14, "outputs": 3, "width": 3},
    "60 × 6": {"trees": 60, "leaves": 6, "features": 10, "depth": 3},
    "1,500 × 16, 200 columns": {"trees": 1500, "leaves": 16, "features": 200, "depth": 4, "missing": True},
    "250 × 24, 6 outputs": {"trees": 252, "leaves": 24, "features": 16, "depth": 8, "outputs": 6},
    "1 × 500": {"trees": 1, "leaves": 500, "features": 15, "depth": 16, "precise": True},
}

MODELS: dict[str, Callable[[], Graph]] = {
    **{f"trained {shape}": partial(_trained, shape) for shape in SHAPES},
    **{name: partial(graph, **shape, seed=1) for name, shape in _SHAPES.items()},
    "symmetric, depth 6": partial(_boosted, 6),
    "symmetric, depth 8": partial(_boosted, 8),
    "logistic regression": _logistic,
    "perceptron": _perceptron,
}
"""Models by name: of the replay bench, synthetic forests, CatBoost, and others. No record of their shapes
ships."""
