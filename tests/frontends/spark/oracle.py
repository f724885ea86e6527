"""What hbtvm computes of a graph for a frame, by plain numpy, without compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from tests.feeds import feed_matrix


def scores(graph: Graph, rows: pd.DataFrame | np.ndarray) -> np.ndarray:
    """Return the raw scores of rows, float64, shape (n, scores)."""
    return _anchor(graph.anchor, matrix_of(graph, rows))


def matrix_of(graph: Graph, rows: pd.DataFrame | np.ndarray) -> np.ndarray:
    """Return the matrix that the graph's anchor reads of rows."""
    if isinstance(rows, pd.DataFrame):
        assert graph.input.feature_names is not None
        raw = [_column(rows[name]) for name in graph.input.feature_names]
    else:
        raw = list(rows.T)
    x = feed_matrix(graph.feeds, raw, "float64") if graph.feeds else np.column_stack(raw)
    for stage in graph.stages:
        x = np.hstack([x, _anchor(stage.anchor, x[:, list(stage.columns)])])
    return x[:, list(graph.columns)] if graph.stages else x


def answer(graph: Graph, rows: pd.DataFrame | np.ndarray, output: Any = None) -> Any:
    """As `Model.predict`, or as `Model.transform` of a graph that transforms."""
    raw = scores(graph, rows)
    return raw if graph.output.kind == "transformer" else graph.output.compute(output, raw)


def _anchor(anchor: Any, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        result = anchor.reference(x) if hasattr(anchor, "reference") else reference.margins(anchor, x)
    return np.asarray(result)


def _column(column: pd.Series) -> np.ndarray:
    values = column.to_numpy()
    if values.dtype.kind in "iub":
        return values.astype(np.float64)
    return values if values.dtype.kind == "f" else np.array([None if v != v else v for v in values], object)
