"""What XGBoost's objectives and estimators make of raw scores, and of the base score."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.graph.outputs.output import Kind, OutputSpec
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import float32_sigmoid, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce
from hbtvm.words.printable import shown

_LINKS = {
    "reg:squarederror": "identity",
    "reg:linear": "identity",
    "reg:squaredlogerror": "identity",
    "reg:pseudohubererror": "identity",
    "reg:absoluteerror": "identity",
    "reg:quantileerror": "identity",
    "reg:logistic": "sigmoid",
    "reg:gamma": "exp",
    "reg:tweedie": "exp",
    "count:poisson": "exp",
    "binary:logistic": "sigmoid",
    "binary:logitraw": "identity",
    "binary:hinge": "hinge",
    "multi:softmax": "class_index",
    "multi:softprob": "softmax",
    "rank:pairwise": "identity",
    "rank:ndcg": "identity",
    "rank:map": "identity",
    "survival:cox": "exp",
    "survival:aft": "exp",
}

_EDGE = np.float32(1e-6)
"""XGBoost keeps a base probability this far from 0 and 1."""


def _link(objective: str) -> str:
    if objective not in _LINKS:
        known = ", ".join(sorted(_LINKS))
        raise UnsupportedModel(
            f"the XGBoost objective '{shown(objective)}' is not supported; supported are {known}."
        )
    return _LINKS[objective]


def base_margin(stored: str, objective: str, n_outputs: int) -> np.ndarray:
    """The base score in the space of raw scores.

    Parameters
    ----------
    stored
        A number, or since XGBoost 3.1 a list of numbers, in JSON; in the space of the response.

    Returns
    -------
    float64, shape (n_outputs,): float32 values.
    """
    link = _link(objective)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        score = np.atleast_1d(np.array(json.loads(stored), np.float64)).astype(np.float32)
        if link == "sigmoid":
            score = np.clip(score, _EDGE, np.float32(1) - _EDGE)
            score = -np.log(np.float32(1) / score - np.float32(1))
        elif link == "exp":
            score = np.log(score)
    if np.isnan(score).any():
        raise ValueError(f"the base score is {stored}")
    return np.broadcast_to(score, n_outputs).astype(np.float64)


def _response(link: str, margin: Node) -> Node:
    """The response to margins, which like them is in float32."""
    functions: dict[str, Callable[[Node], Node]] = {
        "identity": lambda margin: margin,
        "sigmoid": float32_sigmoid,
        "exp": partial(apply, "exp"),
        "hinge": lambda margin: apply("greater", margin, 0.0),
        "class_index": partial(reduce, "argmax"),
        "softmax": softmax,
    }
    if link in ("class_index", "softmax") and margin.width < 2:
        raise ValueError(f"{link} of {margin.width} score, expected several")
    return _rounded(functions[link](margin))


def _rounded(values: Node) -> Node:
    return apply("round_float32", values)


def booster_output(objective: str, n_outputs: int, kind: Kind) -> OutputSpec:
    """Return the outputs of a ``Booster``, a regressor or a ranker."""
    margin = _rounded(Input(n_outputs))
    return OutputSpec(kind, n_outputs, {"response": _response(_link(objective), margin), "raw": margin})


def classifier_output(
    objective: str, n_outputs: int, n_classes: int, labels: np.ndarray | None = None
) -> OutputSpec:
    """Return the outputs of ``XGBClassifier``; without `labels`, the labels are class numbers.

    For two classes, XGBoost treats several columns as a binary label each (multi-label).
    """
    link, margin = _link(objective), _rounded(Input(n_outputs))
    picks = link == "class_index"
    multi_label = n_outputs > 1 and not picks and n_classes == 2
    if labels is not None and not (multi_label or len(labels) == max(n_classes, 2)):
        raise ValueError(f"there are {len(labels)} labels for {max(n_classes, 2)} classes")
    numbers = np.arange(max(n_classes, 2), dtype=np.int32 if picks else np.int64)
    proba = response = _response("softmax" if picks else link, margin)
    if n_outputs == 1:
        proba = _rounded(with_complement(response))
    index = apply("greater", response, 0.5) if multi_label or n_outputs == 1 else reduce("argmax", proba)
    return OutputSpec(
        "classifier",
        n_outputs,
        {"index": reduce("argmax", margin) if picks else index, "proba": proba, "raw": margin},
        () if multi_label else (numbers if labels is None else labels,),
        label_dtype="float64" if multi_label else None,
    )
