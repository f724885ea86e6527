"""Spark's models other than trees, linear models and clusters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice
from hbtvm.frontends.spark.cells import floats, number
from hbtvm.frontends.spark.classes import labels_of, likeliest
from hbtvm.frontends.spark.trees import with_whole_categories
from hbtvm.frontends.transformers.dispatch import read_predictor
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks import joined
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.formulas import log_sum_exp, sigmoid, softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import concat, reduce, select
from hbtvm.operators.tables import Interpolate


def naive_bayes(record: Record, table: Table, where: Where) -> Predictor:
    """``NaiveBayesModel`` of any type."""
    kind = choice(record, "modelType", where, ("multinomial", "complement", "bernoulli", "gaussian"))
    prior = floats(record, "pi", where, None)
    theta = floats(record, "theta", where, len(prior), len(table))
    rows = TableRows(table)
    raw: Node
    if kind == "gaussian":
        variance = floats(record, "sigma", where, len(prior), len(table))
        if not (variance > 0).all():
            raise where.unsupported("has a variance of 0, which is not supported.")
        squares = Distance(rows, theta, "squared_euclidean", 1.0 / np.sqrt(variance)).checked()
        raw = apply("add", apply("multiply", squares, -0.5), prior - 0.5 * np.log(variance).sum(axis=1))
    elif kind == "bernoulli":
        if not (theta < 0).all():
            raise where.unsupported("has a probability of 1 (smoothing=0), which is not supported.")
        absent = np.log1p(-np.exp(theta))
        product = Contract(rows, np.ascontiguousarray((theta - absent).T)).checked()
        raw = apply("add", product, prior + absent.sum(axis=1))
    else:
        raw = Contract(rows, np.ascontiguousarray(theta.T)).checked()
        multinomial = kind == "multinomial"
        raw = apply("add", raw, prior) if multinomial else apply("subtract", raw, log_sum_exp(raw))
    return Predictor(
        "classifier", likeliest(record, raw, softmax(raw), where), (labels_of(record, len(prior)),)
    )


def perceptron(record: Record, table: Table, where: Where) -> Predictor:
    """``MultilayerPerceptronClassificationModel``: sigmoids, and a softmax of the last layer."""
    sizes = [int(size) for size in record.sequence("layers")]
    weights, at = floats(record, "weights", where, None), 0
    if len(sizes) < 2 or min(sizes) < 1:
        raise where.damaged("it has no layers.")
    values: Node = TableRows(table)
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        if inputs != values.width or len(weights) < at + (inputs + 1) * outputs:
            raise where.damaged(f"its weights do not fit layers of {inputs} and {outputs} units.")
        end = at + inputs * outputs
        values = values if i == 0 else sigmoid(values)
        values = Contract(values, weights[at:end].reshape(inputs, outputs)).checked()
        values = apply("add", values, weights[end : end + outputs])
        at = end + outputs
    nodes = likeliest(record, values, softmax(values), where)
    return Predictor("classifier", nodes, (labels_of(record, sizes[-1]),))


def _factorization(record: Record, table: Table, where: Where) -> Node:
    """Return the scores of a factorization machine (Rendle 2010, equation 5)."""
    linear = floats(record, "linear", where, len(table))
    factors = floats(record, "factors", where, len(table), None)
    rows = TableRows(table)
    sums = apply("square", Contract(rows, factors).checked())
    squares = Contract(apply("square", rows), factors * factors)
    pairs = apply("multiply", reduce("sum", apply("subtract", sums, squares)), 0.5)
    score = apply("add", pairs, number(record, "intercept", where))
    return apply("add", score, Contract(rows, linear[:, None]).checked())


def factorization_regressor(record: Record, table: Table, where: Where) -> Predictor:
    """``FMRegressionModel``."""
    return Predictor("regressor", {"response": _factorization(record, table, where)})


def factorization_classifier(record: Record, table: Table, where: Where) -> Predictor:
    """``FMClassificationModel``, of two classes."""
    score = _factorization(record, table, where)
    raw = concat([apply("negative", score), score])
    nodes = likeliest(record, raw, with_complement(sigmoid(score)), where)
    return Predictor("classifier", nodes, (labels_of(record, 2),))


def isotonic(record: Record, table: Table, where: Where) -> Predictor:
    """``IsotonicRegressionModel`` of a column, or of one of a vector's."""
    at = floats(record, "boundaries", where, None)
    values = floats(record, "predictions", where, len(at))
    index = record.whole("featureIndex", default=0) if len(table) > 1 else 0
    if not len(at) or np.any(at[1:] <= at[:-1]):
        raise where.damaged("its boundaries don't rise.")
    column = TableRows(table.select([index]), allow_nan=False)
    return Predictor("regressor", {"response": Interpolate(column, at[None, :], values[None, :])})


def one_vs_rest(record: Record, table: Table, where: Where) -> Predictor:
    """``OneVsRestModel``: a classifier of two classes for each class."""
    scores = []
    for i, model in enumerate(record.records("models")):
        columns = with_whole_categories(model, table) if "trees" in model else table
        outputs = read_predictor(model, columns, where.child(f"model_{i}")).outputs
        if "decision" not in outputs or outputs["decision"].width != 2:
            raise where.unsupported(f"holds {model.kind}, which has no raw scores of two classes.")
        scores.append(select(outputs["decision"], [1]))
    raw = joined.side_by_side(scores)
    nodes = {"index": reduce("argmax", raw), "decision": raw}
    return Predictor("classifier", nodes, (labels_of(record, len(scores)),))
