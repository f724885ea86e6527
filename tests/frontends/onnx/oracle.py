"""What ONNX Runtime computes, and what is read of the same model by its references."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pandas as pd

from hbtvm.frontends import from_object
from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.rows.inputs import Inputs

TOLERANCE = 1e-5


def runtime(model: Any, X: Any) -> list[np.ndarray]:
    """ONNX Runtime's outputs; those by class as matrices."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = session.get_inputs()
    feeds = {}
    for one in inputs:
        if isinstance(X, pd.DataFrame):
            column = X[one.name].to_numpy()
            feeds[one.name] = _typed(column[:, None] if len(one.shape) == 2 else column, one.type)
        else:
            feeds[one.name] = _typed(X, one.type)
    found = session.run(None, feeds)
    return [_values(one) for one in found]


def _values(found: Any) -> Any:
    """Numbers by class as matrices; a list of matrices, one for each target, as it is."""
    if isinstance(found, list) and isinstance(found[0], dict):
        return np.array([[row[key] for key in row] for row in found])
    return found


def _typed(X: np.ndarray, kind: str) -> np.ndarray:
    kinds = {
        "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64,
        "tensor(int32)": np.int32, "tensor(bool)": np.bool_,
    }  # fmt: skip
    return X.astype(kinds.get(kind, object))


def predict(graph: Graph, X: Any, output: Any = None) -> Any:
    """As `Model.predict`, with no kernel compiled."""
    compare = "float64" if graph.stages else graph.anchor.compare_dtype
    single = isinstance(X, np.ndarray) and X.dtype == np.float32 and not graph.stages
    if graph.feeds:
        rows = FeedReader(graph.input, graph.feeds, compare, ("float32", "float64")).prepare(X)
    else:
        inputs = Inputs(graph.input, compare, ("float32", "float64"))
        rows = inputs.prepare(X)
        inputs.check(rows)
    for stage in graph.stages:
        made = _scores(stage.anchor, rows[:, list(stage.columns)])
        rows = np.concatenate([rows.astype(np.float64), made], axis=1)
    if graph.stages:
        rows = rows[:, list(graph.columns)]
    anchor = graph.single if single and graph.single is not None else graph.anchor
    return graph.output.compute(output, _scores(anchor, rows))


def _scores(anchor: Any, rows: np.ndarray) -> np.ndarray:
    if isinstance(anchor, TreeEnsemble):
        return reference.margins(anchor, rows)
    scores: np.ndarray = anchor.reference(rows)
    return scores


def check(model: Any, X: Any, *, anchor: str | None = None, tolerance: float = TOLERANCE) -> Graph:
    """Compare what is read of a model with ONNX Runtime; return its graph."""
    graph = from_object(model)
    expected = runtime(model, X)
    if anchor is not None:
        assert type(graph.anchor).__name__ == anchor
    main = np.asarray(predict(graph, X))
    if expected[0].dtype.kind in "OUb" or (
        expected[0].dtype.kind == "i" and graph.output.kind != "regressor"
    ):
        assert main.ravel().tolist() == expected[0].ravel().tolist()
    else:
        assert main.shape == expected[0].shape
        close(main, expected[0], tolerance)
    names = [one for one in ("proba", "decision", "score") if one in graph.output.outputs]
    assert len(names) == len(expected) - 1
    for name, values in zip(names, expected[1:], strict=True):
        found = np.asarray(predict(graph, X, name))
        close(found.reshape(values.shape), values, tolerance)
    return graph


def close(found: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """Equal up to a share of the values' magnitude; NaN and infinities at the same places."""
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)
