"""XGBoost's saved models, read as its JSON document (estimators too, see `xgboost_estimator`)."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import ubjson
from hbtvm.frontends.build import Tree, assemble, float32_below
from hbtvm.frontends.xgboost_output import base_margin, booster_output, classifier_output
from hbtvm.pipeline.ensemble import LEAF, CategorySet
from hbtvm.pipeline.output import Kind, OutputSpec
from hbtvm.pipeline.pipeline import InputSpec, Pipeline

_KINDS: dict[str, Kind] = {
    "XGBClassifier": "classifier",
    "XGBRegressor": "regressor",
    "XGBRanker": "ranker",
    "XGBRFClassifier": "classifier",
    "XGBRFRegressor": "regressor",
    "XGBModel": "regressor",
}
_MOST_CATEGORIES = 1 << 24
"""XGBoost reads categories from here on as invalid."""

_SAVED_AS = {"classifier": "XGBClassifier", "regressor": "XGBRegressor", "ranker": "XGBRanker"}


def is_classifier(name: str) -> bool:
    """Whether an estimator class of XGBoost's predicts labels."""
    return _KINDS.get(name) == "classifier"


def from_json(content: str | bytes) -> Pipeline:
    """Read the JSON document that ``save_model("model.json")`` writes.

    A document that an estimator saved says so, and is read as that estimator.

    Raises
    ------
    ModelError
        If the text is no XGBoost model or is damaged.
    UnsupportedModel
        As `read_document`.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"expected an XGBoost model in JSON, but it is damaged or cut short ({error})."
        ) from error
    return from_document(document)


def from_ubjson(content: bytes) -> Pipeline:
    """Read the binary document that ``save_model("model.ubj")`` writes, as `from_json` does."""
    try:
        document = ubjson.loads(content)
    except ValueError as error:
        raise ModelError(
            f"expected an XGBoost model in UBJSON, but it is none, damaged or cut short ({error})."
        ) from error
    return from_document(document)


def from_document(document: Any) -> Pipeline:
    """As `from_json`, for the parsed document."""
    try:
        learner = document["learner"]
        saved = json.loads(learner.get("attributes", {}).get("scikit_learn", "{}"))
        n_classes = int(learner["learner_model_param"]["num_class"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError("expected an XGBoost model, but the JSON document has no learner.") from error
    name = _SAVED_AS.get(saved.get("_estimator_type", ""), "Booster")
    return read_document(document, name, max(n_classes, 2) if name == "XGBClassifier" else None)


def read_document(document: Any, name: str, n_classes: int | None, missing: float = math.nan) -> Pipeline:
    """Read a parsed document as the model of a class.

    Parameters
    ----------
    document
        What ``save_model`` writes, in Python's types.
    name
        The class, such as ``"XGBClassifier"``: estimators use the trees up to the best iteration.
    n_classes
        Number of classes of a classifier, else None.
    missing
        A number that stands for a missing value, beside NaN.

    Raises
    ------
    ModelError
        If it is damaged.
    UnsupportedModel
        If it has no trees by its kind (gblinear), or an objective that is not known.
    """
    try:
        return _read(document["learner"], name, n_classes, missing)
    except (AttributeError, KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise ModelError(f"the XGBoost model is damaged: {type(error).__name__}: {error}.") from error


def _read(learner: Any, name: str, n_classes: int | None, missing: float) -> Pipeline:
    booster = learner["gradient_booster"]
    kind = booster["name"]
    if kind not in ("gbtree", "dart"):
        raise UnsupportedModel(f"the XGBoost booster {kind!r} has no trees; gbtree and dart are supported.")
    model = booster["gbtree"]["model"] if kind == "dart" and "gbtree" in booster else booster["model"]
    objective = learner["objective"]["name"]
    parameters = learner["learner_model_param"]
    n_features = int(parameters["num_feature"])
    n_outputs = max(int(parameters.get("num_class", 0)), int(parameters.get("num_target", 1)), 1)
    use = _trees_in_use(model, learner.get("attributes", {}), name, n_outputs)
    weights = booster.get("weight_drop", []) if kind == "dart" else []
    trees = [_tree(tree, weights[i] if weights else 1.0) for i, tree in enumerate(model["trees"][:use])]
    wide = bool(trees) and trees[0].value.shape[1] > 1
    if n_outputs > len(trees) and not wide:
        # Also keeps a damaged number from asking for all memory.
        raise UnsupportedModel(
            f"the XGBoost {name} has {len(trees)} trees for {n_outputs} scores: it is not fitted."
        )
    output: OutputSpec
    if n_classes is not None:
        if n_classes > max(n_outputs, 2):
            raise ValueError(f"it has {n_outputs} scores for {n_classes} classes")
        output = classifier_output(objective, n_outputs, n_classes)
    else:
        output = booster_output(objective, n_outputs, _KINDS.get(name, "booster"))
    ensemble = assemble(
        trees,
        n_features=n_features,
        compare_dtype="float32",
        tree_output=np.zeros(len(trees)) if wide else model["tree_info"][:use],
        base_score=base_margin(parameters["base_score"], objective, n_outputs),
    )
    names = learner.get("feature_names") or None
    inputs = InputSpec(
        n_features=n_features,
        feature_names=tuple(names) if names else None,
        categories=_categories(model.get("cats")),
        unknown_category="error",
        missing_value=None if math.isnan(missing) else missing,
    )
    return Pipeline("xgboost", name, inputs, ensemble, output)


def _trees_in_use(model: Any, attributes: Any, name: str, n_outputs: int) -> int:
    """Number of trees that predict: all, or for an estimator those up to the best iteration."""
    trees = len(model["trees"])
    if name == "Booster" or "best_iteration" not in attributes:
        return trees
    rounds = int(attributes["best_iteration"]) + 1
    if "iteration_indptr" in model:
        return int(model["iteration_indptr"][rounds])
    parallel = int(model["gbtree_model_param"].get("num_parallel_tree", 1))
    return min(rounds * parallel * n_outputs, trees)


def _tree(tree: Any, weight: float) -> Tree:
    left = np.array(tree["left_children"], np.int64)
    width = max(int(tree["tree_param"].get("size_leaf_vector", 1)), 1)
    condition = np.array(tree["split_conditions"], np.float64).astype(np.float32)
    value = _leaf_vectors(tree, left, width) if width > 1 else condition.astype(np.float64)[:, None]
    return Tree(
        feature=np.array(tree["split_indices"], np.int64),
        threshold=float32_below(condition),
        left=left,
        right=np.array(tree["right_children"], np.int64),
        default_left=np.array(tree["default_left"]).astype(bool),
        # The product of two float32 numbers is exact in float64.
        value=value * float(np.float32(weight)),
        categories=_category_sets(tree),
    )


def _leaf_vectors(tree: Any, left: np.ndarray, width: int) -> np.ndarray:
    """Leaf values of a tree with vector leaves, shape (M, width)."""
    leaf = left == LEAF
    if "leaf_weights" in tree:
        # Leaves name their row of the table in place of a right child.
        table = np.array(tree["leaf_weights"], np.float64).reshape(-1, width)
        value = np.zeros((len(left), width))
        value[leaf] = table[np.array(tree["right_children"])[leaf]]
    else:
        value = np.array(tree["base_weights"], np.float64).reshape(len(left), width)
    return value.astype(np.float32).astype(np.float64)


def _category_sets(tree: Any) -> dict[int, CategorySet]:
    """XGBoost lists the categories that go right; all others, even impossible ones, go left."""
    result = {}
    parts = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    for node, start, size in parts:
        chosen = np.array(tree["categories"][start : start + size], np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < _MOST_CATEGORIES:
            raise ValueError(f"a category is outside 0..{_MOST_CATEGORIES - 1}")
        member = np.ones(int(chosen.max(initial=-1)) + 1, bool)
        member[chosen] = False
        result[int(node)] = CategorySet(member, outside_left=True)
    return result


def _categories(stored: Any) -> dict[int, tuple[Any, ...]]:
    """The categories that XGBoost 3 keeps of data frames: strings in one buffer, or numbers."""
    result: dict[int, tuple[Any, ...]] = {}
    for column, values in enumerate((stored or {}).get("enc", [])):
        if not values.get("values"):
            continue
        if "offsets" in values:
            text = bytes(byte & 0xFF for byte in values["values"])
            # XGBoost counts characters but stores bytes, so beyond ASCII the strings are cut
            # wrongly; such a column has to come as codes.
            if not text.isascii():
                continue
            pairs = itertools.pairwise(values["offsets"])
            result[column] = tuple(text[a:b].decode() for a, b in pairs)
        else:
            result[column] = tuple(values["values"])
    return result
