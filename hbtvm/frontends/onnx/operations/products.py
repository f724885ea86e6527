"""Products with constant matrices, and distances to constant points."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hbtvm.frontends.onnx.broadcasting import operand
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.reading import Body
from hbtvm.frontends.onnx.values import Rows, Value, bounded, of_node
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract

_MOST_WEIGHTS = 1 << 26


def _matmul(call: Call) -> Value:
    return product(call, call.value(0), call.value(1))


def product(call: Call, a: Value, b: Value) -> Value:
    """``MatMul`` of rows and a constant, or of constants."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        bounded(max(1, a.size) * max(1, b.shape[-1] if b.ndim > 1 else 1))
        with np.errstate(all="ignore"):
            return np.asarray(a @ b)
    if isinstance(a, Rows) and isinstance(b, Rows):
        raise call.unsupported("multiplies matrices that both depend on the rows, which is not supported.")
    if isinstance(b, Rows):
        # The transpose of ``b.T @ a.T``.
        assert isinstance(a, np.ndarray)
        if a.ndim != 2 or len(b.shape) != 2 or b.axis != 1 or a.shape[1] != b.width:
            raise call.unsupported(f"multiplies {a.shape} and {b.shape}, which is not supported.")
        return of_node(_contract(b, a.T), (a.shape[0], None), b.dtype)
    assert isinstance(a, Rows) and isinstance(b, np.ndarray)
    last = a.shape[-1]
    if b.ndim not in (1, 2) or last is None or len(b) != last:
        raise call.unsupported(f"multiplies {a.shape} and {b.shape}, which is not supported.")
    weight: np.ndarray = b.reshape(last, -1).astype(np.float64)
    groups = a.width // last
    if groups > 1:
        if (a.width * groups) * weight.shape[1] > _MOST_WEIGHTS:
            raise call.unsupported(f"multiplies {a.shape} and {b.shape}, which is not supported.")
        weight = np.asarray(np.kron(np.eye(groups), weight), np.float64)
    shape = (*a.shape[:-1], *b.shape[1:])
    return of_node(_contract(a, weight), shape, a.dtype)


def _contract(x: Rows, weight: np.ndarray) -> Node:
    return Contract(x.node(False), np.ascontiguousarray(weight, np.float64)).checked()


def _gemm(call: Call) -> Value:
    a, b = call.value(0), call.value(1)
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    if call.whole("transA", 0):
        a = _transposed(a)
    if call.whole("transB", 0):
        b = _transposed(b)
    if isinstance(b, np.ndarray):
        b, alpha = b * b.dtype.type(alpha), 1.0
    total = product(call, a, b)
    if isinstance(total, np.ndarray):
        total = total * alpha
        if call.has(2):
            total = total + call.constant(2, "C") * beta
        return total
    node = total.node() if alpha == 1.0 else apply("multiply", total.node(), alpha)
    if call.has(2):
        c = call.value(2)
        added = operand(c, total.shape)
        scaled = added * beta if isinstance(added, np.ndarray) else apply("multiply", added, beta)
        if not isinstance(scaled, np.ndarray) or scaled.any():
            node = apply("add", node, scaled)
    return of_node(node, total.shape, total.dtype)


def _transposed(value: Value) -> Value:
    if isinstance(value, np.ndarray):
        return np.transpose(value)
    return value.take(value.grid().T, value.shape[::-1])


def _distances(call: Call) -> Value:
    a, b = call.value(0), call.value(1)
    metric = call.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise call.unsupported(f"has the metric {metric!r}; euclidean and sqeuclidean are supported.")
    if isinstance(b, Rows) or not isinstance(a, Rows) or len(a.shape) != 2 or a.axis != 0 or b.ndim != 2:
        raise call.unsupported("compares other than rows with constant points, which is not supported.")
    node: Node = Distance(a.node(), b.astype(np.float64)).checked()
    if metric == "euclidean":
        node = apply("sqrt", node)
    return of_node(node, (None, len(b)), a.dtype)


def _scan(call: Call) -> tuple[Value, ...]:
    """``Scan``: skl2onnx's loop for distances of rows to constant points."""
    body = call.operation.attributes.get("body")
    if not isinstance(body, Body) or len(call.inputs) != 2 or len(body.inputs) != 2:
        raise call.unsupported("is a loop of a form that is not supported.")
    first, second = call.value(0), call.value(1)
    # The rows are the loop's state, or its sequence.
    x, points = (first, second) if isinstance(first, Rows) else (second, first)
    if not isinstance(x, Rows) or isinstance(points, Rows) or points.ndim != 2 or len(x.shape) != 2 or x.axis:
        raise call.unsupported("is a loop of a form that is not supported.")
    kinds, power = _differences(call, body)
    rows, table = x.node(), points.astype(np.float64)
    node: Node
    match kinds:
        case ("Sub", "ReduceSumSquare"):
            node = Distance(rows, table)
        case ("Sub", "Abs", "ReduceSum"):
            node = Distance(rows, table, "manhattan")
        case ("Sub", "Abs", "ReduceMax"):
            node = Distance(rows, table, "chebyshev")
        case ("Sub", "Abs", "Pow", "ReduceSum") if power > 0:
            node = Distance(rows, table, "minkowski", p=power)
        case _:
            raise call.unsupported(f"is a loop over {', '.join(kinds)[:80]}, which is not supported.")
    shape = (len(points), None) if x is first else (None, len(points))
    return first, of_node(node.checked(), shape, x.dtype)


def _differences(call: Call, body: Body) -> tuple[tuple[str, ...], float]:
    """Return the operators of a loop's body on the difference of its inputs, in order, and its power."""
    same, ends = {port.name: port.name for port in body.inputs}, ""
    kinds: list[str] = []
    power = 0.0
    for operation in body.operations:
        inputs = [same.get(name, name) for name in operation.inputs]
        if operation.kind == "Identity":
            same[operation.outputs[0]] = inputs[0]
            continue
        constants = [body.constants[name] for name in inputs if name in body.constants]
        variables = {name for name in inputs if name not in body.constants}
        if variables != ({port.name for port in body.inputs} if not kinds else {ends}):
            raise call.unsupported("is a loop of a form that is not supported.")
        if operation.kind == "Pow" and constants and constants[0].size == 1:
            power = float(constants[0].reshape(-1)[0])
        if operation.kind.startswith("Reduce"):
            axes = constants[0] if constants else operation.attributes.get("axes", np.zeros(0))
            if np.asarray(axes).tolist() not in ([1], [-1]) or operation.attributes.get("keepdims", 1):
                raise call.unsupported("is a loop of a form that is not supported.")
        kinds.append(operation.kind)
        ends = operation.outputs[0]
    results = [same.get(port.name, port.name) for port in body.outputs]
    if results != [body.inputs[0].name, ends]:
        raise call.unsupported("is a loop of a form that is not supported.")
    return tuple(kinds), power


OPERATIONS: Mapping[str, Evaluate] = {"MatMul": _matmul, "Gemm": _gemm, "Scan": _scan}
"""By operator of ONNX's own domain."""

MICROSOFT: Mapping[str, Evaluate] = {"CDist": _distances}  # by operator of the domain com.microsoft
