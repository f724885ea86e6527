"""scikit-learn's naive Bayes classifiers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import NO_LABEL, classes_of, floats, floats_of
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Above
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.formulas import log_sum_exp
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce
from hbtvm.operators.tables import lookup


def gaussian(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``GaussianNB``: the squared distances to the classes' means, in units of their deviations."""
    labels = classes_of(record)
    shape = (len(labels), len(table))
    means = floats(record, "theta_", where, *shape)
    # Before scikit-learn 1.0 the variances were called sigma_.
    variances = floats(record, "var_" if "var_" in record else "sigma_", where, *shape)
    if not (variances > 0).all():
        raise where.unsupported("has a variance of 0 (var_smoothing=0 and a constant column).")
    squares = Distance(TableRows(table), means, "squared_euclidean", 1.0 / np.sqrt(variances)).checked()
    with np.errstate(divide="ignore"):
        constant = np.log(floats(record, "class_prior_", where, len(labels)))
    constant = constant - 0.5 * np.log(2.0 * np.pi * variances).sum(axis=1)
    return _classifier(apply("add", apply("multiply", squares, -0.5), constant), labels)


def bernoulli(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``BernoulliNB``."""
    labels = classes_of(record)
    log_prob = _log_probabilities(record, labels, table, where)
    with np.errstate(divide="ignore"):
        absent = np.log(1 - np.exp(log_prob))
    if not np.isfinite(absent).all():
        raise where.unsupported("has a probability of 1 (alpha=0), which is not supported.")
    if record.get("binarize") is not None:
        above = Above(record.number("binarize"))
        columns = unified(accepting(table, nan=False)).columns
        table = replace(table, columns=tuple(column.then(above) for column in columns))
    product = Contract(TableRows(table), np.ascontiguousarray((log_prob - absent).T)).checked()
    prior = _priors(record, labels, where)
    return _classifier(apply("add", product, prior + absent.sum(axis=1)), labels)


def multinomial(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``MultinomialNB``."""
    labels = classes_of(record)
    log_prob = _log_probabilities(record, labels, table, where)
    product = Contract(TableRows(table), np.ascontiguousarray(log_prob.T)).checked()
    return _classifier(apply("add", product, _priors(record, labels, where)), labels)


def complement(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``ComplementNB``, which uses priors only if there is a single class."""
    labels = classes_of(record)
    log_prob = _log_probabilities(record, labels, table, where)
    scores: Node = Contract(TableRows(table), np.ascontiguousarray(log_prob.T)).checked()
    if len(labels) == 1:
        scores = apply("add", scores, _priors(record, labels, where))
    return _classifier(scores, labels)


def categorical(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``CategoricalNB``: the sum of the log probabilities of each column's code.

    For codes that training did not have, scikit-learn raises an error; here probabilities are NaN, and the
    label is missing.
    """
    labels = classes_of(record)
    stored = record.sequence("feature_log_prob_")
    if len(stored) != len(table):
        raise where.damaged(f"it has probabilities of {len(stored)} columns, but gets {len(table)}.")
    known = [floats_of(values, "feature_log_prob_", where, len(labels), None) for values in stored]
    # Codes are shifted by 1: unknown codes below and above read NaN.
    tables = [np.pad(values, ((0, 0), (1, 1)), constant_values=np.nan) for values in known]
    codes = apply("add", apply("trunc", TableRows(table)), 1.0)
    columns = list(range(len(table))) * len(labels)
    entries = lookup(codes, columns, [values[c] for c in range(len(labels)) for values in tables])
    sums = reduce("sum", entries, len(labels))
    return _classifier(apply("add", sums, _priors(record, labels, where)), labels, known=True)


def _classifier(scores: Node, labels: np.ndarray, known: bool = False) -> Predictor:
    """Return labels and probabilities from joint log likelihoods; rows of NaN (`known`) have no label."""
    index: Node = reduce("argmax", scores)
    if known:
        index = apply("where", apply("isnan", reduce("sum", scores)), NO_LABEL, index)
    proba = apply("exp", apply("subtract", scores, log_sum_exp(scores)))
    return Predictor("classifier", {"index": index, "proba": proba}, (labels,))


def _log_probabilities(record: Record, labels: np.ndarray, table: Table, where: Where) -> np.ndarray:
    """Return ``feature_log_prob_``, float64, shape (classes, columns)."""
    values = record.array("feature_log_prob_", "f", 2).astype(np.float64)
    if values.shape != (len(labels), len(table)):
        raise where.damaged(f"its feature_log_prob_ has the shape {values.shape}.")
    if not np.isfinite(values).all():
        raise where.unsupported("has a probability of 0 (alpha=0), which is not supported.")
    return values


def _priors(record: Record, labels: np.ndarray, where: Where) -> np.ndarray:
    """Return ``class_log_prior_``; minus infinity for a class that never occurs."""
    values = record.array("class_log_prior_", "f", 1).astype(np.float64)
    if len(values) != len(labels) or np.isnan(values).any() or (values == np.inf).any():
        raise where.damaged("its class_log_prior_ are not logarithms of its classes' shares.")
    return values
