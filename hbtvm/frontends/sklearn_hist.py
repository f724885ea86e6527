"""scikit-learn's HistGradientBoosting classifiers and regressors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.build import Tree, assemble
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.arrays import field
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.sklearn_common import input_spec, labels_of, one_of
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
_OLD_NAMES: dict[str, Transform] = {
    "least_squares": "identity",
    "least_absolute_deviation": "identity",
    "auto": "sigmoid",
    "binary_crossentropy": "sigmoid",
    "categorical_crossentropy": "sigmoid",
}
"""Names of losses before scikit-learn 1.3."""

_CATEGORIES = 256
"""Numbers that a set of categories tells apart."""


def read(model: Record) -> Pipeline:
    """Read a ``HistGradientBoostingClassifier`` or ``HistGradientBoostingRegressor``.

    Raises
    ------
    UnsupportedModel
        If its loss is an object of the user's own.
    """
    n_features = model.whole("n_features_in_", 1)
    outputs = model.whole("n_trees_per_iteration_", 1)
    stages = [as_list(stage) for stage in model.sequence("_predictors")]
    if any(len(stage) != outputs for stage in stages):
        raise ModelError(f"the {model.kind} is damaged: an iteration has not {outputs} trees.")
    output = _output(model, outputs)
    # Holds the number of columns against what there is of each, before anything of that size is made.
    known, known_row = _known_categories(model.record("_bin_mapper"), n_features)
    columns, categories = _columns(model, n_features)
    ensemble = assemble(
        [_tree(predictor, columns, known, known_row) for stage in stages for predictor in stage],
        n_features=n_features,
        compare_dtype="float64",
        tree_output=np.tile(np.arange(outputs if stages else 0), len(stages)),
        base_score=_start(model, outputs),
    )
    inputs: InputSpec = replace(
        input_spec(model, allow_nan=True, allow_inf=True),
        categories=categories,
        numbers_are_categories=True,
    )
    return Pipeline("scikit-learn", model.kind, inputs, ensemble, output)


def as_list(stage: Any) -> list[Record]:
    """The trees of one iteration."""
    if not isinstance(stage, (list, tuple)) or not all(isinstance(tree, Record) for tree in stage):
        raise ModelError("the model is damaged: an iteration is no list of trees.")
    return list(stage)


def _start(model: Record, outputs: int) -> np.ndarray:
    start = model.array("_baseline_prediction", "f").astype(np.float64).ravel()
    if len(start) != outputs:
        raise ModelError(f"the {model.kind} is damaged: it starts from {len(start)} scores, not {outputs}.")
    return start


def _output(model: Record, outputs: int) -> OutputSpec:
    loss = one_of(model, "loss", (*_TRANSFORM, *_OLD_NAMES))
    if "classes_" not in model:
        transform = (_TRANSFORM | _OLD_NAMES)[loss]
        return OutputSpec(kind="regressor", n_outputs=outputs, transform=transform)
    labels = labels_of(model.get("classes_"))
    if outputs != (1 if len(labels) <= 2 else len(labels)):
        raise ModelError(f"the {model.kind} is damaged: it has {outputs} scores for {len(labels)} classes.")
    # scikit-learn compared probabilities before 1.5, and compares raw scores since.
    raw: Any = "raw_positive" if outputs == 1 else "raw_argmax"
    return OutputSpec(
        kind="classifier",
        n_outputs=outputs,
        transform="sigmoid" if outputs == 1 else "softmax",
        outputs=("label", "proba", "decision"),
        classes=(labels,),
        label_rule=raw if model.version() >= (1, 5) else "argmax",
    )


def _columns(model: Record, n_features: int) -> tuple[np.ndarray, dict[int, tuple[Any, ...]]]:
    """The input column of each of the trees' columns, and the categories by input column.

    Since scikit-learn 1.4 the estimator encodes categorical columns itself, and moves them to the
    front; before, it took them as they were, as numbers below 256.
    """
    if model.get("is_categorical_") is None or model.get("_preprocessor", None) is None:
        return np.arange(n_features), {}
    mask = _mask(model, n_features)
    first = np.nonzero(mask)[0]
    encoders = [
        part[1]
        for part in model.record("_preprocessor").sequence("transformers_")
        if isinstance(part, tuple) and len(part) == 3 and part[0] == "encoder"
    ]
    if len(encoders) != 1 or not isinstance(encoders[0], Record):
        raise ModelError(f"the {model.kind} is damaged: it has no encoder of its categories.")
    known = encoders[0].sequence("categories_")
    if len(known) != len(first):
        raise ModelError(f"the {model.kind} is damaged: it has categories of {len(known)} columns.")
    values = {
        int(column): tuple(v for v in _plain(stored) if v is not None and v == v)
        for column, stored in zip(first, known, strict=True)
    }
    return np.concatenate([first, np.nonzero(~mask)[0]]), values


def _plain(stored: Any) -> list[Any]:
    values: list[Any] = as_array(stored, "the categories of a column", "biufUO", 1).tolist()
    return values


def _mask(owner: Record, n_features: int) -> np.ndarray:
    mask = owner.array("is_categorical_", "bu", 1).astype(bool)
    if len(mask) != n_features:
        raise ModelError(f"the {owner.kind} is damaged: it knows of {len(mask)} columns, not {n_features}.")
    return mask


def _known_categories(mapper: Record, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """The categories that training saw.

    Returns
    -------
    bool, shape (categorical columns, 256), and int64, shape (n_features,): the row of each column.
    """
    thresholds = mapper.sequence("bin_thresholds_")
    if len(thresholds) != n_features:
        raise ModelError(f"the model is damaged: it has bins of {len(thresholds)} columns, not {n_features}.")
    columns = np.nonzero(_mask(mapper, n_features))[0]
    row_of = np.zeros(n_features, np.int64)
    row_of[columns] = np.arange(len(columns))
    known = np.zeros((max(len(columns), 1), _CATEGORIES), bool)
    for row, column in enumerate(columns):
        values = as_array(thresholds[column], "a column's categories", "f", 1)
        if not np.all((values >= 0) & (values < _CATEGORIES)):
            raise ModelError("the model is damaged: a category is outside 0..255.")
        known[row, values.astype(np.int64)] = True
    return known, row_of


def _tree(predictor: Record, columns: np.ndarray, known: np.ndarray, known_row: np.ndarray) -> Tree:
    nodes = predictor.array("nodes", "V", 1)
    leaf = field(nodes, "is_leaf").astype(bool)
    split_feature = np.where(leaf, 0, field(nodes, "feature_idx").astype(np.int64))
    if np.any(split_feature < 0) or np.any(split_feature >= len(columns)):
        raise ModelError("the model is damaged: a split uses a column that is not there.")
    missing_left = field(nodes, "missing_go_to_left").astype(bool)
    left_bits = _bits(predictor.array("raw_left_cat_bitsets", "u", 2))
    set_of = field(nodes, "bitset_idx").astype(np.int64)
    categories = {}
    for node in np.nonzero(~leaf & field(nodes, "is_categorical", False).astype(bool))[0]:
        if not 0 <= set_of[node] < len(left_bits):
            raise ModelError("the model is damaged: a split has a set of categories that is not there.")
        member = left_bits[set_of[node]].copy()
        unknown = ~member & ~known[known_row[split_feature[node]]]
        # Categories that training never saw go where missing values go.
        member[unknown] = missing_left[node]
        categories[int(node)] = CategorySet(member, outside_left=bool(missing_left[node]))
    return Tree(
        feature=columns[split_feature],
        threshold=field(nodes, "num_threshold").astype(np.float64),
        left=np.where(leaf, LEAF, field(nodes, "left").astype(np.int64)),
        right=np.where(leaf, LEAF, field(nodes, "right").astype(np.int64)),
        default_left=missing_left,
        value=field(nodes, "value").astype(np.float64)[:, None],
        categories=categories,
    )


def _bits(words: np.ndarray) -> np.ndarray:
    """Sets of numbers below 256 as bool, shape (k, 256), from uint32 of shape (k, 8)."""
    if words.shape[1] != _CATEGORIES // 32:
        raise ModelError("the model is damaged: a set of categories has another size.")
    shifted = words[:, :, None] >> np.arange(32, dtype=np.uint32)
    return (shifted & 1).astype(bool).reshape(len(words), _CATEGORIES)
