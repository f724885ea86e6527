"""scikit-learn's multi-layer perceptrons."""

from __future__ import annotations

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors.reading import choice, classes_of, floats_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.predictor import Predictor
from hbtvm.operators.base import Node
from hbtvm.operators.formulas import softmax, with_complement
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import reduce

_HIDDEN = ("identity", "logistic", "tanh", "relu")
_FUNCTIONS = {"logistic": "sigmoid", "tanh": "tanh", "relu": "relu", "exp": "exp"}


def classifier(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``MLPClassifier``: two classes, several, or several labels at once."""
    out = choice(record, "out_activation_", where, ("softmax", "logistic"))
    labels, values = classes_of(record), _layers(record, table, where, out)
    kind = record.record("_label_binarizer").text("y_type_")
    if kind.startswith("multilabel"):
        above = apply("greater", values, 0.5)
        return Predictor(
            "classifier", {"index": above, "proba": values}, keeps_axis=True, label_dtype="int64"
        )
    if values.width == 1 and len(labels) == 2:
        outputs = {"index": apply("greater", values, 0.5), "proba": with_complement(values)}
    elif values.width == len(labels) > 1:
        outputs = {"index": reduce("argmax", values), "proba": values}
    else:
        raise where.damaged(f"it has {values.width} outputs for {len(labels)} classes.")
    return Predictor("classifier", outputs, (labels,))


def regressor(record: Record, table: Table, where: Where) -> Predictor:
    """Read ``MLPRegressor``."""
    out = choice(record, "out_activation_", where, ("identity", "exp"))
    return Predictor("regressor", {"response": _layers(record, table, where, out)})


def _layers(record: Record, table: Table, where: Where, out: str) -> Node:
    """Return the last layer's values behind its activation."""
    hidden = choice(record, "activation", where, _HIDDEN)
    weights, biases = record.sequence("coefs_"), record.sequence("intercepts_")
    if not weights or len(weights) != len(biases):
        raise where.damaged(f"it has {len(weights)} layers and {len(biases)} intercepts.")
    values: Node = TableRows(table)
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        dense = floats_of(weight, "coefs_", where, values.width, None)
        values = Contract(values, np.ascontiguousarray(dense)).checked()
        values = apply("add", values, floats_of(bias, "intercepts_", where, values.width))
        values = _activation(out if i == len(weights) - 1 else hidden, values)
    return values


def _activation(name: str, x: Node) -> Node:
    if name == "softmax":
        return softmax(x)
    return x if name == "identity" else apply(_FUNCTIONS[name], x)
