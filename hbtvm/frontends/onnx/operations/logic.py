"""Comparisons, logic, and ``Where``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hbtvm.frontends.onnx.broadcasting import flat, operand, shape_of, stretched
from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.joining import joined, mapped
from hbtvm.frontends.onnx.operations.arithmetic import size_of, stepwise
from hbtvm.frontends.onnx.texts import encoding
from hbtvm.frontends.onnx.values import Rows, Value, bounded, each, of_node
from hbtvm.graph.columns.evaluate import of_numbers
from hbtvm.graph.columns.steps import Above, Equals, Fill, IsMissing
from hbtvm.graph.columns.table import Table
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply

_COMPARISONS: Mapping[str, str] = {
    "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "Equal": "equal",
}  # fmt: skip


def no(x: Any) -> Node:
    """Return 1 for values of 0, else 0."""
    return apply("equal", x, 0.0)


def _comparison(kind: str) -> Evaluate:
    name = _COMPARISONS[kind]

    def run(call: Call) -> Value:
        a, b = call.value(0), call.value(1)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            bounded(size_of(a, b))
            return np.asarray(getattr(np, name)(a, b)).astype(bool)
        shape = shape_of([a, b])
        if kind == "Equal" and "str" in (a.dtype, b.dtype):
            return _same_text(call, a, b, shape)
        x = a if isinstance(a, Rows) else None
        if kind == "Greater" and x is not None and isinstance(b, np.ndarray):
            wide = stretched(x.numbers(), shape)
            if isinstance(wide.content, Table):
                return Rows(shape, "bool", stepwise(wide, flat(b, shape).astype(np.float64), Above))
        return of_node(apply(name, operand(a, shape), operand(b, shape)), shape, "bool")

    return run


def _same_text(call: Call, a: Value, b: Value, shape: Any) -> Rows:
    """Compare texts with constants."""
    x, c = (a, b) if isinstance(a, Rows) else (b, a)
    if not isinstance(x, Rows) or isinstance(c, Rows):
        raise call.unsupported("compares strings of the rows with each other, which is not supported.")
    wanted = np.broadcast_to(flat(c, shape), stretched(x, shape).width).tolist()
    x = stretched(x, shape)
    if x.levels is not None:
        single = (x.take(np.array([i]), (None, 1)) for i in range(x.width))
        pairs = zip(single, wanted, strict=True)
        columns = [mapped(column, partial(np.equal, value), "bool") for column, value in pairs]
        return joined(columns, shape, "bool")
    assert isinstance(x.content, Table)
    texts = list(dict.fromkeys(wanted))
    encode = encoding(texts)
    matched = zip(x.content.columns, wanted, strict=True)
    equal = tuple(encode(column).then(Equals((texts.index(value),))) for column, value in matched)
    return Rows(shape, "bool", Table(equal))


def _logic(call: Call) -> Value:
    a, b = call.value(0), call.value(1)
    kind = call.operation.kind
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        bounded(size_of(a, b))
        function = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}[kind]
        return np.asarray(function(a, b))
    shape = shape_of([a, b])
    left, right = operand(a, shape), operand(b, shape)
    node: Node
    if kind == "And":
        node = apply("multiply", left, right)
    elif kind == "Or":
        node = apply("maximum", left, right)
    else:
        node = no(apply("equal", left, right))
    return of_node(node, shape, "bool")


def _not(call: Call) -> Value:
    x = call.value(0)
    if isinstance(x, np.ndarray):
        return np.logical_not(x)
    return of_node(no(x.node()), x.shape, "bool")


def _is_nan(call: Call) -> Value:
    x = call.value(0)
    if isinstance(x, np.ndarray):
        return np.isnan(x)
    x = x.numbers()
    if isinstance(x.content, Table):
        return Rows(x.shape, "bool", each(x.content, IsMissing()))
    return of_node(apply("isnan", x.node()), x.shape, "bool")


def _where(call: Call) -> Value:
    condition, a, b = call.value(0), call.value(1), call.value(2)
    values = (condition, a, b)
    if all(isinstance(value, np.ndarray) for value in values):
        bounded(size_of(*values))  # type: ignore[arg-type]
        return np.where(condition, a, b)  # type: ignore[arg-type]
    shape = shape_of(values)
    if "str" in (a.dtype, b.dtype):
        return _filled(call, condition, a, b, shape)
    dtype = a.dtype if isinstance(a, Rows) else a.dtype.name
    if isinstance(condition, np.ndarray):
        condition = condition.astype(np.float64)
    return of_node(apply("where", *(operand(value, shape) for value in (condition, a, b))), shape, dtype)


def _filled(call: Call, condition: Value, a: Value, b: Value, shape: Any) -> Rows:
    """Replace some of the input's strings by a constant: the form of imputers of strings."""
    refused = call.unsupported("chooses among strings in a way that is not supported.")
    if not isinstance(a, np.ndarray) or not isinstance(b, Rows) or not isinstance(condition, Rows):
        raise refused
    x, when = stretched(b, shape), stretched(condition.numbers(), shape)
    if not isinstance(x.content, Table) or not isinstance(when.content, Table) or x.levels is not None:
        raise refused
    wanted = np.broadcast_to(flat(a, shape), x.width).tolist()
    columns = []
    for column, other, value in zip(x.content.columns, when.content.columns, wanted, strict=True):
        encoder = other.encoder
        at = 0 if encoder is None else other.steps.index(encoder)
        if encoder is None or other.source != column.source or column.steps:
            raise refused
        chosen = of_numbers(other.steps[at + 1 :], np.arange(len(encoder), dtype=np.float64)) != 0
        if chosen[-1]:
            # All strings but some.
            raise refused
        codes = np.flatnonzero(chosen).tolist()
        columns.append(
            column.then(*other.steps[:at], *(Fill(value, encoder.categories[code]) for code in codes))
        )
    return Rows(shape, "str", Table(tuple(columns)))


OPERATIONS: Mapping[str, Evaluate] = {
    **{kind: _comparison(kind) for kind in _COMPARISONS},
    **dict.fromkeys(("And", "Or", "Xor"), _logic),
    "Not": _not,
    "IsNaN": _is_nan,
    "Where": _where,
}
"""By operator of ONNX's own domain."""
