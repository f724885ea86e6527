"""Reductions within a row: sums, extremes, positions, softmax, top k."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.frontends.onnx.call import Call, Evaluate
from hbtvm.frontends.onnx.operations.shapes import axes_of, axis_of
from hbtvm.frontends.onnx.values import Rows, Value, of_node
from hbtvm.operators.base import Node
from hbtvm.operators.distances import TopK
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import Repeat, reduce, select

_MOST_SUMS = 4096  # bound of a cumulative sum's columns: it is a product with a square matrix


def spread(node: Node, groups: int, size: int) -> Node:
    """Repeat each group's value for the group's columns."""
    return node if groups == 1 or size == 1 else Repeat(node, size)


def grouped(x: Rows, axes: Sequence[int]) -> tuple[Node, int]:
    """Return the columns with some axes last, so that groups are consecutive, and the number of groups."""
    kept = [i for i in range(len(x.shape)) if i not in axes]
    order = x.grid().transpose([*kept, *axes]).ravel()
    size = math.prod(x.inner) and math.prod(x.shape[i] or 1 for i in axes)
    return select(x.node(), order), x.width // size


def log_sum_exp(node: Node, groups: int) -> Node:
    """Return the logarithm of each group's sum of exponentials, without overflow."""
    size = node.width // groups
    most = reduce("max", node, groups)
    # If all are -inf, nothing is subtracted.
    most = apply("where", apply("less", apply("absolute", most), np.inf), most, 0.0)
    powers = apply("exp", apply("subtract", node, spread(most, groups, size)))
    return apply("add", apply("log", reduce("sum", powers, groups)), most)


