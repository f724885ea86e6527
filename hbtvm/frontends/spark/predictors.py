"""Spark's ``NaiveBayesModel`` and ``KMeansModel``."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice, floats_of
from hbtvm.frontends.spark.cells import floats
from hbtvm.frontends.spark.classes import labels_of, likeliest
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.formulas import log_sum_exp, softmax, unit_rows
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce


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


def k_means(record: Record, table: Table, where: Where) -> Predictor:
    """``KMeansModel``: the position of the nearest centre."""
    measure = choice(record, "distanceMeasure", where, ("euclidean", "cosine"))
    centres = [
        row.get("clusterCenter") for row in sorted(record.sequence("data"), key=lambda row: row["clusterIdx"])
    ]
    if not centres:
        raise where.damaged("it has no centres.")
    points = np.stack([floats_of(centre, "clusterCenter", where, len(table)) for centre in centres])
    rows = TableRows(table)
    if measure == "euclidean":
        nearest = reduce("argmin", Distance(rows, points, "squared_euclidean").checked())
    else:
        unit = np.ascontiguousarray(unit_rows(points, 1e-300).T)
        nearest = reduce("argmax", Contract(rows, unit).checked())
    if record.get("labels", None) is None:
        return Predictor("clusterer", {"response": nearest}, label_dtype="int32")
    return Predictor("classifier", {"index": nearest}, (labels_of(record, len(points)),))
