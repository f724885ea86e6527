"""Random rows for models whose inputs say what they hold: numbers, and categories."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.compiler.candidates.samples import sample_rows
from hbtvm.graph.columns.table import Raw
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.graph import Graph


def random_rows(graph: Graph, rows: int) -> Any:
    """Return random rows without missing values: an array, or a pandas frame if the model knows names.

    Numbers of trees are spread around the thresholds, those of other models are normal.
    Returns None if the model reads texts, columns that the host computes or columns of unknown categories, or
    has names and pandas is not installed.
    """
    spec = graph.input
    if spec.rows_are_values or spec.category_order:
        return None
    X = np.random.default_rng(0).normal(size=(rows, spec.n_features)).astype(np.float32)
    words: dict[int, Any] = {}
    sources: list[int] = []
    for feed in graph.feeds:
        encoder = feed.encoder
        if not isinstance(feed.source, Raw) or (feed.steps and encoder is None):
            return None
        sources.append(feed.source.index)
        if encoder is not None:
            known = [value for value in encoder.categories if isinstance(value, str | int | float)]
            known = [value for value in known if value == value]
            # Spark's labels are texts, also of numbers: a column holds either.
            known = [value for value in known if isinstance(value, str)] or known
            words[feed.source.index] = known
            if not known:
                return None
    if not graph.stages and not isinstance(graph.anchor, Columns):
        # Not every library accepts infinite or missing values.
        sample = sample_rows(graph.anchor, rows, "float32")
        sample = np.nan_to_num(sample, nan=0.0, posinf=0.0, neginf=0.0)
        if not graph.feeds:
            X = sample
        for at, raw in enumerate(sources):
            X[:, raw] = sample[:, at]
    elif graph.feeds and isinstance(graph.anchor, Columns):
        return None
    names = spec.feature_names
    if names is None and not words:
        return _coded(X, graph)
    try:
        import pandas
    except ImportError:
        return None
    frame = pandas.DataFrame(X, columns=names)
    rng = np.random.default_rng(1)
    for raw, known in words.items():
        frame.isetitem(raw, np.array(known, object)[rng.integers(0, len(known), rows)])
    for raw, values in spec.categories.items() if not graph.feeds else ():
        codes = X[:, raw].astype(np.int64)
        if values:
            frame.isetitem(raw, pandas.Categorical.from_codes(codes.clip(0, len(values) - 1), values))
    return frame if names is not None else frame.to_numpy(object)


def _coded(X: np.ndarray, graph: Graph) -> np.ndarray | None:
    """Return rows of categories that the library knows."""
    spec = graph.input
    for raw, values in spec.categories.items():
        if not values:
            continue
        if not all(isinstance(value, int | float) for value in values):
            return None
        codes = X[:, raw].astype(np.int64).clip(0, len(values) - 1)
        X[:, raw] = np.array(values)[codes] if spec.numbers_are_categories else codes
    return X
