"""Broadcasting of tensors, as in numpy and ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hbtvm.frontends.onnx.values import Rows, Shape, Value, few_columns
from hbtvm.operators.base import Node


def shape_of(values: Sequence[Value]) -> Shape:
    """Return the shape that tensors are broadcast to.

    Raises `ValueError` if they don't fit each other, or their rows are on different axes. Raises
    `UnsupportedModel` if it has too many columns.
    """
    shapes = [value.shape for value in values]
    rank = max(map(len, shapes))
    padded = [(*(1,) * (rank - len(shape)), *shape) for shape in shapes]
    result: list[int | None] = []
    for extents in zip(*padded, strict=True):
        distinct = {extent for extent in extents if extent != 1}
        if len(distinct) > 1:
            raise ValueError(f"tensors of the shapes {', '.join(map(str, shapes))} don't fit each other")
        result.append(distinct.pop() if distinct else 1)
    if result.count(None) != 1:
        raise ValueError(f"tensors of the shapes {', '.join(map(str, shapes))} have rows on different axes")
    few_columns(math.prod(extent for extent in result if extent is not None))
    return tuple(result)


def stretched(value: Rows, shape: Shape) -> Rows:
    """Return rows, broadcast to a shape."""
    if value.shape == shape:
        return value
    grid = value.grid()
    grid = grid.reshape([1] * (len(shape) - grid.ndim) + list(grid.shape))
    return value.take(np.broadcast_to(grid, [1 if extent is None else extent for extent in shape]), shape)


def flat(constant: np.ndarray, shape: Shape) -> np.ndarray:
    """Return a constant's values for the columns of a shape; shape (1,) if it has a single value."""
    if constant.size == 1:
        return constant.reshape(1)
    inner = [1 if extent is None else extent for extent in shape]
    result: np.ndarray = np.broadcast_to(constant, inner).ravel()
    return result


def operand(value: Value, shape: Shape) -> Node | np.ndarray:
    """Return a value as an operand of `hbtvm.operators.pointwise.apply`, for the columns of a shape."""
    if isinstance(value, Rows):
        # `apply` broadcasts a single column.
        return (value if value.width == 1 else stretched(value.numbers(), shape)).node()
    if value.dtype == object:
        raise ValueError("texts where numbers are expected")
    return flat(value, shape).astype(np.float64)
