"""scikit-learn's HistGradientBoosting classifiers and regressors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.build import Tree, assemble
from hbtvm.frontends.sklearn_common import input_spec, labels_of
from hbtvm.pipeline.ensemble import LEAF, CategorySet
from hbtvm.pipeline.output import OutputSpec, Transform
from hbtvm.pipeline.pipeline import InputSpec, Pipeline

_TRANSFORM: dict[str, Transform] = {
    "squared_error": "identity",
    "absolute_error": "identity",
    "quantile": "identity",
    "gamma": "exp",
    "poisson": "exp",
    "log_loss": "sigmoid",
}


def read(model: Any) -> Pipeline:
    """Read a ``HistGradientBoostingClassifier`` or ``HistGradientBoostingRegressor``.

    Raises
    ------
    UnsupportedModel
        If its loss is an object of the user's own.
    """
    output = _output(model)
    columns, categories = _columns(model)
    known, known_row = model._bin_mapper.make_known_categories_bitsets()
    trees = [
        _tree(predictor, columns, _bits(known), known_row)
        for stage in model._predictors
        for predictor in stage
    ]
    ensemble = assemble(
        trees,
        n_features=int(model.n_features_in_),
        compare_dtype="float64",
        tree_output=np.tile(np.arange(output.n_outputs), len(model._predictors)),
        base_score=np.asarray(model._baseline_prediction).ravel(),
    )
    inputs: InputSpec = replace(
        input_spec(model, allow_nan=True, allow_inf=True), categories=categories, numbers_are_categories=True
    )
    return Pipeline("scikit-learn", type(model).__name__, inputs, ensemble, output)


def _output(model: Any) -> OutputSpec:
    loss = model.loss
    if not isinstance(loss, str) or loss not in _TRANSFORM:
        raise UnsupportedModel(
            f"the {type(model).__name__} has the loss {loss!r}; supported are {', '.join(_TRANSFORM)}."
        )
    outputs = int(model.n_trees_per_iteration_)
    if not hasattr(model, "classes_"):
        return OutputSpec(kind="regressor", n_outputs=outputs, transform=_TRANSFORM[loss])
    return OutputSpec(
        kind="classifier",
        n_outputs=outputs,
        transform="sigmoid" if outputs == 1 else "softmax",
        outputs=("label", "proba", "decision"),
        classes=(labels_of(model.classes_),),
        label_rule="raw_positive" if outputs == 1 else "raw_argmax",
    )


def _columns(model: Any) -> tuple[np.ndarray, dict[int, tuple[Any, ...]]]:
    """The input column of each of the trees' columns, and the categories by input column.

    The estimator encodes categorical columns itself, and moves them to the front.
    """
    mask = model.is_categorical_
    if mask is None:
        return np.arange(model.n_features_in_), {}
    first = np.nonzero(mask)[0]
    encoder = model._preprocessor.named_transformers_["encoder"]
    values = {
        int(column): tuple(v for v in known.tolist() if v is not None and v == v)
        for column, known in zip(first, encoder.categories_, strict=True)
    }
    return np.concatenate([first, np.nonzero(~mask)[0]]), values


def _tree(predictor: Any, columns: np.ndarray, known: np.ndarray, known_row: np.ndarray) -> Tree:
    nodes = predictor.nodes
    leaf = nodes["is_leaf"].astype(bool)
    split_feature = np.where(leaf, 0, nodes["feature_idx"].astype(np.int64))
    missing_left = nodes["missing_go_to_left"].astype(bool)
    left_bits = _bits(predictor.raw_left_cat_bitsets)
    categories = {}
    for node in np.nonzero(~leaf & nodes["is_categorical"].astype(bool))[0]:
        member = left_bits[nodes["bitset_idx"][node]].copy()
        unknown = ~member & ~known[known_row[split_feature[node]]]
        # Categories that training never saw go where missing values go.
        member[unknown] = missing_left[node]
        categories[int(node)] = CategorySet(member, outside_left=bool(missing_left[node]))
    return Tree(
        feature=columns[split_feature],
        threshold=nodes["num_threshold"].astype(np.float64),
        left=np.where(leaf, LEAF, nodes["left"].astype(np.int64)),
        right=np.where(leaf, LEAF, nodes["right"].astype(np.int64)),
        default_left=missing_left,
        value=nodes["value"].astype(np.float64)[:, None],
        categories=categories,
    )


def _bits(words: np.ndarray) -> np.ndarray:
    """Sets of numbers below 256 as bool, shape (k, 256), from uint32 of shape (k, 8)."""
    shifted = words[:, :, None] >> np.arange(32, dtype=np.uint32)
    return (shifted & 1).astype(bool).reshape(len(words), 256)
