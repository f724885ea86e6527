"""scikit-learn's clusterers that predict: the nearest of their centres."""

from __future__ import annotations

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import Build, floats
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.graph.table import Table
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce


def k_means(record: Record, table: Table, where: Where, build: Build) -> Predictor:
    """Read ``KMeans`` or ``MiniBatchKMeans``: the label is the position of the nearest centre."""
    centres = floats(record, "cluster_centers_", where, None, len(table))
    rows = TableRows(table)
    # Without the row's own square, which no comparison sees, as the library computes it.
    squares = (centres * centres).sum(axis=1)
    away = apply("add", Contract(rows, -2.0 * centres.T.copy()), squares)
    return Predictor("clusterer", {"response": reduce("argmin", away)}, label_dtype="int32")
