"""XGBoost: boosters, scikit-learn estimators and saved models, all read as its JSON document."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import ubjson
from hbtvm.frontends.build import Tree, assemble, feature_count
from hbtvm.frontends.sklearn_common import labels_of
from hbtvm.frontends.xgboost_output import base_margin, booster_output, classifier_output
from hbtvm.pipeline.ensemble import LEAF, CategorySet
from hbtvm.pipeline.output import Kind, OutputSpec
from hbtvm.pipeline.pipeline import InputSpec, Pipeline
from hbtvm.pipeline.rounding import float32_below
from hbtvm.printable import shown

_KINDS: dict[str, Kind] = {
    "XGBClassifier": "classifier",
    "XGBRegressor": "regressor",
    "XGBRanker": "ranker",
    "XGBRFClassifier": "classifier",
    "XGBRFRegressor": "regressor",
    "XGBModel": "regressor",
}
ESTIMATORS = tuple(_KINDS)

_MOST_CATEGORIES = 1 << 24
"""XGBoost reads categories from here on as invalid."""

_MOST_MEMBERS = 1 << 27
"""Bytes that the categorical splits of a model may take here, before equal ones are found."""

_OF_CATEGORIES = ("categories_nodes", "categories_segments", "categories_sizes", "categories")

_SAVED_AS = {"classifier": "XGBClassifier", "regressor": "XGBRegressor", "ranker": "XGBRanker"}


def from_object(model: Any) -> Pipeline:
    """Read an ``xgboost.Booster`` or a fitted estimator of ``xgboost.sklearn``.

    As in XGBoost's own ``predict``, an estimator uses the trees up to ``best_iteration``, a
    booster all of them.

    Raises
    ------
    UnsupportedModel
        If the model is not fitted, has no trees by its kind (gblinear), or an objective that
        is not known.
    """
    name = type(model).__name__
    if name == "Booster":
        return _pipeline(_document(model), "Booster", None)
    if not model.__sklearn_is_fitted__():
        raise UnsupportedModel(f"the {name} is not fitted; hbtvm compiles trained models.")
    n_classes = int(model.n_classes_) if _KINDS[name] == "classifier" else None
    missing = float(model.missing) if model.missing is not None else math.nan
    return _pipeline(_document(model.get_booster()), name, n_classes, missing)


def from_json(content: str | bytes) -> Pipeline:
    """Read the JSON document that ``save_model("model.json")`` writes.

    A document that an estimator saved says so, and is read as that estimator.

    Raises
    ------
    ModelError
        If the text is no XGBoost model or is damaged.
    UnsupportedModel
        As `from_object`.
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
        name = _estimator(saved)
        missing = saved.get("missing")
        missing = math.nan if missing is None else float(missing)
        labels = _labels(saved) if _KINDS.get(name) == "classifier" else None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(document, dict) and "tree_info" in document:
            raise ModelError(
                "this is what LightGBM's dump_model gives, expected what save_model writes (a text)."
            ) from error
        raise ModelError(
            "expected an XGBoost model as save_model writes it, but the document has no whole learner."
        ) from error
    if _KINDS.get(name) != "classifier":
        return _pipeline(document, name, None, missing)
    return _pipeline(document, name, max(n_classes, 2), missing, labels)


def _estimator(saved: Any) -> str:
    """The estimator that says that it saved a document: by its class up to XGBoost 1.5, by its kind since."""
    name = saved.get("type")
    if name in _KINDS:
        return str(name)
    return _SAVED_AS.get(saved.get("_estimator_type", ""), "Booster")


def _labels(saved: Any) -> np.ndarray | None:
    """Class labels other than class numbers, which estimators kept in their documents up to XGBoost 1.5."""
    classes = saved.get("classes_")
    if not isinstance(classes, list) or classes == list(range(len(classes))):
        return None
    return labels_of(classes)


def _document(booster: Any) -> Any:
    # XGBoost's own error is a ValueError, with the stack of its C++ code in it.
    try:
        content = bytes(booster.save_raw("json"))
    except ValueError as error:
        raise UnsupportedModel("the Booster is not fitted; hbtvm compiles trained models.") from error
    return json.loads(content)


