"""ATen's pointwise operators and reductions.

Functions without a docstring implement ATen's operators, with the arguments of their schemas; they raise
`ModelError` with the rest of a sentence that begins with the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.aligning import aligned
from hbtvm.recursive.aten.fills import check_dtype
from hbtvm.recursive.aten.forms import unbind
from hbtvm.recursive.aten.products import product
from hbtvm.recursive.aten.tensors import Tensor, numbers, tensor
from hbtvm.recursive.aten.values import Values
from hbtvm.recursive.cell import Shape
from hbtvm.recursive.reference import FUNCTIONS

MOST_TERMS = 64  # most elements of an axis to add or compare one by one

_BINARY = {"sum": "add", "amax": "max", "amin": "min"}


def pointwise(values: Values, op: str, *operands: Tensor | float) -> Tensor:
    """Apply a cell's pointwise operator."""
    tensors = aligned(values, [x if isinstance(x, Tensor) else scalar(x) for x in operands])
    axes = tensors[0].axes
    if all(x.constant for x in tensors):
        with np.errstate(all="ignore"):
            result = FUNCTIONS[op](*(x.data.astype(np.float64) for x in tensors))
        return tensor(np.asarray(result, np.float32), axes)
    refs = [None if _uniform(x) else values.referring(x) for x in tensors]
    shape = _shape(values, [x for x in refs if x is not None])
    of = tuple(
        values.number(float(x.data.flat[0])) if ref is None else values.value_of(ref, shape)
        for x, ref in zip(tensors, refs, strict=True)
    )
    return tensor(values.refs(values.apply(op, of)), axes)


def unary(op: str) -> Callable[..., Tensor]:
    """Return a unary operator."""

    def apply(values: Values, x: Tensor) -> Tensor:
        return pointwise(values, op, x)

    return apply


def scaled(op: str) -> Callable[..., Tensor]:
    """Return ``add`` or ``sub``, whose second operand may have a factor."""

    def apply(values: Values, x: Tensor | float, other: Tensor | float, alpha: float = 1) -> Tensor:
        if alpha != 1:
            other = pointwise(values, "mul", other, alpha)
        return pointwise(values, op, x, other)

    return apply


def binary(op: str) -> Callable[..., Tensor]:
    """Return a binary operator."""

    def apply(values: Values, x: Tensor | float, other: Tensor | float) -> Tensor:
        return pointwise(values, op, x, other)

    return apply


def rsub(values: Values, x: Tensor, other: Tensor | float, alpha: float = 1) -> Tensor:
    return scaled("sub")(values, other, x, alpha)


def reciprocal(values: Values, x: Tensor) -> Tensor:
    return pointwise(values, "div", 1.0, x)


def power(values: Values, x: Tensor, exponent: float) -> Tensor:
    if exponent not in (1, 2, 3):
        raise ModelError(f"raises numbers to the power {exponent!r:.80}; expected 1, 2 or 3")
    result = x
    for _ in range(int(exponent) - 1):
        result = pointwise(values, "mul", result, x)
    return result


def silu(values: Values, x: Tensor) -> Tensor:
    return pointwise(values, "mul", x, pointwise(values, "sigmoid", x))


