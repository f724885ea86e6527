"""``LinearClassifier`` and ``LinearRegressor`` of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.operations.transforms import (
    labelled,
    labels_of,
    probit,
    transform_of,
    transformed,
)
from hbtvm.frontends.onnx.values import Rows, Value, of_node
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import concat, reduce

_MOST_TARGETS = 1 << 16


def matrix(call: Call, x: Rows) -> Rows:
    """Return the rows that a model of ai.onnx.ml reads: shape (rows, features)."""
    x = x.numbers()
    if x.axis != 0 or len(x.shape) > 2:
        raise call.unsupported(f"reads the shape {x.shape}, which is not supported.")
    return x


def _scores(call: Call, x: Rows, targets: int) -> Node:
    weight = call.array("coefficients").astype(np.float64)
    if not 1 <= targets <= _MOST_TARGETS or len(weight) != targets * x.width or not x.width:
        raise call.damaged(
            f"it has {len(weight):,} coefficients for {targets:,} targets and {x.width:,} columns."
        )
    node: Node = Contract(x.node(False), np.ascontiguousarray(weight.reshape(targets, x.width).T))
    intercepts = call.array("intercepts").astype(np.float64)
    if len(intercepts) not in (0, targets):
        raise call.damaged(f"it has {len(intercepts)} intercepts for {targets} targets.")
    return apply("add", node, intercepts) if intercepts.any() else node


def _regressor(call: Call) -> Value:
    x, targets = matrix(call, call.rows()), call.whole("targets", 1)
    node = _scores(call, x, targets)
    transform = transform_of(call)
    if targets > 1:
        node = transformed(node, transform)
    elif transform == "PROBIT":
        node = probit(node)
    elif transform == "LOGISTIC":
        node = apply("sigmoid", node)
    return of_node(node, (None, targets))


def _classifier(call: Call) -> tuple[Value, ...]:
    x, labels = matrix(call, call.rows()), labels_of(call)
    count = len(call.array("intercepts"))
    if not count:
        count = len(call.array("coefficients")) // max(1, x.width)
    node, transform = _scores(call, x, count), transform_of(call)
    if count > 1:
        if len(labels) != count:
            raise call.damaged(f"it has {len(labels)} labels for {count} classes.")
        scores = of_node(transformed(node, transform), (None, count))
        return labelled(reduce("argmax", node), labels), scores
    texts = labels.dtype == object
    if len(labels) != 2:
        # ONNX Runtime's labels if the model does not have two.
        labels = np.array(["0", "1"], object) if texts else np.array([0, 1], np.int64)
        response = probit(node) if transform == "PROBIT" else node
        return labelled(apply("greater", node, 0.0), labels), of_node(response, (None, 1))
    if transform == "LOGISTIC":
        second: Node = apply("sigmoid", node)
        both = concat([apply("sigmoid", apply("negative", node)), second])
    elif transform == "PROBIT":
        raise call.unsupported("has two labels, one score and PROBIT, which is not supported.")
    else:
        both = concat([apply("subtract", 1.0, node), node])
    return labelled(apply("greater", node, 0.0), labels), of_node(both, (None, 2))


OPERATIONS: Mapping[str, Evaluate] = {"LinearRegressor": _regressor, "LinearClassifier": _classifier}
"""By operator of the domain ai.onnx.ml."""
