"""XGBoost's saved models, read as its JSON document (estimators too, see `estimator`)."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import assemble, feature_count
from hbtvm.frontends.damage import damage_of
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.frontends.xgboost import ubjson
from hbtvm.frontends.xgboost.linear import read_linear
from hbtvm.frontends.xgboost.output import base_margin, booster_output, classifier_output
from hbtvm.frontends.xgboost.trees import read_categories, read_trees
from hbtvm.graph.graph import Graph, InputSpec, KernelAnchor
from hbtvm.graph.outputs.output import Kind, OutputSpec
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.words.printable import shown

_KINDS: dict[str, Kind] = {
    "XGBClassifier": "classifier",
    "XGBRegressor": "regressor",
    "XGBRanker": "ranker",
    "XGBRFClassifier": "classifier",
    "XGBRFRegressor": "regressor",
    "XGBModel": "regressor",
}

_SAVED_AS = {"classifier": "XGBClassifier", "regressor": "XGBRegressor", "ranker": "XGBRanker"}


def is_classifier(name: str) -> bool:
    """Whether an estimator class of XGBoost's predicts labels."""
    return _KINDS.get(name) == "classifier"


def from_json(content: str | bytes) -> Graph:
    """Read the JSON document that ``save_model("model.json")`` writes.

    A document that an estimator saved says so, and is read as that estimator. Raises `ModelError` if the text
    is no XGBoost model or is damaged. Raises `UnsupportedModel` as `read_document`.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"expected an XGBoost model in JSON, but it is damaged or cut short ({error})."
        ) from error
    return from_document(document)


def from_ubjson(content: bytes) -> Graph:
    """Read the binary document that ``save_model("model.ubj")`` writes, as `from_json` does."""
    try:
        document = ubjson.loads(content)
    except ValueError as error:
        raise ModelError(
            "expected an XGBoost model in UBJSON, but it is damaged, cut short or of another format "
            f"({error})."
        ) from error
    return from_document(document)


def from_document(document: Any) -> Graph:
    """Read the parsed document, as `from_json`."""
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
                "expected the text that save_model writes, got the result of LightGBM's dump_model."
            ) from error
        raise ModelError(
            "expected an XGBoost model as save_model writes it, but the document has no whole learner."
        ) from error
    if _KINDS.get(name) != "classifier":
        return read_document(document, name, None, missing)
    return read_document(document, name, max(n_classes, 2), missing, labels)


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


def read_document(
    document: Any,
    name: str,
    n_classes: int | None,
    missing: float = math.nan,
    labels: np.ndarray | None = None,
) -> Graph:
    """Read a parsed document as the model of a class.

    `document`: what ``save_model`` writes, in Python's types.
    `name`: the class, such as ``"XGBClassifier"``: estimators use the trees up to the best iteration.
    `n_classes`: number of classes of a classifier, else None.
    `missing`: a number that stands for a missing value, beside NaN.
    `labels`: class labels of a classifier, where they are others than 0, 1, ...
    Raises `ModelError` if it is damaged. Raises `UnsupportedModel` if its booster or its objective is
    not known.
    """
    with damage_of("the XGBoost model"):
        return _read(document["learner"], name, n_classes, missing, labels)


def _read(learner: Any, name: str, n_classes: int | None, missing: float, labels: np.ndarray | None) -> Graph:
    booster = learner["gradient_booster"]
    objective = learner["objective"]["name"]
    parameters = learner["learner_model_param"]
    n_features = feature_count(int(parameters["num_feature"]))
    n_outputs = max(int(parameters.get("num_class", 0)), int(parameters.get("num_target", 1)), 1)
    if booster["name"] == "gblinear":
        weights, categories = booster["model"]["weights"], read_categories(None)
        # Also keeps a damaged number from asking for all memory.
        if n_outputs > len(weights):
            raise ValueError(f"there are {len(weights)} weights for {n_outputs} scores")
        anchor: KernelAnchor = read_linear(
            weights, n_features, base_margin(parameters["base_score"], objective, n_outputs)
        )
    else:
        anchor, categories = _trees(learner, booster, name, n_features, n_outputs)
    output: OutputSpec
    if n_classes is not None:
        if n_classes > max(n_outputs, 2):
            raise ValueError(f"it has {n_outputs} scores for {n_classes} classes")
        output = classifier_output(objective, n_outputs, n_classes, labels)
    else:
        output = booster_output(objective, n_outputs, _KINDS.get(name, "booster"))
    names = learner.get("feature_names") or None
    if names is not None and (len(names) != n_features or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"there are {len(names)} feature names for {n_features} features")
    inputs = InputSpec(
        n_features=n_features,
        feature_names=tuple(names) if names else None,
        categories=categories,
        unknown_category="error",
        missing_value=None if math.isnan(missing) else missing,
        # XGBoost refuses infinities in the matrices that linear boosters read.
        allow_inf=booster["name"] != "gblinear",
    )
    return Graph("xgboost", name, inputs, anchor, output)


def _trees(
    learner: Any, booster: Any, name: str, n_features: int, n_outputs: int
) -> tuple[TreeEnsemble, dict[int, tuple[Any, ...]]]:
    """Return the trees that predict, and the categories of their columns."""
    kind = booster["name"]
    if kind not in ("gbtree", "dart"):
        raise UnsupportedModel(
            f"the XGBoost booster '{shown(kind)}' is not known; gbtree, dart and gblinear are supported."
        )
    model = booster["gbtree"]["model"] if kind == "dart" and "gbtree" in booster else booster["model"]
    use = _trees_in_use(model, learner.get("attributes", {}), name, n_outputs)
    weights = booster.get("weight_drop", []) if kind == "dart" else []
    trees = read_trees(model["trees"][:use], weights)
    wide = bool(trees) and trees[0].value.shape[1] > 1
    # These also keep a damaged number from asking for all memory.
    if wide and trees[0].value.shape[1] != n_outputs:
        raise ValueError(f"leaves have {trees[0].value.shape[1]} values for {n_outputs} scores")
    if n_outputs > len(trees) and not wide:
        raise UnsupportedModel(
            f"the XGBoost {name} has {len(trees)} trees for {n_outputs} scores: it is not fitted."
        )
    ensemble = assemble(
        trees,
        n_features=n_features,
        compare_dtype="float32",
        tree_output=np.zeros(len(trees)) if wide else model["tree_info"][:use],
        base_score=base_margin(
            learner["learner_model_param"]["base_score"], learner["objective"]["name"], n_outputs
        ),
    )
    return ensemble, read_categories(model.get("cats"))


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
        # XGBoost 1.3 stores it in the estimator's attributes, in trees of one class.
        saved = json.loads(attributes.get("scikit_learn", "{}"))
        return min(int(saved.get("best_ntree_limit", rounds)) * n_outputs, trees)
    return min(rounds * int(parameters.get("num_parallel_tree", 1)) * n_outputs, trees)
