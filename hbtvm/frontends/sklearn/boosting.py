"""scikit-learn's GradientBoosting classifiers and regressors."""

from __future__ import annotations

import math

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.build import assemble
from hbtvm.frontends.pickles import ObjectArray, Record
from hbtvm.frontends.pickles.records import as_array, kind_of
from hbtvm.frontends.sklearn.common import (
    column_count,
    input_spec,
    labels_of,
    nodes_of,
    require_own_arrays,
    tree_of,
    values_of,
)
from hbtvm.graph.graph import Graph
from hbtvm.graph.outputs.output import OutputSpec, likeliest
from hbtvm.operators.base import Input
from hbtvm.operators.formulas import sigmoid, softmax
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce

_NEW_LOSSES = (1, 4)
"""The first release of scikit-learn whose GradientBoosting has the losses of HistGradientBoosting."""

_FINE_EDGE = (1, 8)
"""The first release whose initial probability may be as close to 0 as float64 allows."""


def read(model: Record) -> Graph:
    """Read a ``GradientBoostingClassifier`` or ``GradientBoostingRegressor``.

    Raises
    ------
    UnsupportedModel
        If it starts from the predictions of another estimator rather than constants.
    """
    _check_init(model)
    grid = model.get("estimators_")
    if not isinstance(grid, ObjectArray) or len(grid.shape) != 2 or not grid.items:
        raise ModelError(f"the {model.kind} is damaged: its trees are {kind_of(grid)}.")
    stages, outputs = grid.shape
    output = _output(model, outputs)
    rate = model.number("learning_rate")
    trees, estimators = [], model.records("estimators_")
    require_own_arrays(
        array for estimator in estimators for array in (nodes_of(estimator), values_of(estimator))
    )
    for estimator in estimators:
        values = values_of(estimator)
        if values.shape[1:] != (1, 1):
            raise ModelError(f"the {model.kind} is damaged: a leaf has {values.shape[1:]} values.")
        trees.append(tree_of(nodes_of(estimator), values[:, 0, :] * rate))
    ensemble = assemble(
        trees,
        n_features=column_count(model),
        compare_dtype="float32",
        tree_output=np.tile(np.arange(outputs), stages),
        base_score=_start(model, outputs),
    )
    inputs = input_spec(model, allow_nan=False, allow_inf=False)
    return Graph("scikit-learn", model.kind, inputs, ensemble, output)


def _check_init(model: Record) -> None:
    init = model.get("init_")
    if isinstance(init, str) and init == "zero":
        return
    name = init.kind if isinstance(init, Record) else kind_of(init)
    constant = isinstance(init, Record) and init.is_a("sklearn", "DummyClassifier", "DummyRegressor")
    if not constant or init.text("strategy") in ("stratified", "uniform"):
        raise UnsupportedModel(
            f"the {model.kind} starts from a {name} (its `init`), whose predictions are not the "
            "same for every row; init=None and init='zero' are supported."
        )


def _start(model: Record, outputs: int) -> np.ndarray:
    """Return the initial raw scores, float64 (outputs,), to the last bit as in scikit-learn."""
    init = model.get("init_")
    if isinstance(init, str):
        return np.zeros(outputs)
    if init.is_a("sklearn", "DummyRegressor"):
        start: np.ndarray = init.array("constant_").astype(np.float64).ravel()
    elif "classes_" in model:
        start = _raw(model, _probabilities(init), outputs)
    else:
        start = _first_label(init)
    if start.shape != (outputs,) or not np.all(np.isfinite(start)):
        raise ModelError(f"the {model.kind} is damaged: its `init_` predicts {start.shape} numbers.")
    return start


def _probabilities(init: Record) -> np.ndarray:
    """Return a ``DummyClassifier``'s probabilities, float64 (classes,)."""
    strategy = init.text("strategy")
    prior: np.ndarray = init.array("class_prior_", "f", 1).astype(np.float64)
    if strategy == "prior":
        return prior
    if strategy == "most_frequent":
        chosen = np.arange(len(prior)) == prior.argmax()
    elif strategy == "constant":
        labels = labels_of(init.get("classes_"))
        chosen = labels == as_array(init.get("constant"), "a constant", "biufUO").ravel()[:1]
    else:
        raise UnsupportedModel(f"the {init.kind} (an `init`) has a strategy that is not supported.")
    return np.asarray(chosen, np.float64)


def _first_label(init: Record) -> np.ndarray:
    """Return the label of a ``DummyClassifier`` that initialises a regressor."""
    labels = init.array("classes_", "biuf", 1)
    if init.text("strategy") == "constant":
        constant: np.ndarray = init.array("constant").astype(np.float64).ravel()
        return constant
    label: np.ndarray = labels[[int(init.array("class_prior_", "f", 1).argmax())]].astype(np.float64)
    return label


def _raw(model: Record, share: np.ndarray, outputs: int) -> np.ndarray:
    """Return raw scores from probabilities, float64 (outputs,)."""
    version = model.version()
    kind = np.float64 if version >= _FINE_EDGE else np.float32
    edge = np.finfo(kind).eps
    share = np.clip(share, float(edge), float(kind(1) - edge))
    if outputs == 1:
        if share.shape != (2,):
            raise ModelError(f"the {model.kind} is damaged: its `init_` knows {len(share)} classes.")
        second = share[1:]
        odds = _logit(float(second[0])) if version >= _NEW_LOSSES else float(np.log(second / (1 - second))[0])
        return np.array([0.5 * odds if model.get("loss") == "exponential" else odds])
    # The new losses subtract the geometric mean.
    mean = 1.0 if version < _NEW_LOSSES else np.exp(np.mean(np.log(share)[np.newaxis], axis=1))
    result: np.ndarray = np.log(share / mean)
    return result


def _logit(share: float) -> float:
    """Return the log-odds as scipy computes them, accurate near one half."""
    if 0.3 <= share <= 0.65:
        off = 2 * (share - 0.5)
        return math.log1p(off) - math.log1p(-off)
    return math.log(share / (1 - share))


def _output(model: Record, outputs: int) -> OutputSpec:
    raw = Input(outputs)
    if "classes_" not in model:
        return OutputSpec("regressor", outputs, {"response": raw})
    labels = labels_of(model.get("classes_"))
    if outputs != (1 if len(labels) == 2 else len(labels)):
        raise ModelError(f"the {model.kind} is damaged: it has {outputs} scores for {len(labels)} classes.")
    # The raw score of the exponential loss is half the log-odds.
    scale = 2.0 if model.get("loss") == "exponential" else 1.0
    nodes = likeliest(sigmoid(raw, scale) if outputs == 1 else softmax(raw))
    # Before its new losses, scikit-learn compared probabilities.
    if model.version() >= _NEW_LOSSES:
        nodes["index"] = apply("greater_equal", raw, 0.0) if outputs == 1 else reduce("argmax", raw)
    return OutputSpec("classifier", outputs, {**nodes, "decision": raw}, (labels,))
