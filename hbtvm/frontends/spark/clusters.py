"""Spark's ``KMeansModel``, ``BisectingKMeansModel`` and ``GaussianMixtureModel``."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.clusters import MOST_CLUSTERS, label_behind, ways_of
from hbtvm.frontends.predictors.reading import choice, floats_of
from hbtvm.frontends.spark.cells import cell, floats
from hbtvm.frontends.spark.classes import labels_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.formulas import shares, unit_rows
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import concat, reduce

_EPSILON = float(np.finfo(np.float64).eps)


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
    return _of(record, {"response": nearest}, len(points))


def _of(record: Record, outputs: dict[str, Node], count: int) -> Predictor:
    """Return a clusterer; or a classifier if an ``IndexToString`` names the clusters."""
    if record.get("labels", None) is None:
        return Predictor("clusterer", outputs, label_dtype="int32")
    outputs["index"] = outputs.pop("response")
    return Predictor("classifier", outputs, (labels_of(record, count),))


def bisecting(record: Record, table: Table, where: Where) -> Predictor:
    """``BisectingKMeansModel``: at each fork the nearer of two centres, down to a cluster."""
    cosine = choice(record, "distanceMeasure", where, ("euclidean", "cosine")) == "cosine"
    nodes = {row["index"]: row for row in record.sequence("data")}
    centres = {index: floats_of(row["center"], "center", where, len(table)) for index, row in nodes.items()}
    factors: list[np.ndarray] = []
    offsets: list[float] = []
    leaves: list[tuple[float, list[tuple[int, float]]]] = []
    stack: list[tuple[int, list[tuple[int, float]]]] = [(record.whole("rootId", -len(nodes)), [])]
    while stack:
        index, path = stack.pop()
        children = list(nodes.pop(index)["children"])
        if len(factors) >= MOST_CLUSTERS:
            raise where.unsupported(f"has more than {MOST_CLUSTERS:,} clusters, which is not supported.")
        if len(children) == 1:
            stack.append((children[0], path))
        elif not children:
            leaves.append((float(index), path))
        else:
            left, right = (centres[child] for child in children)
            number = len(factors)
            if cosine:
                left, right = unit_rows(np.stack([left, right]), 1e-300)
            factors.append((1.0 if cosine else 2.0) * (right - left))
            offsets.append(0.0 if cosine else float(left @ left - right @ right))
            stack += [(children[1], [*path, (number, -1.0)]), (children[0], [*path, (number, 1.0)])]
    labels, ways = ways_of(leaves, len(factors))
    forks = np.array(factors).reshape(-1, len(table))
    response = label_behind(TableRows(table), forks, np.array(offsets), ways, labels)
    return _of(record, {"response": response}, len(leaves))


def gaussian_mixture(record: Record, table: Table, where: Where) -> Predictor:
    """``GaussianMixtureModel``: densities on the subspace of each covariance."""
    weights, width = floats(record, "weights", where, None), len(table)
    means, covariances = cell(record, "mus", where), cell(record, "sigmas", where)
    rows, parts = TableRows(table), []
    for weight, mean, covariance in zip(weights, means, covariances, strict=True):
        centre = floats_of(mean, "mus", where, width)
        values, vectors = np.linalg.eigh(floats_of(covariance, "sigmas", where, width, width))
        kept = values > _EPSILON * values.max() * width
        if not kept.any():
            raise where.unsupported("has a covariance of 0, which is not supported.")
        root = vectors[:, kept] / np.sqrt(values[kept])
        away = apply("subtract", Contract(rows, np.ascontiguousarray(root)).checked(), centre @ root)
        level = -0.5 * (width * np.log(2 * np.pi) + np.log(values[kept]).sum())
        density = apply(
            "exp", apply("add", apply("multiply", reduce("sum", apply("square", away)), -0.5), level)
        )
        # Spark adds the least number, so that far rows have probabilities, too.
        parts.append(apply("add", apply("multiply", density, float(weight)), _EPSILON))
    proba = shares(concat(parts))
    return _of(record, {"response": reduce("argmax", proba), "proba": proba}, len(parts))