_REDUCTIONS: Mapping[str, Callable[[Node, int], Node]] = {
    "ReduceSum": lambda x, g: reduce("sum", x, g),
    "ReduceMean": lambda x, g: apply("divide", reduce("sum", x, g), float(x.width // g)),
    "ReduceMax": lambda x, g: reduce("max", x, g),
    "ReduceMin": lambda x, g: reduce("min", x, g),
    "ReduceProd": lambda x, g: reduce("product", x, g),
    "ReduceSumSquare": lambda x, g: reduce("sum", apply("square", x), g),
    "ReduceL1": lambda x, g: reduce("sum", apply("absolute", x), g),
    "ReduceL2": lambda x, g: apply("sqrt", reduce("sum", apply("square", x), g)),
    "ReduceLogSum": lambda x, g: apply("log", reduce("sum", x, g)),
    "ReduceLogSumExp": log_sum_exp,
}

_OF_CONSTANTS: Mapping[str, Callable[..., Any]] = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceSumSquare": lambda x, axis, keepdims: np.sum(x * x, axis=axis, keepdims=keepdims),
    "ReduceL1": lambda x, axis, keepdims: np.sum(np.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: np.sqrt(np.sum(x * x, axis=axis, keepdims=keepdims)),
}  # fmt: skip


def _reduction(call: Call) -> Value:
    x, kind = call.value(0), call.operation.kind
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    axes = axes_of(call, 1, rank)
    if not axes and call.whole("noop_with_empty_axes", 0):
        return x
    axes = list(range(rank)) if not axes else sorted(set(axes))
    keep = bool(call.whole("keepdims", 1))
    if isinstance(x, np.ndarray):
        if kind not in _OF_CONSTANTS:
            raise call.unsupported("has a constant as its input, which is not supported.")
        return np.asarray(_OF_CONSTANTS[kind](x, axis=tuple(axes), keepdims=keep)).astype(x.dtype)
    shape = _reduced(call, x, axes, keep)
    node, groups = grouped(x.numbers(), axes)
    return of_node(_REDUCTIONS[kind](node, groups), shape, x.dtype)


def _reduced(call: Call, x: Rows, axes: Sequence[int], keep: bool) -> list[int | None]:
    """Return the shape without some axes, or with 1 in their place."""
    if x.axis in axes:
        raise call.unsupported("reduces over the rows, which is not supported.")
    if not x.width:
        raise call.damaged("it reduces no values.")
    kept: list[int | None] = [1 if i in axes else size for i, size in enumerate(x.shape)]
    return kept if keep else [size for i, size in enumerate(x.shape) if i not in axes]


def _position(call: Call) -> Value:
    """``ArgMax`` and ``ArgMin``."""
    x, kind = call.value(0), "argmax" if call.operation.kind == "ArgMax" else "argmin"
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    axis, keep = axis_of(call, call.whole("axis", 0), rank), bool(call.whole("keepdims", 1))
    if isinstance(x, np.ndarray):
        return np.asarray(getattr(np, kind)(x, axis=axis, keepdims=keep)).astype(np.int64)
    shape = _reduced(call, x, [axis], keep)
    node, groups = grouped(x.numbers(), [axis])
    size = node.width // groups
    last = bool(call.whole("select_last_index", 0))
    if last:
        node = select(node, np.arange(node.width).reshape(groups, size)[:, ::-1].ravel())
    index: Node
    if size == 2 and groups == 1:
        # A comparison is part of an expression, but a reduction is a separate loop.
        index = apply("greater" if kind == "argmax" else "less", select(node, [1]), select(node, [0]))
    else:
        index = reduce(kind, node, groups)  # type: ignore[arg-type]
    if last:
        index = apply("subtract", float(size - 1), index)
    return Rows(tuple(shape), "int64", index, np.arange(size), Extreme(kind))


class Extreme:
    """The origin of a tensor of positions of extreme values.

    `kind`: ``"argmax"`` or ``"argmin"``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind


def softmax(node: Node, groups: int) -> Node:
    """Return the softmax of each group of columns."""
    size = node.width // groups
    powers = apply("exp", apply("subtract", node, spread(reduce("max", node, groups), groups, size)))
    return apply("divide", powers, spread(reduce("sum", powers, groups), groups, size))


def _log_softmax(node: Node, groups: int) -> Node:
    return apply("subtract", node, spread(log_sum_exp(node, groups), groups, node.width // groups))


def along(x: Rows, axes: Sequence[int], function: Callable[[Node, int], Node]) -> Rows:
    """Apply a function to groups of columns; return its values in the tensor's order."""
    kept = [i for i in range(len(x.shape)) if i not in axes]
    order = x.grid().transpose([*kept, *axes]).ravel()
    node, groups = grouped(x, axes)
    return of_node(select(function(node, groups), np.argsort(order)), x.shape, x.dtype)


def _soft(call: Call) -> Value:
    x = call.rows().numbers()
    function = softmax if call.operation.kind == "Softmax" else _log_softmax
    if call.version >= 13:
        axes = [axis_of(call, call.whole("axis", -1), len(x.shape))]
    else:
        # Before version 13, this axis and all later axes count as a single axis.
        axes = list(range(axis_of(call, call.whole("axis", 1), len(x.shape)), len(x.shape)))
    if x.axis in axes:
        raise call.unsupported("reduces over the rows, which is not supported.")
    return along(x, axes, function)


def _lp_normalization(call: Call) -> Value:
    x = call.rows().numbers()
    axis = axis_of(call, call.whole("axis", -1), len(x.shape))
    if x.axis == axis:
        raise call.unsupported("reduces over the rows, which is not supported.")
    first = call.whole("p", 2) == 1

    def divided(node: Node, groups: int) -> Node:
        size = node.width // groups
        total = reduce("sum", apply("absolute" if first else "square", node), groups)
        norm = spread(total if first else apply("sqrt", total), groups, size)
        return apply("where", apply("equal", norm, 0.0), 0.0, apply("divide", node, norm))

    return along(x, [axis], divided)


def _top_k(call: Call) -> tuple[Value, ...]:
    x = call.rows().numbers()
    k = int(call.constant(1, "k").reshape(-1)[0]) if call.version >= 10 else call.whole("k")
    axis = axis_of(call, call.whole("axis", -1), len(x.shape))
    if axis == x.axis or x.width != x.shape[axis]:
        raise call.unsupported(f"sorts along the axis {axis} of the shape {x.shape}, which is not supported.")
    if not 1 <= k <= x.width:
        raise call.damaged(f"it takes {k} of {x.width} values.")
    largest = bool(call.whole("largest", 1))
    node = TopK(apply("negative", x.node()) if largest else x.node(), k)
    values: Node = select(node, np.arange(k))
    shape = list(x.shape)
    shape[axis] = k
    result = of_node(apply("negative", values) if largest else values, shape, x.dtype)
    return result, of_node(select(node, np.arange(k, 2 * k)), shape, "int64")


def _cumulative(call: Call) -> Value:
    x = call.value(0)
    rank = x.ndim if isinstance(x, np.ndarray) else len(x.shape)
    axis = axis_of(call, int(call.constant(1, "axis").reshape(-1)[0]), rank)
    if isinstance(x, np.ndarray) or axis == x.axis or x.width != x.shape[axis]:
        raise call.unsupported("sums up along an axis for which that is not supported.")
    if x.width > _MOST_SUMS:
        raise call.unsupported(f"sums up {x.width:,} columns; at most {_MOST_SUMS:,} are supported.")
    triangle = np.triu(np.ones((x.width, x.width)), 1 if call.whole("exclusive", 0) else 0)
    weight = triangle.T.copy() if call.whole("reverse", 0) else triangle
    return of_node(Contract(x.node(False), weight), x.shape, x.dtype)


OPERATIONS: Mapping[str, Evaluate] = {
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "ArgMax": _position,
    "ArgMin": _position,
    "Softmax": _soft,
    "LogSoftmax": _soft,
    "LpNormalization": _lp_normalization,
    "TopK": _top_k,
    "CumSum": _cumulative,
}
"""By operator of ONNX's own domain."""
