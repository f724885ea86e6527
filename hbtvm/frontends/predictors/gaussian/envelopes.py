"""scikit-learn's elliptic envelope."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import floats
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce


def elliptic(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``EllipticEnvelope``: squared Mahalanobis distances to the centre."""
    score = apply("negative", squared_distance(record, table, where))
    decision = apply("subtract", score, record.number("offset_"))
    outputs = {
        "index": apply("where", apply("greater_equal", decision, 0.0), 1.0, -1.0),
        "decision": decision,
        "score": score,
    }
    return Predictor("anomaly", outputs, label_dtype="int64")


def squared_distance(record: Record, table: Table, where: Where) -> Node:
    """Return the squared Mahalanobis distance to the centre of a covariance estimator."""
    count = len(table)
    centre = floats(record, "location_", where, count)
    if record.get("store_precision", True):
        precision = floats(record, "precision_", where, count, count)
    else:
        # The pseudo-inverse of a symmetric matrix, as the library computes it for each call.
        precision = np.linalg.pinv(floats(record, "covariance_", where, count, count), hermitian=True)
    away = apply("subtract", TableRows(table), centre)
    return reduce("sum", apply("multiply", away, Contract(away, precision).checked()))
