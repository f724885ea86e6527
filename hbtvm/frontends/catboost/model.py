"""CatBoost's models as graphs: trees over a matrix of numbers, one-hot columns and counters."""

from __future__ import annotations

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.build import feature_count
from hbtvm.frontends.catboost import cbm, json_file
from hbtvm.frontends.catboost.columns import feeds_of
from hbtvm.frontends.catboost.flatbuffers import damaged
from hbtvm.frontends.catboost.output import estimator_of, loss_of, output
from hbtvm.frontends.catboost.parts import Categorical, Numeric, Parts
from hbtvm.frontends.catboost.trees import Splits, ensemble, used
from hbtvm.graph.graph import Graph, InputSpec

_TARGETS = ("MultiLogloss", "MultiCrossEntropy", "MultiRMSE", "MultiRMSEWithMissingValues")
"""Losses of several targets, which each have counters of their own."""


def from_bytes(content: bytes, estimator: str = "") -> Graph:
    """Read the content of a file.

    `estimator`: the class whose outputs the model has; by default the estimator that its loss is for.
    Raises `ModelError` if it is damaged. Raises `UnsupportedModel` if the model reads texts or embeddings, or
    has an unsupported loss.
    """
    is_json = not content.startswith(b"CBM1")
    parts = json_file.read(content) if is_json else cbm.read(content)
    if is_json and parts.counters and loss_of(parts.info) in _TARGETS:
        raise UnsupportedModel(
            "CatBoost's JSON has counters of categories for only one of the model's targets; save it as .cbm."
        )
    if parts.others:
        raise UnsupportedModel(
            f"the CatBoost model reads {' and '.join(parts.others)} features; supported are numbers and "
            "categories."
        )
    if not parts.trees:
        raise UnsupportedModel("the CatBoost model has no trees; hbtvm compiles trained models.")
    name = estimator or estimator_of(parts.info)
    return _graph(parts, name)


def _graph(parts: Parts, estimator: str) -> Graph:
    spec = output(estimator, parts.info, len(parts.bias))
    inputs = _inputs(parts)
    splits = Splits(parts)
    columns = np.zeros(len(parts.numeric) + len(splits.feature) + 1, np.int64)
    for i, feature in enumerate(parts.numeric):
        columns[i] = feature.column
    if not parts.categorical:
        trees = ensemble(parts, splits, columns, inputs.n_features)
        return Graph("catboost", estimator, inputs, trees, spec)
    features = used(parts, splits)
    if not len(features):
        # Constant trees read no column.
        trees = ensemble(parts, splits, columns, inputs.n_features)
        return Graph("catboost", estimator, inputs, trees, spec)
    feeds = feeds_of(parts, inputs.feature_names, features)
    columns = np.zeros(int(features[-1]) + 1, np.int64)
    columns[features] = np.arange(len(features))
    trees = ensemble(parts, splits, columns, len(feeds))
    return Graph("catboost", estimator, inputs, trees, spec, feeds)


def _inputs(parts: Parts) -> InputSpec:
    features: list[Numeric | Categorical] = [*parts.numeric, *parts.categorical]
    places = [feature.column for feature in features]
    if not places or min(places) < 0 or len(set(places)) < len(places):
        raise damaged("its features have no columns, or the same")
    count = feature_count(max(places) + 1)
    names = {feature.column: feature.name or str(feature.column) for feature in features}
    listed = tuple(names.get(column, str(column)) for column in range(count)) if count <= 1 << 17 else ()
    automatic = all(name == str(column) for column, name in enumerate(listed))
    return InputSpec(
        n_features=count,
        feature_names=None if automatic else listed,
        categories={feature.column: () for feature in parts.categorical},
        sparse_refused="CatBoost's categories are not numbers" if parts.categorical else "",
    )
