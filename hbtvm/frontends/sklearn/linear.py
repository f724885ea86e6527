"""scikit-learn's linear models: regressors, generalised linear models, and classifiers.

Coefficients and scores are in float64 whatever the rows are, as numpy's product of float32 rows with float64
coefficients is. (A model that was fitted on float32 has float32 coefficients; of float32 rows the
library then computes scores in float32, and here they are exacter.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.matrices import matrix
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import input_spec, labels_of, one_of
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import Linear, dense
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input, Node
from hbtvm.operators.formulas import modified_huber, shares, sigmoid, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce
from hbtvm.words.printable import shown

REGRESSORS = (
    *("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV"),
    *("MultiTaskLasso", "MultiTaskLassoCV", "MultiTaskElasticNet", "MultiTaskElasticNetCV"),
    *("Lars", "LarsCV", "LassoLars", "LassoLarsCV", "LassoLarsIC"),
    *("OrthogonalMatchingPursuit", "OrthogonalMatchingPursuitCV"),
    *("BayesianRidge", "ARDRegression", "HuberRegressor", "TheilSenRegressor", "QuantileRegressor"),
    *("SGDRegressor", "PassiveAggressiveRegressor", "LinearSVR"),
)
"""Classes whose ``predict`` is the score."""

GENERALISED = ("PoissonRegressor", "GammaRegressor", "TweedieRegressor")
"""Classes whose ``predict`` is the inverse link of the score."""

CLASSIFIERS = (
    *("LogisticRegression", "LogisticRegressionCV", "SGDClassifier", "Perceptron"),
    *("PassiveAggressiveClassifier", "RidgeClassifier", "RidgeClassifierCV", "LinearSVC"),
)

_NO_MULTI_CLASS = (1, 8)
"""The first release of scikit-learn whose LogisticRegression of several classes is always multinomial."""


def read_regressor(model: Record) -> Graph:
    """Read one of `REGRESSORS`."""
    anchor, flat = _anchor(model)
    keeps_axis = not flat and anchor.n_outputs == 1
    nodes = {"response": Input(anchor.n_outputs)}
    return _graph(model, anchor, OutputSpec("regressor", anchor.n_outputs, nodes, keeps_axis=keeps_axis))


def read_generalised(model: Record) -> Graph:
    """Read one of `GENERALISED`."""
    anchor, _ = _anchor(model)
    logarithm = True
    if model.kind == "TweedieRegressor":
        link = one_of(model, "link", ("auto", "identity", "log"))
        logarithm = link == "log" or (link == "auto" and model.number("power") > 0)
    response = apply("exp", Input(1)) if logarithm else Input(1)
    return _graph(model, anchor, OutputSpec("regressor", 1, {"response": response}))


def read_ransac(model: Record) -> Graph:
    """Read a ``RANSACRegressor``, whose ``estimator_`` is a linear regressor.

    Raises
    ------
    UnsupportedModel
        If it is something else.
    """
    inner = model.record("estimator_")
    if not inner.is_a("sklearn", *REGRESSORS, *GENERALISED):
        raise UnsupportedModel(
            f"the RANSACRegressor has a {shown(inner.kind, 60)} as its estimator_; supported are linear "
            "regressors."
        )
    graph = (read_regressor if inner.kind in REGRESSORS else read_generalised)(inner)
    # The outer estimator has the column names, and passes arrays to the inner.
    return _graph(model, graph.anchor, graph.output)


def read_classifier(model: Record) -> Graph:
    """Read one of `CLASSIFIERS`."""
    anchor, _ = _anchor(model)
    outputs = anchor.n_outputs
    scores: Node = Input(outputs)
    positive = apply("greater", scores, 0.0)
    if model.kind.startswith("RidgeClassifier") and _is_multilabel(model):
        nodes = {"index": positive, "decision": scores}
        return _graph(model, anchor, OutputSpec("classifier", outputs, nodes, label_dtype="int64"))
    labels = labels_of(_classes(model))
    if outputs != (1 if len(labels) == 2 else len(labels)):
        raise ModelError(f"the {model.kind} is damaged: it has {outputs} scores for {len(labels)} classes.")
    nodes = {"index": positive if outputs == 1 else reduce("argmax", scores)}
    response = _probabilities(model, scores)
    if response is not None:
        nodes["proba"] = with_complement(response) if outputs == 1 else response
    nodes["decision"] = scores
    return _graph(model, anchor, OutputSpec("classifier", outputs, nodes, (labels,)))


def _probabilities(model: Record, scores: Node) -> Node | None:
    """Return the probabilities of all classes, or of the second of two; None if there are none."""
    two = scores.width == 1
    if model.kind == "SGDClassifier":
        loss = model.get("loss")
        # Before scikit-learn 1.1, the logarithmic loss was called "log".
        if isinstance(loss, str) and loss in ("log_loss", "log"):
            return _separate(scores)
        return modified_huber(scores) if loss == "modified_huber" else None
    if not model.kind.startswith("LogisticRegression"):
        return None
    if model.version() >= _NO_MULTI_CLASS:
        return sigmoid(scores) if two else softmax(scores)
    ways = ("auto", "deprecated", "ovr", "warn", "multinomial")
    way = model.get("multi_class", "auto")
    if not isinstance(way, str) or way not in ways:
        raise ModelError(f"the {model.kind} is damaged: its multi_class is {shown(way, 40)}.")
    separate = two or model.get("solver") == "liblinear"
    if way in ("ovr", "warn") or (way != "multinomial" and separate):
        return _separate(scores)
    # Multinomial of two classes: the softmax of the score and its negative.
    return sigmoid(scores, 2.0) if two else softmax(scores)


def _separate(scores: Node) -> Node:
    """Return probabilities of each class against the others, divided by their sum."""
    return sigmoid(scores) if scores.width == 1 else shares(sigmoid(scores))


def _is_multilabel(model: Record) -> bool:
    kind = model.record("_label_binarizer").get("y_type_", "")
    return isinstance(kind, str) and kind.startswith("multilabel")


def _classes(model: Record) -> Any:
    """Return the labels; RidgeClassifier stores them differently in some releases of scikit-learn."""
    classes = model.get("classes_", None)
    if classes is None and "_label_binarizer" in model:
        return model.record("_label_binarizer").get("classes_")
    return model.get("classes_") if classes is None else classes


def _graph(model: Record, anchor: Any, output: OutputSpec) -> Graph:
    inputs = input_spec(model, allow_nan=False, allow_inf=False)
    if inputs.n_features != anchor.n_features:
        raise ModelError(
            f"the {model.kind} is damaged: it has coefficients of {anchor.n_features} columns, but "
            f"{inputs.n_features} columns."
        )
    return Graph("scikit-learn", model.kind, inputs, anchor, output)


def _anchor(model: Record) -> tuple[Linear, bool]:
    """Return a linear estimator's sums, and whether its coefficients are a vector rather than a matrix."""
    coef = _coefficients(model)
    flat = coef.ndim == 1
    intercept = model.array("intercept_", "biuf").astype(np.float64).ravel()
    if len(intercept) not in (1, len(np.atleast_2d(coef))) or coef.ndim > 2:
        raise ModelError(
            f"the {model.kind} is damaged: its coefficients have shape {coef.shape}, its intercept "
            f"{intercept.shape}."
        )
    return linear_of(np.atleast_2d(coef).T, intercept, model.kind), flat


def linear_of(weight: np.ndarray, intercept: np.ndarray, kind: str) -> Linear:
    """Return ``x @ weight + intercept``.

    `weight`: shape (F, O).
    `intercept`: shape (O,) or (1,).
    `kind`: the model's class, for errors.
    Raises `ModelError` if there is no weight, or a number is not finite.
    """
    weight = np.ascontiguousarray(weight, np.float64)
    outputs = weight.shape[1]
    if not weight.size:
        raise ModelError(f"the {kind} is damaged: it has no coefficients.")
    if not (np.all(np.isfinite(weight)) and np.all(np.isfinite(intercept))):
        raise ModelError(f"the {kind} is damaged: a coefficient is not finite.")
    return dense(weight, np.broadcast_to(intercept, (outputs,)).astype(np.float64))


def _coefficients(model: Record) -> np.ndarray:
    """Return ``coef_`` as a dense array, of one or two dimensions."""
    return matrix(model, "coef_") if isinstance(model.get("coef_"), Record) else model.array("coef_", "biuf")
