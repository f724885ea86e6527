"""What graphs predict of users' rows: read as a package reads them, computed by the anchors' references."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.graph.graph import Graph
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.feeds.of_package import reader_of
from hbtvm.runtime.package.file import Package, anchor_facts, pipeline_fields
from hbtvm.runtime.rows.sparse import SparseRows, is_sparse
from hbtvm.runtime.text.library import TextLibrary


def matrix(graph: Graph, X: Any) -> np.ndarray:
    """The rows that kernels of both types would get."""
    package = Package(
        graph.library,
        graph.model,
        graph.input,
        graph.output,
        anchor_facts(graph.anchor),
        {},
        (),
        {},
        stages=graph.stages,  # type: ignore[arg-type]
        **pipeline_fields(graph),
    )
    wide = getattr(graph.anchor, "compare_dtype", "float64") == "float64"
    both = wide or graph.single is not None or graph.stages
    dtypes = ("float32", "float64") if both else ("float32",)
    reader = reader_of(package, dtypes, TextLibrary(b""))
    if is_sparse(X):
        sparse = SparseRows(getattr(reader, "plain", reader), X, "")
        X = np.concatenate([tile.copy() for _, tile in sparse.tiles()])
    rows = reader.prepare(X)
    reader.look(rows)
    return rows


def predict(graph: Graph, X: Any, output: Any = None) -> Any:
    """An output of rows of any kind, as the kernels for the rows' type compute it."""
    return graph.output.compute(output, scores_of(graph, X))


def scores_of(graph: Graph, X: Any) -> np.ndarray:
    """Raw scores of rows of any kind, float64, shape (n, O)."""
    rows = matrix(graph, X)
    single = rows.dtype == np.float32
    for stage in graph.stages:
        scores = _scores(stage.anchor, stage.single if single else None, rows[:, list(stage.columns)])
        # What stages make is float64 beside rows of either type.
        rows = np.concatenate([rows, scores], axis=1)
    last = rows[:, list(graph.columns)] if graph.stages else rows
    return _scores(graph.anchor, graph.single if single else None, last)


def _scores(anchor: Any, single: Any, rows: np.ndarray) -> np.ndarray:
    anchor = anchor if single is None else single
    if isinstance(anchor, TreeEnsemble):
        return margins(anchor, rows.astype(anchor.compare_dtype))
    scores: np.ndarray = anchor.reference(rows)
    return scores
