"""What XGBoost's objectives and estimators make of raw scores, and of the base score."""

from __future__ import annotations

import json

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.graph.outputs.output import Kind, OutputSpec
from hbtvm.graph.outputs.transforms import Transform
from hbtvm.words.printable import shown

_TRANSFORM: dict[str, Transform] = {
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


def _transform(objective: str) -> Transform:
    if objective not in _TRANSFORM:
        known = ", ".join(sorted(_TRANSFORM))
        raise UnsupportedModel(
            f"the XGBoost objective '{shown(objective)}' is not supported; supported are {known}."
        )
    return _TRANSFORM[objective]


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
    transform = _transform(objective)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        score = np.atleast_1d(np.array(json.loads(stored), np.float64)).astype(np.float32)
        if transform == "sigmoid":
            score = np.clip(score, _EDGE, np.float32(1) - _EDGE)
            score = -np.log(np.float32(1) / score - np.float32(1))
        elif transform == "exp":
            score = np.log(score)
    if np.isnan(score).any():
        raise ValueError(f"the base score is {stored}")
    return np.broadcast_to(score, n_outputs).astype(np.float64)


def booster_output(objective: str, n_outputs: int, kind: Kind) -> OutputSpec:
    """What a ``Booster``, a regressor or a ranker returns."""
    return OutputSpec(
        kind=kind, n_outputs=n_outputs, transform=_transform(objective), dtype="float32", outputs=("raw",)
    )


def classifier_output(
    objective: str, n_outputs: int, n_classes: int, labels: np.ndarray | None = None
) -> OutputSpec:
    """What ``XGBClassifier`` returns: its labels are class numbers, unless others are given.

    XGBoost takes several columns for two classes as one yes or no for each (multi-label).
    """
    transform = _transform(objective)
    several = n_outputs > 1 and transform != "class_index"
    each = several and n_classes == 2
    if labels is not None and not (each or len(labels) == max(n_classes, 2)):
        raise ValueError(f"there are {len(labels)} labels for {max(n_classes, 2)} classes")
    label_type = np.int32 if transform == "class_index" else np.int64
    numbers = np.arange(max(n_classes, 2), dtype=label_type)
    return OutputSpec(
        kind="classifier",
        n_outputs=n_outputs,
        transform=transform,
        dtype="float32",
        outputs=("label", "proba", "raw"),
        classes=() if each else (numbers if labels is None else labels,),
        label_rule="each_above_half" if each else "above_half" if n_outputs == 1 else "argmax",
        label_dtype="float64" if each else None,
    )
