"""Spark's linear models."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice
from hbtvm.frontends.spark.cells import cell, floats, number, parameter
from hbtvm.frontends.spark.classes import binary, graph, labels_of, likeliest
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import dense
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input, Node
from hbtvm.operators.error_function import erf
from hbtvm.operators.formulas import sigmoid, softmax
from hbtvm.operators.pointwise import apply

_LEAST_MEAN = 1e-16  # Spark's bound of means of all families but the Gaussian
_MOST_MEAN = float(np.finfo(np.float64).max)

_LINKS = {"gaussian": "identity", "binomial": "logit", "poisson": "log", "gamma": "inverse"}
"""The default links of families."""

_POWERS = {0.0: "log", 1.0: "identity", -1.0: "inverse", 0.5: "sqrt"}
"""Powers that are links of their own."""


def _coefficients(record: Record, where: Where) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and intercept of a model with one score, float64, shapes (columns, 1) and (1,)."""
    weight = floats(record, "coefficients", where, None)
    return weight[:, None], np.array([number(record, "intercept", where)])


def regression(record: Record) -> Graph:
    """Read ``LinearRegressionModel``."""
    anchor = dense(*_coefficients(record, Where(kind=record.kind)))
    return graph(record, anchor, OutputSpec("regressor", 1, {"response": Input(1)}))


def accelerated_failure_time(record: Record) -> Graph:
    """Read ``AFTSurvivalRegressionModel``: the mean lifetime."""
    anchor = dense(*_coefficients(record, Where(kind=record.kind)))
    return graph(record, anchor, OutputSpec("regressor", 1, {"response": apply("exp", Input(1))}))


def support_vectors(record: Record) -> Graph:
    """Read ``LinearSVCModel``."""
    where = Where(kind=record.kind)
    nodes = binary(record, Input(1), None, where)
    output = OutputSpec("classifier", 1, nodes, (labels_of(record, 2),))
    return graph(record, dense(*_coefficients(record, where)), output)


def logistic(record: Record) -> Graph:
    """Read ``LogisticRegressionModel``."""
    where = Where(kind=record.kind)
    classes = int(number(record, "numClasses", where))
    several = bool(cell(record, "isMultinomial", where))
    weight = floats(record, "coefficientMatrix", where, classes if several else 1, None)
    anchor = dense(weight.T, floats(record, "interceptVector", where, len(weight)))
    scores = Input(len(weight))
    if several:
        nodes = likeliest(record, scores, softmax(scores), where)
    else:
        nodes = binary(record, scores, sigmoid(scores), where)
    output = OutputSpec("classifier", len(weight), nodes, (labels_of(record, max(2, classes)),))
    # Spark's softmax of infinite scores, and the order of NaN, are its own.
    return graph(record, anchor, output, nan=not several, inf=not several)


def generalised(record: Record) -> Graph:
    """Read ``GeneralizedLinearRegressionModel``."""
    where = Where(kind=record.kind)
    if record.get("offsetCol", ""):
        raise where.unsupported("adds a column of offsets (offsetCol), which is not supported.")
    family, link, power = _family(record, where)
    mean = _mean(Input(1), link, power)
    if family == "binomial":
        mean = apply("minimum", apply("maximum", mean, _LEAST_MEAN), 1.0 - _LEAST_MEAN)
    elif family == "gaussian":
        mean = apply("minimum", apply("maximum", mean, -_MOST_MEAN), _MOST_MEAN)
    else:
        mean = apply("minimum", apply("maximum", mean, _LEAST_MEAN), _MOST_MEAN)
    anchor = dense(*_coefficients(record, where))
    return graph(record, anchor, OutputSpec("regressor", 1, {"response": mean}))


def _family(record: Record, where: Where) -> tuple[str, str, float]:
    """Return the family, the link and its power."""
    family = choice(record, "family", where, (*_LINKS, "tweedie"))
    if family != "tweedie":
        links = ("identity", "log", "inverse", "logit", "probit", "cloglog", "sqrt")
        return family, choice(record, "link", where, links) if "link" in record else _LINKS[family], 0.0
    variance = parameter(record.get("variancePower", 0.0), "variancePower", where)
    power = parameter(record.get("linkPower", 1.0 - variance), "linkPower", where)
    return {0.0: "gaussian"}.get(variance, family), _POWERS.get(power, "power"), power


def _mean(score: Node, link: str, power: float) -> Node:
    """Return the inverse of a link."""
    match link:
        case "identity":
            return score
        case "log":
            return apply("exp", score)
        case "inverse":
            return apply("divide", 1.0, score)
        case "logit":
            return sigmoid(score)
        case "probit":
            return apply("multiply", apply("add", erf(apply("multiply", score, 0.5**0.5)), 1.0), 0.5)
        case "cloglog":
            return apply("subtract", 1.0, apply("exp", apply("negative", apply("exp", score))))
        case "sqrt":
            return apply("multiply", score, score)
    return apply("power", score, 1.0 / power)
