"""Tensors of different shapes side by side, as numpy and ONNX stretch them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hbtvm.frontends.onnx.values import Rows, Shape, Value, few_columns
from hbtvm.operators.base import Node


def shape_of(values: Sequence[Value]) -> Shape:
    """The shape that tensors are stretched to.

    Raises `ValueError` if they don't fit each other, or their rows are on different axes. Raises
    `UnsupportedModel` if it has too many columns.
    """
    shapes = [one.shape for one in values]
    rank = max(map(len, shapes))
    padded = [(*(1,) * (rank - len(one)), *one) for one in shapes]
    result: list[int | None] = []
    for extents in zip(*padded, strict=True):
        distinct = {one for one in extents if one != 1}
        if len(distinct) > 1:
            raise ValueError(f"tensors of the shapes {', '.join(map(str, shapes))} don't fit each other")
        result.append(distinct.pop() if distinct else 1)
    if result.count(None) != 1:
        raise ValueError(f"tensors of the shapes {', '.join(map(str, shapes))} have rows on different axes")
    few_columns(math.prod(one for one in result if one is not None))
    return tuple(result)


def stretched(value: Rows, shape: Shape) -> Rows:
    """Rows with as many columns as a shape says."""
    if value.shape == shape:
        return value
    grid = value.grid()
    grid = grid.reshape([1] * (len(shape) - grid.ndim) + list(grid.shape))
    return value.take(np.broadcast_to(grid, [1 if one is None else one for one in shape]), shape)


def flat(constant: np.ndarray, shape: Shape) -> np.ndarray:
    """A constant's values for the columns of a shape: of one value for all, shape (1,)."""
    if constant.size == 1:
        return constant.reshape(1)
    inner = [1 if one is None else one for one in shape]
    result: np.ndarray = np.broadcast_to(constant, inner).ravel()
    return result


def operand(value: Value, shape: Shape) -> Node | np.ndarray:
    """What `hbtvm.operators.pointwise.apply` takes, for the columns of a shape."""
    if isinstance(value, Rows):
        # One column meets all others anyway.
        return (value if value.width == 1 else stretched(value.numbers(), shape)).node()
    if value.dtype == object:
        raise ValueError("texts where numbers are expected")
    return flat(value, shape).astype(np.float64)
