"""Predictions of a model as the runtime makes them of users' rows, with no kernel compiled."""

from __future__ import annotations

from typing import Any

from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.rows.inputs import Inputs


def predict(graph: Graph, X: Any, output: Any = None) -> Any:
    """As `Model.predict`; an `InputError` where the rows don't fit."""
    ensemble, dtypes = graph.anchor, ("float32", "float64")
    inputs: Inputs | FeedReader = (
        FeedReader(graph.input, graph.feeds, ensemble.compare_dtype, dtypes)
        if graph.feeds
        else Inputs(graph.input, ensemble.compare_dtype, dtypes)
    )
    rows = inputs.prepare(X)
    inputs.check(rows)
    return graph.output.compute(output, reference.margins(ensemble, rows))
