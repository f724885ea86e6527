"""scikit-survival's estimators: what ``predict`` returns, a risk score or a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.build import assemble
from hbtvm.frontends.pickles import ObjectArray, Record
from hbtvm.frontends.sklearn.common import (
    column_count,
    input_spec,
    nodes_of,
    one_of,
    require_fitted,
    require_own_arrays,
    tree_of,
    values_of,
)
from hbtvm.frontends.sklearn.linear import linear_of
from hbtvm.graph.graph import Anchor, Graph
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Input, Node
from hbtvm.operators.pointwise import apply

_LOSSES = ("coxph", "squared", "ipcwls")
"""Losses of boosting. Raw scores of the first are risks, those of others logarithms of times."""


def read_cox(model: Record) -> Graph:
    """Read ``CoxPHSurvivalAnalysis``: the log of the hazard ratio."""
    require_fitted(model)
    return _linear(model, model.array("coef_", "f", 1), 0.0)


def read_coxnet(model: Record) -> Graph:
    """Read ``CoxnetSurvivalAnalysis``, with the last alpha of its path as in ``predict(X)``."""
    require_fitted(model)
    coef, offset = model.array("coef_", "f", 2), model.array("offset_", "f", 1)
    if not coef.size or len(offset) != coef.shape[1]:
        raise ModelError(f"the {model.kind} is damaged: it has coefficients of the shape {coef.shape}.")
    return _linear(model, coef[:, -1], -float(offset[-1]))


def read_ipc_ridge(model: Record) -> Graph:
    """Read ``IPCRidge``: a time, whose logarithm is linear."""
    require_fitted(model)
    return _linear(model, model.array("coef_", "f", 1), model.number("intercept_"), logarithm=True)


def read_svm(model: Record) -> Graph:
    """Read ``FastSurvivalSVM``: a risk if it only ranks, else a time."""
    require_fitted(model)
    ranks = model.number("rank_ratio") == 1
    factor = -1.0 if ranks else 1.0
    intercept = model.number("intercept_", 0.0)
    return _linear(model, factor * model.array("coef_", "f", 1), factor * intercept, logarithm=not ranks)


def read_naive_svm(model: Record) -> Graph:
    """Read ``NaiveSurvivalSVM``: the negative decision function of a LinearSVC."""
    require_fitted(model)
    intercept = float(model.array("intercept_", "f").reshape(-1).sum())
    coef = model.array("coef_", "f", 2)
    if len(coef) != 1:
        raise ModelError(f"the {model.kind} is damaged: it has coefficients of the shape {coef.shape}.")
    graph = _linear(model, -coef[0], -intercept)
    nodes = {**graph.output.nodes, "decision": apply("negative", Input(1))}
    return replace(graph, output=OutputSpec("regressor", 1, nodes))


def read_componentwise(model: Record) -> Graph:
    """Read ``ComponentwiseGradientBoostingSurvivalAnalysis``: the sum of its learners of single columns."""
    require_fitted(model)
    weight, rate = np.zeros(column_count(model) + 1), model.number("learning_rate")
    for learner in model.records("estimators_"):
        # The first component is the intercept.
        component = learner.whole("component")
        if component >= len(weight):
            raise ModelError(f"the {model.kind} is damaged: a learner has an unknown column.")
        weight[component] += rate * learner.number("coef_")
    return _linear(model, weight[1:], float(weight[0]), one_of(model, "loss", _LOSSES) != "coxph")


def read_boosting(model: Record) -> Graph:
    """Read ``GradientBoostingSurvivalAnalysis``."""
    require_fitted(model)
    grid = model.get("estimators_")
    if not isinstance(grid, ObjectArray) or len(grid.shape) != 2 or grid.shape[1] != 1:
        raise ModelError(f"the {model.kind} is damaged: its trees are not a column.")
    trees = model.records("estimators_")
    scale = model.array("_scale", "f", 1) if "_scale" in model else np.ones(len(trees))
    if len(scale) < len(trees):
        raise ModelError(f"the {model.kind} is damaged: it has {len(scale)} factors of {len(trees)} trees.")
    one_of(model, "init_", ("zero",))
    rate = model.number("learning_rate")
    require_own_arrays(array for tree in trees for array in (nodes_of(tree), values_of(tree)))
    parts = []
    for tree, factor in zip(trees, scale.astype(np.float64).tolist(), strict=False):
        values = values_of(tree)
        if values.shape[1:] != (1, 1):
            raise ModelError(f"the {model.kind} is damaged: a leaf has {values.shape[1:]} values.")
        parts.append(tree_of(nodes_of(tree), values[:, 0] * (rate * factor)))
    ensemble = assemble(
        parts,
        n_features=column_count(model),
        compare_dtype="float32",
        tree_output=np.zeros(len(parts)),
        base_score=np.zeros(1),
    )
    return _graph(model, ensemble, one_of(model, "loss", _LOSSES) != "coxph")


def read_tree(model: Record) -> Graph:
    """Read ``SurvivalTree`` or ``ExtraSurvivalTree``."""
    require_fitted(model)
    return _graph(model, _forest(model, [model]), allow_nan=_missing(model))


def read_forest(model: Record) -> Graph:
    """Read ``RandomSurvivalForest`` or ``ExtraSurvivalTrees``: the mean of its trees' risks."""
    require_fitted(model)
    trees = model.records("estimators_")
    return _graph(model, _forest(model, trees), allow_nan=bool(trees) and _missing(trees[0]))


def _forest(model: Record, trees: Sequence[Record]) -> TreeEnsemble:
    require_own_arrays(array for tree in trees for array in (nodes_of(tree), values_of(tree)))
    parts = [tree_of(nodes_of(tree), _risks(tree)[:, None]) for tree in trees]
    return assemble(
        parts,
        n_features=column_count(model),
        compare_dtype="float32",
        tree_output=np.zeros(len(parts)),
        base_score=np.zeros(1),
        divisor=max(1, len(parts)),
    )


def _risks(tree: Record) -> np.ndarray:
    """Return the risk of each node, float64: the sum of its cumulative hazards at times of events."""
    values = values_of(tree)
    if tree.get("low_memory", False):
        risks: np.ndarray = values[:, 0, 0]
        return risks
    events = tree.array("is_event_time_", "b", 1)
    if values.shape[1] != len(events):
        raise ModelError(f"the {tree.kind} is damaged: its leaves have {values.shape[1]} times.")
    total: np.ndarray = values[:, events, 0].sum(axis=1)
    return total


def _missing(tree: Record) -> bool:
    """Return whether a tree takes missing values, as it does in releases that store their side."""
    return "missing_go_to_left" in (nodes_of(tree).dtype.names or ())


def _linear(model: Record, coef: np.ndarray, intercept: float, logarithm: bool = False) -> Graph:
    return _graph(model, linear_of(coef[:, None], np.array([intercept]), model.kind), logarithm)


def _graph(model: Record, anchor: Anchor, logarithm: bool = False, allow_nan: bool = False) -> Graph:
    inputs = input_spec(model, allow_nan=allow_nan, allow_inf=False)
    if inputs.n_features != anchor.n_features:
        raise ModelError(f"the {model.kind} is damaged: it has coefficients of {anchor.n_features} columns.")
    raw: Node = Input(1)
    output = OutputSpec("regressor", 1, {"response": apply("exp", raw) if logarithm else raw})
    return Graph("scikit-survival", model.kind, inputs, anchor, output)
