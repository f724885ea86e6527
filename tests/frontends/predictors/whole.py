"""Models with everything that is in front of them or within: what is read of them against their library."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from tests.frontends.predictors.oracle import METHODS, same
from tests.staged import outputs_of


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
