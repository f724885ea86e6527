"""ATen's operators that only move numbers: views, slices and concatenations.

Functions without a docstring implement ATen's operators, with the arguments of their schemas; they raise
`ModelError` with the rest of a sentence that begins with the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.aligning import aligned
from hbtvm.recursive.aten.fills import axis_sized
from hbtvm.recursive.aten.tensors import (
    Size,
    Tensor,
    as_size,
    axis_of,
    numbers,
    regrouped,
    size_of,
    sizes,
    spread,
    tensor,
)
from hbtvm.recursive.aten.values import Values

MOST_REPEATS = 4096  # most repeats along an axis that is not of size 1

_END = 1 << 62


def sym_size(values: Values, x: Tensor, dim: int) -> int | Size:
    return size_of(x.axes[x.axis(dim)], values.places).plain()


def multiply(values: Values, a: int | Size, b: int | Size) -> int | Size:
    return as_size(a).times(as_size(b)).plain()


def divide(values: Values, a: int | Size, b: int | Size) -> int | Size:
    quotient = as_size(a).by(as_size(b))
    if quotient is None:
        raise ModelError("divides a size so that there is a rest")
    return quotient.plain()


def same(values: Values, x: Tensor, **_: Any) -> Tensor:
    return x


def view(values: Values, x: Tensor, size: Sequence[int | Size]) -> Tensor:
    whole = Size(1)
    for axis in x.axes:
        whole = whole.times(size_of(axis, values.places))
    product = Size(1)
    for length in size:
        product = product.times(Size(1) if length == -1 else as_size(length))
    rest = whole.by(product)
    if rest is None or sum(length == -1 for length in size) > 1:
        raise ModelError("reshapes a tensor to another number of elements")
    wanted = [rest if length == -1 else as_size(length) for length in size]
    result = regrouped(x, wanted, values.places)
    if result is None:
        result = regrouped(values.unrolled(x), wanted, values.places)
    assert result is not None
    return result


def flatten(values: Values, x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    begin, end = x.axis(start_dim), x.axis(end_dim)
    all_sizes: list[int | Size] = [size_of(axis, values.places) for axis in x.axes]
    return view(values, x, [*all_sizes[:begin], -1, *all_sizes[end + 1 :]])


def unflatten(values: Values, x: Tensor, dim: int, sizes: Sequence[int | Size]) -> Tensor:
    at = x.axis(dim)
    all_sizes: list[int | Size] = [size_of(axis, values.places) for axis in x.axes]
    return view(values, x, [*all_sizes[:at], *sizes, *all_sizes[at + 1 :]])


def unsqueeze(values: Values, x: Tensor, dim: int) -> Tensor:
    count = len(x.axes) + 1
    if not -count <= dim < count:
        raise ModelError(f"names axis {dim} of {count}")
    at = dim % count
    return tensor(x.data, (*x.axes[:at], (), *x.axes[at:]), x)


def squeeze(values: Values, x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    named = range(len(x.axes)) if dim is None else [dim] if isinstance(dim, int) else dim
    removed = {x.axis(dim) for dim in named}
    return tensor(x.data, [axis for at, axis in enumerate(x.axes) if axis or at not in removed], x)


def permute(values: Values, x: Tensor, dims: Sequence[int]) -> Tensor:
    order = [x.axis(dim) for dim in dims]
    if sorted(order) != list(range(len(x.axes))):
        raise ModelError("names an axis twice, or leaves one out")
    spans = [x.span(at) for at in order]
    moved = x.data.transpose([at for span in spans for at in range(span.start, span.stop)])
    return tensor(moved, [x.axes[at] for at in order], x)


def transpose(values: Values, x: Tensor, dim0: int, dim1: int) -> Tensor:
    order = list(range(len(x.axes)))
    a, b = x.axis(dim0), x.axis(dim1)
    order[a], order[b] = b, a
    return permute(values, x, order)


def t(values: Values, x: Tensor) -> Tensor:
    return permute(values, x, range(len(x.axes) - 1, -1, -1))


def expand(values: Values, x: Tensor, size: Sequence[int | Size], **_: Any) -> Tensor:
    new = len(size) - len(x.axes)
    if new < 0:
        raise ModelError("expands a tensor to fewer axes")
    padded = tensor(x.data, ((),) * new + x.axes, x)
    axes = []
    for axis, length in zip(padded.axes, size, strict=True):
        same = length == -1 or as_size(length) == size_of(axis, values.places)
        axes.append(axis if same else axis_sized(length))
        if not same and axis:
            raise ModelError("expands an axis that is not of size 1")
    shape: list[int] = []
    for old, axis in zip(padded.axes, axes, strict=True):
        shape += sizes([old]) if old == axis else (1,) * len(axis)
    return tensor(spread(x.data.reshape(shape), sizes(axes)), axes, x)


def expand_as(values: Values, x: Tensor, other: Tensor) -> Tensor:
    return expand(values, x, [size_of(axis, values.places) for axis in other.axes])


def repeat(values: Values, x: Tensor, repeats: Sequence[int | Size]) -> Tensor:
    x = tensor(x.data, ((),) * (len(repeats) - len(x.axes)) + x.axes, x)
    for at, times in enumerate(repeats):
        if times == 1:
            continue
        if x.axes[at]:
            if not isinstance(times, int) or not 1 <= times <= MOST_REPEATS:
                raise ModelError(f"repeats a tensor {times!r:.80} times; expected 1 to {MOST_REPEATS}")
            x = cat(values, [x] * times, at)
        else:
            target: list[int | Size] = [-1] * len(x.axes)
            target[at] = times
            x = expand(values, x, target)
    return x


def select(values: Values, x: Tensor, dim: int, index: int) -> Tensor:
    x, at = _whole(values, x, dim)
    count = numbers(x.axes[at])
    if type(index) is not int or not -count <= index < count:
        raise ModelError(f"takes element {index!r:.80} of {count}")
    part = _part(x, at, index % count, index % count + 1)
    return tensor(part.data, [axis for i, axis in enumerate(part.axes) if i != at], part)


def slice_(
    values: Values, x: Tensor, dim: int = 0, start: int | None = None, end: Any = None, step: int = 1
) -> Tensor:
    at = x.axis(dim)
    extent = size_of(x.axes[at], values.places)
    ends = end is None or end == extent.plain() or (type(end) is int and end >= _END)
    if not start and ends and step == 1:
        return x
    x, at = _whole(values, x, dim)
    count = numbers(x.axes[at])
    if type(start or 0) is not int or (not ends and type(end) is not int) or step != 1:
        raise ModelError("takes a part of a tensor in steps, or up to an element that depends on the call")
    begin, stop, _ = slice(start, None if ends else end, 1).indices(count)
    return _part(x, at, begin, stop)


def narrow(values: Values, x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return slice_(values, x, dim, start, start + length)


def split_with_sizes(values: Values, x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    x, at = _whole(values, x, dim)
    if sum(split_sizes) != numbers(x.axes[at]):
        raise ModelError("splits a tensor into parts that are not all of it")
    ends = np.cumsum(split_sizes).tolist()
    return [_part(x, at, end - size, end) for end, size in zip(ends, split_sizes, strict=True)]


def split(values: Values, x: Tensor, split_size: int, dim: int = 0) -> list[Tensor]:
    x, at = _whole(values, x, dim)
    count = numbers(x.axes[at])
    if type(split_size) is not int or split_size < 1:
        raise ModelError(f"splits a tensor into parts of size {split_size!r:.80}")
    return [_part(x, at, begin, min(begin + split_size, count)) for begin in range(0, count, split_size)]


def chunk(values: Values, x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    x, at = _whole(values, x, dim)
    return split(values, x, -(-numbers(x.axes[at]) // chunks), at)


def unbind(values: Values, x: Tensor, dim: int = 0) -> list[Tensor]:
    x, at = _whole(values, x, dim)
    return [select(values, x, at, i) for i in range(numbers(x.axes[at]))]


def cat(values: Values, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    tensors = [_whole(values, x, dim)[0] for x in tensors]
    at = tensors[0].axis(dim)
    count = len(tensors[0].axes)
    if any(len(x.axes) != count for x in tensors):
        raise ModelError("joins tensors of different numbers of axes")
    tensors = aligned(values, tensors, (at - count,))
    datas = [x.data if all(x.constant for x in tensors) else values.referring(x) for x in tensors]
    # An axis of size 1 has no atom.
    place = tensors[0].span(at).start
    wide = [
        data if x.axes[at] else np.expand_dims(data, place) for x, data in zip(tensors, datas, strict=True)
    ]
    total = sum(numbers(x.axes[at]) for x in tensors)
    spread(np.zeros(1), (total, *(n for i, n in enumerate(wide[0].shape) if i != place)))
    axes = (*tensors[0].axes[:at], axis_of(total), *tensors[0].axes[at + 1 :])
    return tensor(np.concatenate(wide, axis=place), axes)


def stack(values: Values, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    at = dim % (len(tensors[0].axes) + 1)
    return cat(values, [unsqueeze(values, part, at) for part in tensors], at)


def _whole(values: Values, x: Tensor, dim: int) -> tuple[Tensor, int]:
    """Return a tensor whose axis `dim` holds the node's numbers only, and the axis' number."""
    at = x.axis(dim)
    if "c" in x.axes[at]:
        x = values.unrolled(x)
    if "b" in x.axes[at]:
        raise ModelError("splits or joins nodes of the batch")
    return x, at


def _part(x: Tensor, at: int, begin: int, end: int) -> Tensor:
    axis = axis_of(end - begin)
    if not x.axes[at]:
        return x
    place = x.span(at).start
    cut = x.data[(slice(None),) * place + (slice(begin, end),)]
    return tensor(cut, (*x.axes[:at], axis, *x.axes[at + 1 :]), x)
