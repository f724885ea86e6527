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
from hbtvm.frontends.sklearn.common import (
    column_count,
    cover_in,
    input_spec,
    labels_of,
    one_of,
    require_own_arrays,
)
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec, likeliest
from hbtvm.graph.trees.ensemble import LEAF, CategorySet
from hbtvm.operators.base import Input
from hbtvm.operators.formulas import sigmoid, softmax
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce

_LINKS = {
    "squared_error": "identity",
    "absolute_error": "identity",
    "quantile": "identity",
    "gamma": "exp",
    "poisson": "exp",
    "log_loss": "sigmoid",
}
_OLD_NAMES = {
    "least_squares": "identity",
    "least_absolute_deviation": "identity",
    "auto": "sigmoid",
    "binary_crossentropy": "sigmoid",
    "categorical_crossentropy": "sigmoid",
}
"""Names of losses before scikit-learn 1.3."""

_CATEGORIES = 256
"""Size of a set of categories."""


def read(model: Record) -> Graph:
    """Read a ``HistGradientBoostingClassifier`` or ``HistGradientBoostingRegressor``.

    Raises
    ------
    UnsupportedModel
        If its loss is an object of the user's own.
    """
    n_features = column_count(model)
    outputs = model.whole("n_trees_per_iteration_", 1)
    stages = [as_list(stage) for stage in model.sequence("_predictors")]
    if any(len(stage) != outputs for stage in stages):
        raise ModelError(f"the {model.kind} is damaged: an iteration does not have {outputs} trees.")
    output = _output(model, outputs)
    # Checks the number of columns against the data of each, before anything of that size is allocated.
    known = _KnownCategories(model.record("_bin_mapper"), n_features)
    columns, categories = _columns(model, n_features)
    predictors = [predictor for stage in stages for predictor in stage]
    require_own_arrays(
        part.array(name, "Vu") for part in predictors for name in ("nodes", "raw_left_cat_bitsets")
    )
    ensemble = assemble(
        [_tree(predictor, columns, known) for predictor in predictors],
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
    return Graph("scikit-learn", model.kind, inputs, ensemble, output)


def as_list(stage: Any) -> list[Record]:
    """Return the trees of an iteration."""
    if not isinstance(stage, (list, tuple)) or not all(isinstance(tree, Record) for tree in stage):
        raise ModelError("the model is damaged: an iteration is not a list of trees.")
    return list(stage)


def _start(model: Record, outputs: int) -> np.ndarray:
    start = model.array("_baseline_prediction", "f").astype(np.float64).ravel()
    if len(start) != outputs:
        raise ModelError(f"the {model.kind} is damaged: it starts from {len(start)} scores, not {outputs}.")
    return start


def _output(model: Record, outputs: int) -> OutputSpec:
    loss, raw = one_of(model, "loss", (*_LINKS, *_OLD_NAMES)), Input(outputs)
    if "classes_" not in model:
        logarithm = (_LINKS | _OLD_NAMES)[loss] == "exp"
        return OutputSpec("regressor", outputs, {"response": apply("exp", raw) if logarithm else raw})
    labels = labels_of(model.get("classes_"))
    if outputs != (1 if len(labels) <= 2 else len(labels)):
        raise ModelError(f"the {model.kind} is damaged: it has {outputs} scores for {len(labels)} classes.")
    nodes = likeliest(sigmoid(raw) if outputs == 1 else softmax(raw))
    # scikit-learn compared probabilities before 1.5, and compares raw scores since.
    if model.version() >= (1, 5):
        nodes["index"] = apply("greater", raw, 0.0) if outputs == 1 else reduce("argmax", raw)
    return OutputSpec("classifier", outputs, {**nodes, "decision": raw}, (labels,))


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


class _KnownCategories:
    """Return the categories of the trees' columns that training had.

    Raises
    ------
    ModelError
        If there are bins of another number of columns.
    """

    def __init__(self, mapper: Record, n_features: int) -> None:
        self._values = mapper.sequence("bin_thresholds_")
        if len(self._values) != n_features:
            raise ModelError(
                f"the model is damaged: it has bins of {len(self._values)} columns, not {n_features}."
            )
        self._categorical = _mask(mapper, n_features)
        self._masks: dict[int, np.ndarray] = {}

    def of(self, column: int) -> np.ndarray:
        """Return whether training had each category of a column, bool, shape (256,)."""
        if column not in self._masks:
            if not self._categorical[column]:
                raise ModelError("the model is damaged: a split asks for categories of a column of numbers.")
            values = as_array(self._values[column], "a column's categories", "f", 1)
            if not np.all((values >= 0) & (values < _CATEGORIES)):
                raise ModelError("the model is damaged: a category is outside 0..255.")
            self._masks[column] = np.zeros(_CATEGORIES, bool)
            self._masks[column][values.astype(np.int64)] = True
        return self._masks[column]


def _tree(predictor: Record, columns: np.ndarray, known: _KnownCategories) -> Tree:
    nodes = predictor.array("nodes", "V", 1)
    leaf = field(nodes, "is_leaf").astype(bool)
    split_feature = np.where(leaf, 0, field(nodes, "feature_idx").astype(np.int64))
    if np.any(split_feature < 0) or np.any(split_feature >= len(columns)):
        raise ModelError("the model is damaged: a split uses an unknown column.")
    missing_left = field(nodes, "missing_go_to_left").astype(bool)
    left_bits = _bits(predictor.array("raw_left_cat_bitsets", "u", 2))
    set_of = field(nodes, "bitset_idx").astype(np.int64)
    categories = {}
    shared: dict[tuple[int, int, bool], CategorySet] = {}
    for node in np.nonzero(~leaf & field(nodes, "is_categorical", False).astype(bool))[0].tolist():
        if not 0 <= set_of[node] < len(left_bits):
            raise ModelError("the model is damaged: a split has an unknown set of categories.")
        key = (int(set_of[node]), int(split_feature[node]), bool(missing_left[node]))
        if key not in shared:
            chosen, column, otherwise = key
            member = left_bits[chosen].copy()
            # Unknown categories go the way of missing values.
            member[~member & ~known.of(column)] = otherwise
            shared[key] = CategorySet(member, outside_left=otherwise)
        categories[node] = shared[key]
    return Tree(
        feature=columns[split_feature],
        threshold=field(nodes, "num_threshold").astype(np.float64),
        left=np.where(leaf, LEAF, field(nodes, "left").astype(np.int64)),
        right=np.where(leaf, LEAF, field(nodes, "right").astype(np.int64)),
        default_left=missing_left,
        value=field(nodes, "value").astype(np.float64)[:, None],
        categories=categories,
        cover=cover_in(nodes, "count"),
        leaf_id=np.arange(len(nodes)),
    )


def _bits(words: np.ndarray) -> np.ndarray:
    """Sets of numbers below 256 as bool, shape (k, 256), from uint32 of shape (k, 8)."""
    if words.shape[1] != _CATEGORIES // 32:
        raise ModelError("the model is damaged: a set of categories has another size.")
    octets = np.ascontiguousarray(words, "<u4").view(np.uint8)
    bits: np.ndarray = np.unpackbits(octets, axis=1, bitorder="little").view(bool)
    return bits
