"""scikit-learn's mixtures of Gaussians."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.gaussian.special import digamma
from hbtvm.frontends.predictors.reading import choice, floats, floats_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.formulas import log_sum_exp
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce


def mixture(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``GaussianMixture`` or ``BayesianGaussianMixture``: components, probabilities, log densities."""
    width = len(table)
    means = floats(record, "means_", where, None, width)
    squares, log_determinant = _squares(record, TableRows(table), means, where)
    constant = log_determinant - 0.5 * width * np.log(2 * np.pi)
    if record.kind == "GaussianMixture":
        with np.errstate(divide="ignore"):
            constant = constant + np.log(floats(record, "weights_", where, len(means)))
    else:
        constant = constant + _expected(record, len(means), width, where)
    scores = apply("add", apply("multiply", squares, -0.5), constant)
    density = log_sum_exp(scores)
    outputs = {
        "response": reduce("argmax", scores),
        "proba": apply("exp", apply("subtract", scores, density)),
        "score": density,
    }
    return Predictor("clusterer", outputs, label_dtype="int64")


def _squares(record: Record, rows: Node, means: np.ndarray, where: Where) -> tuple[Node, np.ndarray]:
    """Return squared Mahalanobis distances to all means, and log determinants of the precisions' factors."""
    count, width = means.shape
    kind = choice(record, "covariance_type", where, ("full", "tied", "diag", "spherical"))
    shape = {
        "full": (count, width, width),
        "tied": (width, width),
        "diag": (count, width),
        "spherical": (count,),
    }
    factor = floats(record, "precisions_cholesky_", where, *shape[kind])
    if kind == "full":
        weight = factor.transpose(1, 0, 2).reshape(width, -1)
        centres = np.einsum("kf,kfo->ko", means, factor).ravel()
        product = apply("subtract", Contract(rows, np.ascontiguousarray(weight)).checked(), centres)
        squares: Node = reduce("sum", apply("square", product), count)
        diagonal = np.diagonal(factor, axis1=1, axis2=2)
    elif kind == "tied":
        squares = Distance(Contract(rows, np.ascontiguousarray(factor)).checked(), means @ factor).checked()
        diagonal = np.diagonal(factor)
    else:
        diagonal = factor if kind == "diag" else np.repeat(factor[:, None], width, axis=1)
        squares = Distance(rows, means, "squared_euclidean", np.ascontiguousarray(diagonal)).checked()
    if not (diagonal > 0).all():
        raise where.damaged("its precisions_cholesky_ are not factors of precisions.")
    return squares, np.log(diagonal).sum(axis=-1)


def _expected(record: Record, count: int, width: int, where: Where) -> np.ndarray:
    """Return a Bayesian mixture's terms of the log densities for uncertain parameters, shape (count,)."""
    freedom = floats(record, "degrees_of_freedom_", where).reshape(-1)
    if len(freedom) not in (1, count):
        raise where.damaged("its degrees_of_freedom_ do not fit its components.")
    # Tied components share a number.
    freedom = np.broadcast_to(freedom, (count,))
    mean_precision = floats(record, "mean_precision_", where, count)
    if not (freedom > width - 1).all() or not (mean_precision > 0).all():
        raise where.damaged("its degrees_of_freedom_ or mean_precision_ are out of range.")
    halves = 0.5 * (freedom - np.arange(width)[:, None])
    log_lambda = width * np.log(2.0) + digamma(halves).sum(axis=0)
    spread = 0.5 * (log_lambda - width / mean_precision) - 0.5 * width * np.log(freedom)
    concentration = record.get("weight_concentration_")
    if record.get("weight_concentration_prior_type") == "dirichlet_process":
        if not isinstance(concentration, tuple) or len(concentration) != 2:
            raise where.damaged("its weight_concentration_ is not a pair.")
        a, b = (floats_of(shape, "weight_concentration_", where, count) for shape in concentration)
        total = digamma(_positive(a + b, where))
        later = np.cumsum(digamma(_positive(b, where)) - total)[:-1]
        sticks: np.ndarray = digamma(_positive(a, where)) - total + np.concatenate([[0.0], later])
        return np.asarray(spread + sticks)
    weights = _positive(floats_of(concentration, "weight_concentration_", where, count), where)
    shares: np.ndarray = digamma(weights) - digamma(weights.sum(keepdims=True))
    return np.asarray(spread + shares)


def _positive(values: np.ndarray, where: Where) -> np.ndarray:
    if not (values > 0).all():
        raise where.damaged("its weight_concentration_ is not positive.")
    return values
