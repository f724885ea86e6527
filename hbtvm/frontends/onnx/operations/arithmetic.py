"""Arithmetic: unary, binary and variadic functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hbtvm.frontends.onnx.broadcasting import flat, operand, shape_of, stretched
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.values import Rows, Value, bounded, each, of_node
from hbtvm.graph.columns.steps import UFUNCS, Arithmetic, Function, Step
from hbtvm.graph.columns.table import Table
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import FUNCTIONS, apply

_UNARY: Mapping[str, str] = {
    "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Abs": "absolute", "Neg": "negative", "Floor": "floor",
    "Ceil": "ceil", "Round": "rint", "Sign": "sign", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Tanh": "tanh",
    "Sinh": "sinh", "Cosh": "cosh", "Asin": "arcsin", "Atan": "arctan", "Asinh": "arcsinh",
    "Atanh": "arctanh", "Sigmoid": "sigmoid", "Relu": "relu", "Reciprocal": "reciprocal",
}  # fmt: skip


_ARITHMETIC: Mapping[str, Any] = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Pow": "power"
}  # fmt: skip


def _unary(name: str) -> Evaluate:
    def run(call: Call) -> Value:
        x = call.value(0)
        if isinstance(x, np.ndarray):
            return FUNCTIONS[name](x).astype(x.dtype)
        x = x.numbers()
        if isinstance(x.content, Table) and name in UFUNCS and x.dtype.startswith("float"):
            return Rows(x.shape, x.dtype, each(x.content, Function(name)))
        return of_node(apply(name, x.node()), x.shape, x.dtype)

    return run


def stepwise(x: Rows, constant: np.ndarray, make: Callable[[float], Step]) -> Table:
    """Append a step to each column of a table, by constants; a single constant serves all columns."""
    assert isinstance(x.content, Table)
    if len(constant) == 1:
        return each(x.content, make(float(constant[0])))
    pairs = zip(x.content.columns, constant.tolist(), strict=True)
    return Table(tuple(column.then(make(value)) for column, value in pairs))


def _arithmetic(kind: str) -> Evaluate:
    def run(call: Call) -> Value:
        return arithmetic(call, kind, call.value(0), call.value(1))

    return run


def arithmetic(call: Call, kind: str, a: Value, b: Value) -> Value:
    """``Add``, ``Sub``, ``Mul``, ``Div`` or ``Pow`` of two tensors."""
    name = _ARITHMETIC[kind]
    dtype = a.dtype if isinstance(a, Rows) else a.dtype.name
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return of_constants(call, name, a, b)
    shape = shape_of([a, b])
    neutral = 0.0 if kind in ("Add", "Sub") else 1.0
    if isinstance(a, Rows) and isinstance(b, np.ndarray) and shape == a.shape and np.all(b == neutral):
        return a
    as_steps = _as_steps(kind, a, b, shape, dtype)
    if as_steps is not None:
        return as_steps
    if kind == "Pow" and isinstance(b, np.ndarray) and (b == 2).all():
        assert isinstance(a, Rows)
        return of_node(apply("square", operand(a, shape)), shape, dtype)
    node: Node = apply(name, operand(a, shape), operand(b, shape))
    if kind == "Div" and not dtype.startswith("float"):
        node = apply("trunc", node)
    return of_node(node, shape, dtype)


def _as_steps(kind: str, a: Value, b: Value, shape: Any, dtype: str) -> Rows | None:
    """Return arithmetic of a table's columns with constants as steps; None for other arithmetic."""
    x, c = (a, b) if isinstance(a, Rows) else (b, a)
    if not isinstance(x, Rows) or isinstance(c, Rows) or not dtype.startswith("float"):
        return None
    x = stretched(x.numbers(), shape)
    if not isinstance(x.content, Table) or c.dtype == object:
        return None
    constant = flat(c, shape).astype(np.float64)
    if (isinstance(a, Rows) and kind != "Pow") or kind in ("Add", "Mul"):
        table = stepwise(x, constant, lambda value: Arithmetic(_ARITHMETIC[kind], value, True))
    elif kind == "Sub":
        # -x + c is exactly c - x.
        negative = Rows(x.shape, x.dtype, each(x.content, Function("negative")))
        table = stepwise(negative, constant, lambda value: Arithmetic("add", value, True))
    else:
        return None
    return Rows(shape, dtype, table)


def of_constants(call: Call, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bounded(size_of(a, b))
    if name == "divide" and a.dtype.kind in "iu":
        if not np.all(b):
            raise call.damaged("it divides integers by 0.")
        quotient = np.floor_divide(np.abs(a), np.abs(b)) * np.sign(a) * np.sign(b)
        return np.asarray(quotient).astype(a.dtype)
    with np.errstate(all="ignore"):
        if name == "power" and a.dtype.kind in "iu":
            return np.asarray(np.power(a.astype(np.float64), b)).astype(a.dtype)
        return np.asarray(getattr(np, name)(a, b)).astype(a.dtype)


def size_of(*arrays: np.ndarray) -> int:
    return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))


def _several(kind: str) -> Evaluate:
    """``Sum``, ``Mean``, ``Max`` and ``Min`` of any number of tensors."""
    name = {"Sum": "add", "Mean": "add", "Max": "maximum", "Min": "minimum"}[kind]

    def run(call: Call) -> Value:
        total = call.value(0)
        for at in range(1, len(call.inputs)):
            other = call.value(at)
            if isinstance(total, np.ndarray) and isinstance(other, np.ndarray):
                total = of_constants(call, name, total, other)
                continue
            shape = shape_of([total, other])
            dtype = total.dtype if isinstance(total, Rows) else total.dtype.name
            total = of_node(apply(name, operand(total, shape), operand(other, shape)), shape, dtype)
        if kind != "Mean":
            return total
        count = np.array(len(call.inputs), np.float32)
        return arithmetic(call, "Div", total, count)

    return run


def _mod(call: Call) -> Value:
    a, b = call.value(0), call.value(1)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        bounded(size_of(a, b))
        if a.dtype.kind in "iu" and not np.all(b):
            raise call.damaged("it divides integers by 0.")
        return np.asarray(np.fmod(a, b) if call.whole("fmod", 0) else np.mod(a, b))
    shape = shape_of([a, b])
    x, y = operand(a, shape), operand(b, shape)
    rounding = "trunc" if call.whole("fmod", 0) else "floor"
    node = apply("subtract", x, apply("multiply", apply(rounding, apply("divide", x, y)), y))
    return of_node(node, shape, a.dtype if isinstance(a, Rows) else a.dtype.name)


def _identity(call: Call) -> Value:
    return call.value(0)


OPERATIONS: Mapping[str, Evaluate] = {
    **{kind: _unary(name) for kind, name in _UNARY.items()},
    **{kind: _arithmetic(kind) for kind in _ARITHMETIC},
    **{kind: _several(kind) for kind in ("Sum", "Mean", "Max", "Min")},
    "Mod": _mod,
    "Identity": _identity,
    "Dropout": _identity,
}
"""By operator of ONNX's own domain."""
