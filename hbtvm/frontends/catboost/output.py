"""Outputs of CatBoost's losses and estimators, from raw scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.graph.outputs.output import Kind, OutputSpec
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import sigmoid, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce, select
from hbtvm.words.printable import shown

_BINARY = ("Logloss", "CrossEntropy", "Focal")
_LABELS = ("MultiLogloss", "MultiCrossEntropy")
_CLASSES = ("MultiClass", "MultiClassOneVsAll")
_EXPONENT = ("Poisson", "Tweedie")
_RANKS = (
    "YetiRank", "YetiRankPairwise", "PairLogit", "PairLogitPairwise", "QueryRMSE", "QuerySoftMax",
    "QueryCrossEntropy", "LambdaMart", "StochasticRank", "StochasticFilter", "GroupQuantile",
)  # fmt: skip

_LABEL_TYPES = {"Integer": "int64", "Float": "float64", "String": "O", "Boolean": "bool"}


def loss_of(info: Mapping[str, Any]) -> str:
    """Return the name of the loss that a model was trained with; empty if the file does not say."""
    params = info.get("params")
    function = params.get("loss_function") if isinstance(params, dict) else None
    name = function.get("type") if isinstance(function, dict) else function
    return name.partition(":")[0] if isinstance(name, str) else ""


def estimator_of(info: Mapping[str, Any]) -> str:
    """Return the estimator that a file's loss is for."""
    loss = loss_of(info)
    if loss in (*_BINARY, *_LABELS, *_CLASSES):
        return "CatBoostClassifier"
    return "CatBoostRanker" if loss in _RANKS else "CatBoostRegressor"


def output(estimator: str, info: Mapping[str, Any], width: int) -> OutputSpec:
    """Return the outputs of an estimator.

    `estimator`: its class: ``"CatBoost"``, ``"CatBoostClassifier"`` and so on.
    `info`: the file's values.
    `width`: number of scores.
    Raises `UnsupportedModel` for a classifier of another loss. Raises `ModelError` if labels do not fit.
    """
    raw, loss = Input(width), loss_of(info)
    if estimator == "CatBoostClassifier":
        return _classifier(info, loss, raw)
    kinds: dict[str, Kind] = {"CatBoost": "booster", "CatBoostRanker": "ranker"}
    response: Node = raw
    if estimator == "CatBoostRegressor" and loss in _EXPONENT:
        response = apply("exp", raw)
    if estimator == "CatBoostRegressor" and loss == "RMSEWithUncertainty":
        if width != 2:
            raise ModelError(f"the CatBoost model is damaged: its loss is {loss}, with {width} scores.")
        variance = apply("exp", apply("multiply", select(raw, [1]), 2.0))
        response = concat([select(raw, [0]), variance])
    return OutputSpec(kinds.get(estimator, "regressor"), width, {"response": response, "raw": raw})


def _classifier(info: Mapping[str, Any], loss: str, raw: Node) -> OutputSpec:
    width = raw.width
    if loss in _LABELS:
        nodes = {"index": apply("greater", raw, 0.0), "proba": sigmoid(raw), "raw": raw}
        return OutputSpec("classifier", width, nodes)
    if loss in _BINARY and width == 1:
        labels = _labels(info, 2)
        nodes = {
            "index": apply("greater", raw, _threshold(info)),
            "proba": with_complement(sigmoid(raw)),
            "raw": raw,
        }
        return OutputSpec("classifier", 1, nodes, (labels,))
    if loss in _CLASSES and width > 1:
        proba = softmax(raw) if loss == "MultiClass" else sigmoid(raw)
        nodes = {"index": reduce("argmax", raw), "proba": proba, "raw": raw}
        return OutputSpec("classifier", width, nodes, (_labels(info, width),), keeps_axis=True)
    known = ", ".join((*_BINARY, *_CLASSES, *_LABELS))
    raise UnsupportedModel(
        f"the CatBoostClassifier has the loss '{shown(loss, 60)}' and scores of width {width}, which is not "
        f"supported; supported are {known}."
    )


def _threshold(info: Mapping[str, Any]) -> float:
    """Return the score above which a row is of the second class."""
    probability = info.get("binclass_probability_threshold", 0.5)
    try:
        number = float(probability)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < 1:
        raise ModelError("the CatBoost model is damaged: its probability threshold is not a probability.")
    return 0.0 if number == 0.5 else -math.log(1 / number - 1)


def _labels(info: Mapping[str, Any], count: int) -> np.ndarray:
    """Return the labels in the order of the scores.

    Raises `UnsupportedModel` if training had fewer classes than the user named.
    """
    params = info.get("class_params", info.get("multiclass_params", {}))
    if not isinstance(params, dict):
        raise ModelError("the CatBoost model is damaged: its labels are not an object.")
    order = params.get("class_to_label") or list(range(count))
    names = params.get("class_names") or order
    if not isinstance(names, list) or not isinstance(order, list):
        raise ModelError("the CatBoost model is damaged: its labels are not a list.")
    classes = params.get("classes_count") or len(names)
    if not len(names) == len(order) == classes == count:
        raise UnsupportedModel(
            f"the CatBoostClassifier has {shown(classes, 20)} classes, and training had rows of {count}; "
            "train it without classes that do not occur."
        )
    kind = _LABEL_TYPES.get(str(params.get("class_label_type", "Integer")))
    if kind is None or not all(isinstance(name, (str, int, float)) for name in names):
        raise ModelError("the CatBoost model is damaged: its labels are of an unknown type.")
    try:
        return np.array(names, kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"the CatBoost model is damaged: its labels ({shown(error, most=100)}).") from error
