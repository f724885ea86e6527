"""NGBoost's estimators: each parameter of a distribution is a scaled sum of learners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import assemble, feature_count
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.pickles.arrays import field
from hbtvm.frontends.pickles.records import as_array, kind_of
from hbtvm.frontends.sklearn.common import accepts_missing, nodes_of, require_own_arrays, tree_of, values_of
from hbtvm.frontends.sklearn.linear import REGRESSORS, linear_of
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.networks.network import Linear
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import softmax
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce, select
from hbtvm.words.printable import shown

_MOST_WEIGHTS = 1 << 24
"""Bound of the coefficients of linear learners, as files may claim any number of columns."""

_TREES = ("DecisionTreeRegressor", "ExtraTreeRegressor")


def _first(raw: Node) -> Node:
    return select(raw, [0])


def _exponential(raw: Node) -> Node:
    return apply("exp", _first(raw))


def _log_normal(raw: Node) -> Node:
    variance = apply("square", apply("exp", select(raw, [1])))
    return apply("exp", apply("add", _first(raw), apply("multiply", variance, 0.5)))


def _gamma(raw: Node) -> Node:
    return apply("divide", _exponential(raw), apply("exp", select(raw, [1])))


_MEANS: dict[str, tuple[int, Callable[[Node], Node]]] = {
    "Normal": (2, _first),
    "NormalFixedVar": (1, _first),
    "Laplace": (2, _first),
    "TFixedDf": (2, _first),
    "TFixedDfFixedVar": (1, _first),
    "LogNormal": (2, _log_normal),
    "Exponential": (1, _exponential),
    "Poisson": (1, _exponential),
    "Gamma": (2, _gamma),
}
"""By distribution: the number of its parameters, and its mean, which ``predict`` returns."""


def read(model: Record) -> Graph:
    """Read an ``NGBRegressor``, ``NGBSurvival`` or ``NGBClassifier``.

    Raw scores are the parameters as NGBoost adds them up (``pred_param``).

    Raises
    ------
    UnsupportedModel
        If the mean of its distribution is not supported, if its learners are neither trees nor linear, or if
        it is not fitted.
    """
    if not model.get("base_models", None):
        raise UnsupportedModel(f"the {model.kind} is not fitted; hbtvm compiles trained models.")
    distribution = _distribution(model)
    classes = model.whole("K", 2) if distribution == "Categorical" else 0
    if classes:
        parameters = classes - 1
    elif distribution in _MEANS:
        parameters = _MEANS[distribution][0]
    else:
        raise UnsupportedModel(
            f"the {model.kind} has the distribution {shown(distribution, 40)}, which is not supported; "
            f"supported are {', '.join(_MEANS)} and k_categorical."
        )
    anchor, allow_nan = _anchor(model, parameters, 1 if classes else 0)
    raw = Input(anchor.n_outputs)
    if classes:
        # The first class's logit is 0.
        proba = softmax(raw)
        nodes = {"index": reduce("argmax", proba), "proba": proba}
        output = OutputSpec("classifier", raw.width, nodes, (np.arange(classes),))
    else:
        mean = _MEANS[distribution][1](raw)
        output = OutputSpec("regressor", raw.width, {"response": mean, "raw": raw})
    inputs = InputSpec(anchor.n_features, allow_nan=allow_nan, allow_inf=False)
    return Graph("ngboost", model.kind, inputs, anchor, output)


def _distribution(model: Record) -> str:
    """Return the name of the distribution's class."""
    for name in ("_basedist", "Dist"):
        value = model.get(name, None)
        if isinstance(value, Global):
            return value.name if value.library == "ngboost" else f"{value.module}.{value.name}"
    return model.text("Dist_name")


def _anchor(model: Record, parameters: int, first: int) -> tuple[TreeEnsemble | Linear, bool]:
    """Return the sums of learners, and whether they take missing values.

    `first`: the number of outputs before those of the parameters, which are 0.
    """
    n_features = feature_count(model.whole("n_features", 1))
    initial = as_array(model.get("init_params"), "the first parameters", "biuf").astype(np.float64).ravel()
    rounds, drawn = model.sequence("base_models"), model.sequence("col_idxs")
    scalings = as_array(model.get("scalings"), "the scalings", "biuf", 1).astype(np.float64)
    if len(initial) != parameters or not len(rounds) == len(drawn) == len(scalings):
        raise ModelError(f"the {model.kind} is damaged: its learners and parameters don't fit together.")
    start = np.append(np.zeros(first), initial)
    learners: list[Any] = []
    columns: list[np.ndarray] = []
    for learners_of_round, used in zip(rounds, drawn, strict=True):
        if not isinstance(learners_of_round, (list, tuple)) or len(learners_of_round) != parameters:
            raise ModelError(f"the {model.kind} is damaged: a round does not have {parameters} learners.")
        learners += learners_of_round
        chosen = as_array(used, "a learner's columns", "iu", 1).astype(np.int64)
        if not len(chosen) or chosen.min() < 0 or chosen.max() >= n_features:
            raise ModelError(f"the {model.kind} is damaged: a learner has unknown columns.")
        columns += [chosen] * parameters
    factors = -model.number("learning_rate") * np.repeat(scalings, parameters)
    outputs = first + np.tile(np.arange(parameters), len(rounds))
    if all(_is(learner, _TREES) for learner in learners):
        ensemble = assemble(
            _trees(learners, columns, factors),
            n_features=n_features,
            compare_dtype="float32",
            tree_output=outputs,
            base_score=start,
        )
        return ensemble, all(accepts_missing(learner, learner.version()) for learner in learners)
    if not all(_is(learner, REGRESSORS) for learner in learners):
        other = next(learner for learner in learners if not _is(learner, _TREES))
        raise UnsupportedModel(
            f"the {model.kind} has {kind_of(other)} among its learners, which is not supported; supported "
            "are decision trees alone, or linear regressors alone."
        )
    if n_features * len(start) > _MOST_WEIGHTS:
        raise UnsupportedModel(f"the {model.kind} has more than {_MOST_WEIGHTS:,} coefficients.")
    weight = np.zeros((n_features, len(start)))
    for learner, used, factor, output in zip(learners, columns, factors, outputs, strict=True):
        coef = learner.array("coef_", "f").astype(np.float64).ravel()
        if len(coef) != len(used):
            raise ModelError(f"the {model.kind} is damaged: a learner has {len(coef)} coefficients.")
        np.add.at(weight[:, output], used, factor * coef)
        start[output] += factor * learner.number("intercept_")
    return linear_of(weight, start, model.kind), False


def _is(learner: Any, names: tuple[str, ...]) -> bool:
    return isinstance(learner, Record) and learner.is_a("sklearn", *names)


def _trees(learners: Sequence[Record], columns: Sequence[np.ndarray], factors: np.ndarray) -> list[Any]:
    require_own_arrays(array for tree in learners for array in (nodes_of(tree), values_of(tree)))
    trees = []
    for learner, used, factor in zip(learners, columns, factors.tolist(), strict=True):
        nodes, value = nodes_of(learner), values_of(learner)
        if value.shape[1:] != (1, 1) or field(nodes, "feature").max() >= len(used):
            raise ModelError(f"the {learner.kind} is damaged: it does not fit its columns or its parameter.")
        trees.append(tree_of(nodes, value[:, 0] * factor, used))
    return trees
