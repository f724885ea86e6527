"""scikit-learn's linear models: regressors, generalised linear ones, and classifiers.

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
from hbtvm.graph.networks.network import Linear
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.outputs.transforms import Transform
from hbtvm.operators.base import Input
from hbtvm.operators.products import LinearSum
from hbtvm.words.printable import shown

REGRESSORS = (
    *("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV"),
    *("MultiTaskLasso", "MultiTaskLassoCV", "MultiTaskElasticNet", "MultiTaskElasticNetCV"),
    *("Lars", "LarsCV", "LassoLars", "LassoLarsCV", "LassoLarsIC"),
    *("OrthogonalMatchingPursuit", "OrthogonalMatchingPursuitCV"),
    *("BayesianRidge", "ARDRegression", "HuberRegressor", "TheilSenRegressor", "QuantileRegressor"),
    *("SGDRegressor", "PassiveAggressiveRegressor", "LinearSVR"),
)
"""Whose ``predict`` is the score."""

GENERALISED = ("PoissonRegressor", "GammaRegressor", "TweedieRegressor")
"""Whose ``predict`` is the inverse of a link."""

CLASSIFIERS = (
    *("LogisticRegression", "LogisticRegressionCV", "SGDClassifier", "Perceptron"),
    *("PassiveAggressiveClassifier", "RidgeClassifier", "RidgeClassifierCV", "LinearSVC"),
)

_NO_MULTI_CLASS = (1, 8)
"""The release of scikit-learn from which on LogisticRegression of several classes is always multinomial."""


def read_regressor(model: Record) -> Graph:
    """Read one of `REGRESSORS`."""
    anchor, flat = _anchor(model)
    keeps_axis = not flat and anchor.n_outputs == 1
    output = OutputSpec(kind="regressor", n_outputs=anchor.n_outputs, keeps_axis=keeps_axis)
    return _graph(model, anchor, output)


def read_generalised(model: Record) -> Graph:
    """Read one of `GENERALISED`."""
    anchor, _ = _anchor(model)
    logarithm = True
    if model.kind == "TweedieRegressor":
        link = one_of(model, "link", ("auto", "identity", "log"))
        logarithm = link == "log" or (link == "auto" and model.number("power") > 0)
    transform: Transform = "exp" if logarithm else "identity"
    return _graph(model, anchor, OutputSpec(kind="regressor", n_outputs=1, transform=transform))


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
    # Column names are the outer estimator's, which passes arrays on.
    return _graph(model, graph.anchor, graph.output)


def read_classifier(model: Record) -> Graph:
    """Read one of `CLASSIFIERS`."""
    anchor, _ = _anchor(model)
    outputs = anchor.n_outputs
    if model.kind.startswith("RidgeClassifier") and _is_multilabel(model):
        output = OutputSpec(
            kind="classifier",
            n_outputs=outputs,
            outputs=("label", "decision"),
            label_rule="each_raw_positive",
            label_dtype="int64",
        )
        return _graph(model, anchor, output)
    labels = labels_of(_classes(model))
    if outputs != (1 if len(labels) == 2 else len(labels)):
        raise ModelError(f"the {model.kind} is damaged: it has {outputs} scores for {len(labels)} classes.")
    transform, scale = _probabilities(model, outputs)
    output = OutputSpec(
        kind="classifier",
        n_outputs=outputs,
        transform=transform,
        scale=scale,
        outputs=("label", "decision") if transform == "identity" else ("label", "proba", "decision"),
        classes=(labels,),
        label_rule="raw_positive" if outputs == 1 else "raw_argmax",
    )
    return _graph(model, anchor, output)


def _probabilities(model: Record, outputs: int) -> tuple[Transform, float]:
    """From scores to probabilities, and the scale within a sigmoid; the identity where there are none."""
    rest: Transform = "sigmoid" if outputs == 1 else "one_vs_rest"
    if model.kind == "SGDClassifier":
        loss = model.get("loss")
        # Before scikit-learn 1.1, the logarithmic loss was called "log".
        known: dict[Any, Transform] = {"log_loss": rest, "log": rest, "modified_huber": "modified_huber"}
        return known.get(loss if isinstance(loss, str) else "", "identity"), 1.0
    if not model.kind.startswith("LogisticRegression"):
        return "identity", 1.0
    if model.version() >= _NO_MULTI_CLASS:
        return ("sigmoid" if outputs == 1 else "softmax"), 1.0
    ways = ("auto", "deprecated", "ovr", "warn", "multinomial")
    way = model.get("multi_class", "auto")
    if not isinstance(way, str) or way not in ways:
        raise ModelError(f"the {model.kind} is damaged: its multi_class is {shown(way, 40)}.")
    separate = outputs == 1 or model.get("solver") == "liblinear"
    if way in ("ovr", "warn") or (way != "multinomial" and separate):
        return rest, 1.0
    # Multinomial of two classes: the softmax of the score and its negative.
    return ("sigmoid", 2.0) if outputs == 1 else ("softmax", 1.0)


def _is_multilabel(model: Record) -> bool:
    kind = model.record("_label_binarizer").get("y_type_", "")
    return isinstance(kind, str) and kind.startswith("multilabel")


def _classes(model: Record) -> Any:
    """The labels; releases of scikit-learn differ in where RidgeClassifier has them."""
    found = model.get("classes_", None)
    if found is None and "_label_binarizer" in model:
        return model.record("_label_binarizer").get("classes_")
    return model.get("classes_") if found is None else found


def _graph(model: Record, anchor: Any, output: OutputSpec) -> Graph:
    inputs = input_spec(model, allow_nan=False, allow_inf=False)
    if inputs.n_features != anchor.n_features:
        raise ModelError(
            f"the {model.kind} is damaged: it has coefficients of {anchor.n_features} columns, but "
            f"{inputs.n_features} columns."
        )
    return Graph("scikit-learn", model.kind, inputs, anchor, output)


def _anchor(model: Record) -> tuple[Linear, bool]:
    """The sums of a linear estimator, and whether it has a vector of coefficients rather than a matrix."""
    coef = _coefficients(model)
    flat = coef.ndim == 1
    weight = np.ascontiguousarray(np.atleast_2d(coef).T, np.float64)
    columns, outputs = weight.shape
    intercept = model.array("intercept_", "biuf").astype(np.float64).ravel()
    if len(intercept) not in (1, outputs) or coef.ndim > 2 or not columns or not outputs:
        raise ModelError(
            f"the {model.kind} is damaged: its coefficients have shape {coef.shape}, its intercept "
            f"{intercept.shape}."
        )
    if not (np.all(np.isfinite(weight)) and np.all(np.isfinite(intercept))):
        raise ModelError(f"the {model.kind} is damaged: a coefficient is not finite.")
    none = np.zeros(0, np.int32), (), np.zeros((0, outputs)), False
    columns_in_order = np.arange(columns, dtype=np.int32)
    sums = LinearSum(
        Input(columns), columns_in_order, np.zeros(columns), weight, np.zeros((columns, outputs)), *none
    )
    return Linear(sums, np.broadcast_to(intercept, (outputs,)).copy()), flat


def _coefficients(model: Record) -> np.ndarray:
    """``coef_`` as a dense array, of one or two dimensions."""
    return matrix(model, "coef_") if isinstance(model.get("coef_"), Record) else model.array("coef_", "biuf")
