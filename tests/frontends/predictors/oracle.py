"""What fitted estimators predict: as scikit-learn does, and by the operators' references."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from tests.answers import METHODS, same
from tests.staged import scores_of


def found(graph: Graph, rows: np.ndarray, output: Any = None) -> Any:
    """An output of a graph, by the operators' references."""
    scores = scores_of(graph, rows)
    return scores if graph.output.kind == "transformer" else graph.output.compute(output, scores)


def check(
    model: Any, rows: np.ndarray, rtol: float = 1e-9, atol: float = 1e-11, single: bool = True
) -> Graph:
    """Compare all outputs of a fitted model with its library's.

    Parameters
    ----------
    rows
        float64, shape (n, F); also tried in float32.
    rtol, atol
        How far numbers may be apart for float64 rows. Labels are the same.
    single
        Whether the library's answers for float32 rows are those for the same numbers in float64, up to 1e-5.
    """
    graph = from_object(model)
    # Of the same numbers in float32 the library computes some sums in float32.
    for own, wide in ((rows, (rtol, atol)), (rows.astype(np.float32), (1e-5, 1e-5))):
        if own.dtype == np.float32 and not single:
            continue
        same(found(graph, own), model.predict(own), *wide)
        offered = [output for output, method in METHODS.items() if hasattr(model, method)]
        assert [output for output in METHODS if output in graph.output.outputs] == offered
        for output in offered:
            same(found(graph, own, output), getattr(model, METHODS[output])(own), *wide)
    return graph
