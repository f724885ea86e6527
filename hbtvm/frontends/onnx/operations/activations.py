"""Activation functions of networks, and bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hbtvm.frontends.onnx.broadcasting import operand
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.values import Rows, Value, each, of_node
from hbtvm.graph.columns.steps import Clip as ClipStep
from hbtvm.graph.columns.table import Table
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply


def _clip(call: Call) -> Value:
    x = call.value(0)
    if call.version < 11:
        low: Value | None = np.array(call.number("min", float(np.finfo(np.float32).min)))
        high: Value | None = np.array(call.number("max", float(np.finfo(np.float32).max)))
    else:
        low = call.value(1) if call.has(1) else None
        high = call.value(2) if call.has(2) else None
    if isinstance(x, np.ndarray):
        if isinstance(low, Rows) or isinstance(high, Rows):
            raise call.unsupported("takes its bounds from the rows, which is not supported.")
        out = x if low is None else np.maximum(x, low)
        return np.asarray(out if high is None else np.minimum(out, high)).astype(x.dtype)
    x = x.numbers()
    simple = all(
        bound is None or (isinstance(bound, np.ndarray) and bound.size == 1) for bound in (low, high)
    )
    if isinstance(x.content, Table) and simple:
        ends = [np.inf if bound is None else float(bound.reshape(-1)[0]) for bound in (low, high)]  # type: ignore[union-attr]
        step = ClipStep(-np.inf if low is None else ends[0], ends[1])
        return Rows(x.shape, x.dtype, each(x.content, step))
    node = x.node()
    for function, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            node = apply(function, node, operand(bound, x.shape))
    return of_node(node, x.shape, x.dtype)


def _activation(build: Callable[[Call, Node], Node]) -> Evaluate:
    def run(call: Call) -> Value:
        x = call.rows()
        return of_node(build(call, x.node()), x.shape, x.dtype)

    return run


def _leaky(call: Call, x: Node) -> Node:
    return apply("where", apply("less", x, 0.0), apply("multiply", x, call.number("alpha", 0.01)), x)


def _elu(call: Call, x: Node) -> Node:
    alpha = 1.0 if call.operation.kind == "Elu" else 1.6732632
    gamma = 1.0
    if call.operation.kind == "Selu":
        gamma = call.number("gamma", 1.0507010)
    alpha = call.number("alpha", alpha)
    below = apply("multiply", apply("expm1", apply("minimum", x, 0.0)), alpha)
    return apply("multiply", apply("where", apply("less", x, 0.0), below, x), gamma)


def _softplus(call: Call, x: Node) -> Node:
    small = apply("log1p", apply("exp", apply("negative", apply("absolute", x))))
    return apply("add", small, apply("relu", x))


def _hard_sigmoid(call: Call, x: Node) -> Node:
    line = apply("add", apply("multiply", x, call.number("alpha", 0.2)), call.number("beta", 0.5))
    return apply("minimum", apply("maximum", line, 0.0), 1.0)


def _threshold(call: Call, x: Node) -> Node:
    return apply("where", apply("greater", x, call.number("alpha", 1.0)), x, 0.0)


def _softsign(call: Call, x: Node) -> Node:
    return apply("divide", x, apply("add", apply("absolute", x), 1.0))


OPERATIONS: Mapping[str, Evaluate] = {
    **{
        kind: _activation(build)
        for kind, build in {
            "LeakyRelu": _leaky, "Elu": _elu, "Selu": _elu, "Softplus": _softplus, "Softsign": _softsign,
            "HardSigmoid": _hard_sigmoid, "ThresholdedRelu": _threshold,
        }.items()
    },
    "Clip": _clip,
}  # fmt: skip
"""By operator of ONNX's own domain."""
