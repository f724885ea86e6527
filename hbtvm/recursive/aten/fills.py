"""ATen's operators that make constants, and the check of types.

Functions without a docstring implement ATen's operators, with the arguments of their schemas; they raise
`ModelError` with the rest of a sentence that begins with the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.tensors import Axis, Size, Tensor, as_size, axis_of, sizes, spread, tensor
from hbtvm.recursive.aten.values import Values


def full(values: Values, size: Sequence[int | Size], fill_value: float, dtype: int | None = None) -> Tensor:
    check_dtype(dtype)
    axes = [axis_sized(length) for length in size]
    return tensor(np.array(spread(np.float32(fill_value), sizes(axes)), np.float32), axes)


def full_like(values: Values, x: Tensor, fill_value: float, dtype: int | None = None) -> Tensor:
    check_dtype(dtype)
    return tensor(np.array(spread(np.float32(fill_value), sizes(x.axes)), np.float32), x.axes)


def filled(number: float) -> dict[str, Callable[..., Tensor]]:
    """Return the operators that fill tensors with a number: ``zeros``, ``zeros_like``, ``new_zeros`` etc."""

    def plain(values: Values, size: Sequence[int | Size], dtype: int | None = None) -> Tensor:
        return full(values, size, number, dtype)

    def like(values: Values, x: Tensor, dtype: int | None = None) -> Tensor:
        return full_like(values, x, number, dtype)

    def new(values: Values, x: Tensor, size: Sequence[int | Size], dtype: int | None = None) -> Tensor:
        return full(values, size, number, dtype)

    name = {0.0: "zeros", 1.0: "ones"}[number]
    return {name: plain, f"{name}_like": like, f"new_{name}": new}


def new_full(
    values: Values, x: Tensor, size: Sequence[int | Size], fill_value: float, dtype: int | None = None
) -> Tensor:
    return full(values, size, fill_value, dtype)


def scalar_tensor(values: Values, s: float, dtype: int | None = None) -> Tensor:
    return full(values, (), s, dtype)


def to(values: Values, x: Tensor, dtype: int | None = None, **_: Any) -> Tensor:
    check_dtype(dtype)
    values.referring(x) if x.number >= 0 else None
    return x


def check_dtype(dtype: int | None) -> None:
    """Raise `ModelError` for types other than float32."""
    if dtype not in (None, 7):
        raise ModelError("makes numbers of another type than float32")


def axis_sized(size: int | Size) -> Axis:
    """Return a new axis of a size."""
    length = as_size(size)
    if (length.batch, length.children) == (0, 0):
        return axis_of(length.count)
    if length.count != 1 or length.batch + length.children != 1:
        raise ModelError("makes an axis in which nodes of the batch and other elements are mixed")
    return ("b",) if length.batch else ("c",)