def _pipeline(
    document: Any,
    name: str,
    n_classes: int | None,
    missing: float = math.nan,
    labels: np.ndarray | None = None,
) -> Pipeline:
    try:
        return _read(document["learner"], name, n_classes, missing, labels)
    except ModelError:
        raise
    except (AttributeError, KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise ModelError(
            f"the XGBoost model is damaged: {type(error).__name__}: {shown(error, most=200)}."
        ) from error


def _read(
    learner: Any, name: str, n_classes: int | None, missing: float, labels: np.ndarray | None
) -> Pipeline:
    booster = learner["gradient_booster"]
    kind = booster["name"]
    if kind not in ("gbtree", "dart"):
        raise UnsupportedModel(
            f"the XGBoost booster '{shown(kind)}' has no trees; gbtree and dart are supported."
        )
    model = booster["gbtree"]["model"] if kind == "dart" and "gbtree" in booster else booster["model"]
    objective = learner["objective"]["name"]
    parameters = learner["learner_model_param"]
    n_features = feature_count(int(parameters["num_feature"]))
    n_outputs = max(int(parameters.get("num_class", 0)), int(parameters.get("num_target", 1)), 1)
    use = _trees_in_use(model, learner.get("attributes", {}), name, n_outputs)
    weights = booster.get("weight_drop", []) if kind == "dart" else []
    trees = _trees(model["trees"][:use], weights)
    wide = bool(trees) and trees[0].value.shape[1] > 1
    # These also keep a damaged number from asking for all memory.
    if wide and trees[0].value.shape[1] != n_outputs:
        raise ValueError(f"leaves have {trees[0].value.shape[1]} values for {n_outputs} scores")
    if n_outputs > len(trees) and not wide:
        raise UnsupportedModel(
            f"the XGBoost {name} has {len(trees)} trees for {n_outputs} scores: it is not fitted."
        )
    output: OutputSpec
    if n_classes is not None:
        output = classifier_output(objective, n_outputs, n_classes, labels)
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
    if names is not None and (len(names) != n_features or not all(isinstance(one, str) for one in names)):
        raise ValueError(f"there are {len(names)} feature names for {n_features} features")
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
    parameters = model["gbtree_model_param"]
    if "num_parallel_tree" not in parameters:
        # XGBoost 1.3: the estimator's own attributes tell it, in trees of one class.
        saved = json.loads(attributes.get("scikit_learn", "{}"))
        return min(int(saved.get("best_ntree_limit", rounds)) * n_outputs, trees)
    return min(rounds * int(parameters.get("num_parallel_tree", 1)) * n_outputs, trees)


def _trees(stored: Any, weights: Any) -> list[Tree]:
    """All trees, with what each is multiplied by (nothing: 1)."""
    trees, held = [], 0
    for i, one in enumerate(stored):
        trees.append(tree := _tree(one, weights[i] if weights else 1.0))
        held += sum(len(chosen.member) for chosen in (tree.categories or {}).values())
        if held > _MOST_MEMBERS:
            raise UnsupportedModel(
                f"the XGBoost model's categorical splits list more than {_MOST_MEMBERS:,} categories in all."
            )
    return trees


def _tree(tree: Any, weight: float) -> Tree:
    left = np.array(tree["left_children"], np.int64)
    width = max(int(tree["tree_param"].get("size_leaf_vector", 1)), 1)
    condition = np.array(tree["split_conditions"], np.float64).astype(np.float32)
    value = _leaf_vectors(tree, left, width) if width > 1 else condition.astype(np.float64)[:, None]
    return Tree(
        feature=np.array(tree["split_indices"], np.int64),
        threshold=float32_below(condition).astype(np.float64),
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
        values = table[np.array(tree["right_children"])[leaf]]
        value = np.zeros((len(left), width))
        value[leaf] = values
    else:
        value = np.array(tree["base_weights"], np.float64).reshape(len(left), width)
    return value.astype(np.float32).astype(np.float64)


def _category_sets(tree: Any) -> dict[int, CategorySet]:
    """XGBoost lists the categories that go right; all others, even impossible ones, go left."""
    # XGBoost knows categories since 1.3, and reads documents that say nothing of them.
    if not any(field in tree for field in _OF_CATEGORIES):
        if np.any(tree.get("split_type", 0)):
            raise ValueError("a tree has categorical splits, but no categories")
        return {}
    result = {}
    nodes, starts, sizes, listed = (tree[field] for field in _OF_CATEGORIES)
    if sum(sizes) > len(listed) or min(sizes, default=0) < 0:
        raise ValueError("a tree's categorical splits overlap")
    for node, start, size in zip(nodes, starts, sizes, strict=True):
        chosen = np.array(listed[start : start + size], np.int64)
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
            pairs = list(itertools.pairwise(values["offsets"]))
            if any(not 0 <= a <= b <= len(text) for a, b in pairs):
                raise ValueError("the categories' strings overlap")
            result[column] = tuple(text[a:b].decode() for a, b in pairs)
        else:
            result[column] = tuple(values["values"])
    return result
