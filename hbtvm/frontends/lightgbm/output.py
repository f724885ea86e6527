"""Outputs of LightGBM's objectives and estimators, from raw scores."""

from __future__ import annotations

import math
from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.sklearn.common import labels_of
from hbtvm.graph.outputs.output import Kind, OutputSpec, likeliest
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import sigmoid, signed_square, softmax
from hbtvm.operators.pointwise import apply
from hbtvm.words.printable import shown

_IDENTITY = (
    "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank", "rank_xendcg",
    "custom", "",
)  # fmt: skip
_EXP = ("poisson", "gamma", "tweedie")

_ALIASES = {
    alias: name
    for name, aliases in {
        "regression": "regression_l2 mean_squared_error mse l2 l2_root root_mean_squared_error rmse",
        "regression_l1": "mean_absolute_error l1 mae",
        "multiclass": "softmax",
        "multiclassova": "multiclass_ova ova ovr",
        "cross_entropy": "xentropy",
        "cross_entropy_lambda": "xentlambda",
        "mape": "mean_absolute_percentage_error",
        "rank_xendcg": "xendcg xe_ndcg xe_ndcg_mart xendcg_mart",
        "custom": "none null na",
    }.items()
    for alias in aliases.split()
}
"""Aliases of objectives, which LightGBM accepts in model texts; versions before 2.3 wrote some of them."""


def response_of(objective: str, raw: Node) -> Node:
    """Return an objective's response to raw scores; `objective` is the model text's.

    Raises
    ------
    UnsupportedModel
        If the objective is unknown.
    ModelError
        If its parameters are not numbers, or do not fit the scores.
    """
    name, *rest = objective.split() or [""]
    name = _ALIASES.get(name, name)
    parameters = dict(word.partition(":")[::2] for word in rest)
    if name == "regression":
        return signed_square(raw) if "sqrt" in parameters else raw
    if name in _IDENTITY:
        return raw
    if name in _EXP:
        return apply("exp", raw)
    if name in ("binary", "multiclassova"):
        try:
            scale = float(parameters.get("sigmoid", 1.0))
        except ValueError:
            scale = math.nan
        if not 0 < scale < math.inf:
            raise ModelError(f"the LightGBM model has the damaged objective '{shown(objective)}'.")
        return sigmoid(raw, scale)
    if name == "multiclass":
        if raw.width < 2:
            raise ModelError(
                f"the LightGBM model is damaged: its objective is multiclass, with {raw.width} score."
            )
        return softmax(raw)
    if name == "cross_entropy":
        return sigmoid(raw)
    if name == "cross_entropy_lambda":
        return apply("log1p", apply("exp", raw))
    raise UnsupportedModel(
        f"the LightGBM objective '{shown(name)}' is not supported; LightGBM 4's own objectives are."
    )


def booster_output(objective: str, n_outputs: int, average: int, kind: Kind = "booster") -> OutputSpec:
    """Return the outputs of a ``Booster`` (or a regressor, a ranker)."""
    raw = Input(n_outputs)
    nodes = {"response": response_of(objective, raw), "raw": _margin(raw, average)}
    return OutputSpec(kind, n_outputs, nodes)


def estimator_output(name: str, labels: Any, objective: str, n_outputs: int, average: int) -> OutputSpec:
    """Return the outputs of a fitted scikit-learn estimator of LightGBM.

    Parameters
    ----------
    name
        The estimator's class.
    labels
        The labels of a classifier; None for other estimators, and for a custom objective.
    """
    if labels is None:
        # With a custom objective, LGBMClassifier returns raw scores, too.
        kinds: dict[str, Kind] = {"LGBMRanker": "ranker", "LGBMClassifier": "booster"}
        return booster_output(objective, n_outputs, average, kinds.get(name, "regressor"))
    classes, raw = labels_of(labels), Input(n_outputs)
    response, margin = response_of(objective, raw), _margin(raw, average)
    if len(classes) != n_outputs and not (n_outputs == 1 and len(classes) == 2):
        raise ModelError(f"the {name} is damaged: it has {n_outputs} scores for {len(classes)} classes.")
    nodes = {**likeliest(response), "raw": margin, "decision": margin}
    return OutputSpec("classifier", n_outputs, nodes, (classes,))


def _margin(raw: Node, average: int) -> Node:
    """Return LightGBM's raw scores: sums, although it averages before it transforms."""
    return raw if average == 1 else apply("multiply", raw, float(average))
