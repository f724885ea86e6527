"""Predictions of a model as the runtime makes them of users' rows, with no kernel compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.native.counters import CounterFunctions
from hbtvm.runtime.rows.inputs import Inputs


def predict(graph: Graph, X: Any, output: Any = None, counters: CounterFunctions | None = None) -> Any:
    """As `Model.predict`; an `InputError` where the rows don't fit.

    `counters`: the compiled code of counters; None for numpy.
    """
    rows = matrix(graph, X, counters)
    return graph.output.compute(output, reference.margins(graph.anchor, rows))


def matrix(graph: Graph, X: Any, counters: CounterFunctions | None = None) -> Any:
    """Return the matrix that a kernel reads of rows."""
    ensemble, dtypes = graph.anchor, ("float32", "float64")
    inputs: Inputs | FeedReader = (
        FeedReader(graph.input, graph.feeds, ensemble.compare_dtype, dtypes)
        if graph.feeds
        else Inputs(graph.input, ensemble.compare_dtype, dtypes)
    )
    if isinstance(inputs, FeedReader):
        inputs.counters.use(counters)
    rows = inputs.prepare(X)
    inputs.check(rows)
    return rows


def leaf_numbers(trees: TreeEnsemble, rows: np.ndarray) -> np.ndarray:
    """Return the library's numbers of the leaves that a matrix's rows reach, shape (n, T)."""
    assert trees.leaf_id is not None and trees.leaf_id.dtype == np.int32
    result: np.ndarray = trees.leaf_id[reference.leaves(trees, rows) + trees.offset[:-1]]
    return result
