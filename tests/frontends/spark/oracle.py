"""What hbtvm computes of a graph for a frame, by plain numpy, without compiled kernels; and its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from hbtvm.graph.trees.ensemble import TreeEnsemble
from tests.feeds import feed_matrix

INF, NAN = float("inf"), float("nan")
SCHEMA = "a double, b double, c string, i long, three double, two double, y double"


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


def training_rows() -> pd.DataFrame:
    """Return numbers and texts to train on."""
    rng = np.random.default_rng(0)
    count = 60
    a, b = rng.normal(size=(2, count))
    at = np.arange(count)
    texts = np.array(["x", "y", "z"], object)[at % 3]
    numbers = rng.integers(0, 4, count)
    return pd.DataFrame(
        {
            "a": a,
            "b": b,
            "c": texts,
            "i": numbers,
            "three": at % 3 * 1.0,
            "two": at % 2 * 1.0,
            "y": abs(a) + 0.1,
        }
    )


def tested_rows(train: pd.DataFrame) -> pd.DataFrame:
    """Rows with missing and unknown values, and numbers on edges of bins."""
    frame = train.head(20).copy()
    frame.loc[:7, "a"] = [NAN, 0.0, -1e-300, 1e-300, 0.5, np.nextafter(0.5, 1), np.nextafter(0.5, 0), -0.5]
    frame.loc[8:10, "b"] = [NAN, 1.0, 1e6]
    frame.loc[11:12, "c"] = [None, "unknown"]
    frame.loc[13, "i"] = 77
    return frame


def array_of(value: Any) -> np.ndarray:
    """Return a vector or a number of Spark as an array."""
    return value.toArray() if hasattr(value, "toArray") else np.array([value], np.float64)


def edge_rows(graph: Graph, X: np.ndarray) -> np.ndarray:
    """Return rows with thresholds and their neighbours, categories that do not exist, NaN and infinities."""
    added = []
    for column in range(X.shape[1]):
        values = [0.5, 1.5, 7.0, -1.0, -0.0, 2.0]
        trees = graph.anchor
        if isinstance(trees, TreeEnsemble):
            values += [NAN, INF, -INF]
            source = [feed.source.index for feed in graph.feeds] or list(range(trees.n_features))  # type: ignore[union-attr]
            numeric = (trees.left >= 0) & (trees.category_set < 0)
            cuts = [
                trees.threshold[numeric & (trees.feature == i)] for i, at in enumerate(source) if at == column
            ]
            for cut in np.unique(np.concatenate([*cuts, []])).tolist():
                values += [cut, float(np.nextafter(cut, INF)), float(np.nextafter(cut, -INF))]
        for value in values:
            row = X[5].copy()
            row[column] = value
            added.append(row)
    return np.vstack([X, added])


def frame_of(session: Any, frame: pd.DataFrame) -> Any:
    """Return rows as a frame of Spark."""
    values = frame.astype(object).to_numpy().tolist()
    texts = list(frame.columns).index("c")
    for row in values:
        row[texts] = row[texts] if isinstance(row[texts], str) else None
    return session.createDataFrame(values, SCHEMA)


def applied(model: Any, frame: Any) -> Any:
    """Apply a stage now, as Spark is slow to plan chains; columns keep their facts on categories."""
    seen = model.transform(frame)
    return frame.sparkSession.createDataFrame(seen.collect(), seen.schema, verifySchema=False)


def _anchor(anchor: Any, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        result = anchor.reference(x) if hasattr(anchor, "reference") else reference.margins(anchor, x)
    return np.asarray(result)


def _column(column: pd.Series) -> np.ndarray:
    values = column.to_numpy()
    if values.dtype.kind in "iub":
        return values.astype(np.float64)
    return values if values.dtype.kind == "f" else np.array([None if v != v else v for v in values], object)