def leaky_relu(values: Values, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    if not 0 <= negative_slope <= 1:
        raise ModelError(f"has a slope of {negative_slope!r:.80}; expected 0 to 1")
    return pointwise(values, "max", x, pointwise(values, "mul", x, negative_slope))


def clamp(values: Values, x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    low = x if min is None else pointwise(values, "max", x, min)
    return low if max is None else pointwise(values, "min", low, max)


def hardtanh(values: Values, x: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    return clamp(values, x, min_val, max_val)


def addcmul(values: Values, x: Tensor, tensor1: Tensor, tensor2: Tensor, value: float = 1) -> Tensor:
    return scaled("add")(values, x, pointwise(values, "mul", tensor1, tensor2), value)


def lerp(values: Values, x: Tensor, end: Tensor, weight: Tensor | float) -> Tensor:
    moved = pointwise(values, "mul", weight, pointwise(values, "sub", end, x))
    return pointwise(values, "add", x, moved)


def reduction(kind: str) -> Callable[..., Tensor]:
    """Return ``sum``, ``amax`` or ``amin``."""

    def apply(
        values: Values, x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False,
        dtype: int | None = None,
    ) -> Tensor:  # fmt: skip
        check_dtype(dtype)
        named = [dim] if isinstance(dim, int) else dim or range(len(x.axes))
        removed = sorted({x.axis(dim) for dim in named}, reverse=True)
        for at in removed:
            x = _reduced(values, kind, x, at)
        kept = [axis for at, axis in enumerate(x.axes) if keepdim or at not in removed]
        return tensor(x.data, kept, x)

    return apply


def extreme(kind: str) -> Callable[..., Any]:
    """Return ``max`` or ``min``, of two tensors or along an axis; then the places must stay unused."""

    def apply(values: Values, x: Tensor, other: Any = None, dim: Any = None, keepdim: bool = False) -> Any:
        if other is not None:
            return pointwise(values, kind, x, other)
        return [reduction(f"a{kind}")(values, x, dim, keepdim), None]

    return apply


def mean(
    values: Values, x: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False,
    dtype: int | None = None,
) -> Tensor:  # fmt: skip
    named = [dim] if isinstance(dim, int) else dim or range(len(x.axes))
    count = 1
    for at in {x.axis(dim) for dim in named}:
        if "c" in x.axes[at] and values.places is None:
            raise ModelError("takes the mean over children, and the cell takes any number (children=None)")
        count *= numbers(x.axes[at]) * ((values.places or 1) if "c" in x.axes[at] else 1)
    total = reduction("sum")(values, x, dim, keepdim, dtype)
    return pointwise(values, "div", total, float(count))


def softmax(values: Values, x: Tensor, dim: int, dtype: int | None = None, **_: Any) -> Tensor:
    check_dtype(dtype)
    at = x.axis(dim)
    if "c" in x.axes[at] and values.places is not None:
        x = values.unrolled(x)
    if not x.constant and len(x.axes[at]) == 1 and x.axes[at][0] == x.data.size:
        vector = values.value_of(values.referring(x), (x.data.size,))
        return tensor(values.refs(values.apply("softmax", (vector,))), x.axes)
    most = reduction("amax")(values, x, [at], True)
    powers = pointwise(values, "exp", pointwise(values, "sub", x, most))
    return pointwise(values, "div", powers, reduction("sum")(values, powers, [at], True))


def scalar(number: Any) -> Tensor:
    """Return a constant without axes."""
    if type(number) not in (int, float):
        raise ModelError(f"has {number!r:.80} for a number")
    return tensor(np.array(number, np.float32), ())


def _uniform(t: Tensor) -> bool:
    return t.constant and bool((t.data == t.data.flat[0]).all()) and math.isfinite(t.data.flat[0])


def _shape(values: Values, refs: Sequence[np.ndarray]) -> Shape:
    """Return the shape to compute an operator in: a matrix' if an operand is a whole matrix."""
    size = refs[0].size
    for operand in refs:
        owner = values.owners(operand)
        shape = values.values[owner[0]].shape
        if len(owner) == 1 and len(shape) == 2 and math.prod(shape) == size and values.pieces(operand) == 1:
            return shape
    return (size,)


def _reduced(values: Values, kind: str, x: Tensor, at: int) -> Tensor:
    """Reduce one axis of a tensor to size 1."""
    axes = (*x.axes[:at], (), *x.axes[at + 1 :])
    if "b" in x.axes[at]:
        raise ModelError("reduces over the nodes of the batch")
    if x.axes[at] == ("c",) and not x.constant:
        refs = values.referring(x)
        op = {"sum": "total", "amax": "most"}.get(kind)
        # The module gets zeros for absent children, and `total` skips these: they must add nothing.
        padded = values.places is not None and (kind != "sum" or not values.vanishes(refs))
        if op and not padded and values.per_child(refs):
            shape = _shape(values, [refs])
            number = values.apply(op, (values.value_of(refs, shape),))
            return tensor(values.refs(number), axes)
    if x.number >= 0:
        values.referring(x)  # raises
    x = values.unrolled(x)
    count = numbers(x.axes[at])
    if count == 1:
        return x
    if kind == "sum" and (count > MOST_TERMS or x.data.size == count) and not x.constant:
        moved = np.moveaxis(x.data, x.span(at).start, -1).reshape(-1, count)
        return tensor(product(values, moved, np.ones((count, 1), np.float32), f"ones_{count}"), axes)
    if count > MOST_TERMS and not x.constant:
        raise ModelError(f"compares {count} numbers with one another; expected at most {MOST_TERMS}")
    if x.constant:
        known: Any = {"sum": np.add, "amax": np.maximum, "amin": np.minimum}[kind].reduce(
            x.data.astype(np.float64), axis=x.span(at).start
        )
        return tensor(np.asarray(known, np.float32), axes)
    terms = unbind(values, x, at)
    result = terms[0]
    for term in terms[1:]:
        result = pointwise(values, _BINARY[kind], result, term)
    return tensor(result.data, axes)
