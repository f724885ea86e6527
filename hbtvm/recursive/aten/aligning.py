"""Tensors brought to the same axes, as torch broadcasts them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.tensors import Axis, Tensor, numbers, sizes, spread, tensor
from hbtvm.recursive.aten.values import Values


def aligned(values: Values, tensors: Sequence[Tensor], apart: Collection[int] = ()) -> list[Tensor]:
    """Tensors with the same axes, but for some.

    `apart`: axes, counted from the end as negative numbers, that each keeps as it has them.
    Raises `ModelError` if sizes differ, nodes of the batch would be mixed, or children of any number are told
    apart.
    """
    count = max(len(one.axes) for one in tensors)
    found = [_padded(one, count) for one in tensors]
    shared = [at for at in range(count) if at - count not in apart]
    for at in shared:
        found = _unified(values, found, at)
    axes = [next((one.axes[at] for one in found if one.axes[at]), ()) for at in range(count)]
    atoms = [atom for at in shared for atom in axes[at]]
    if atoms.count("b") > 1:
        raise ModelError("mixes nodes of the batch")
    if atoms.count("c") > 1:
        return aligned(values, [values.unrolled(one) for one in found], apart)
    return [
        _spread(one, [axes[at] if at in shared else one.axes[at] for at in range(count)]) for one in found
    ]


def _padded(t: Tensor, count: int) -> Tensor:
    return tensor(t.data, ((),) * (count - len(t.axes)) + t.axes, t)


def _unified(values: Values, tensors: list[Tensor], at: int) -> list[Tensor]:
    """Tensors of which the axes in a place are the same, or of size 1."""
    kinds = {one.axes[at] for one in tensors if one.axes[at]}
    if len(kinds) < 2:
        return tensors
    if any("c" in kind for kind in kinds):
        # What is the same for all children can stay one for all of them.
        tensors = [_collapsed(values, one, at) for one in tensors]
        if len({one.axes[at] for one in tensors if one.axes[at]}) < 2:
            return tensors
        tensors = [values.unrolled(one) if "c" in one.axes[at] else one for one in tensors]
    kinds = {one.axes[at] for one in tensors if one.axes[at]}
    if len(kinds) > 1:
        raise ModelError("combines axes of different sizes, or nodes of the batch with something else")
    return tensors


def _collapsed(values: Values, t: Tensor, at: int) -> Tensor:
    axis = t.axes[at]
    if len(axis) != 1 or axis[0] != values.places:
        return t
    place = t.span(at).start
    first = t.data.take([0], axis=place)
    if not (t.data == first).all():
        return t
    return tensor(first, (*t.axes[:at], (), *t.axes[at + 1 :]), t)


def _spread(t: Tensor, axes: Sequence[Axis]) -> Tensor:
    shape: list[int] = []
    for own, other in zip(t.axes, axes, strict=True):
        shape += sizes([own]) if own == other else (1,) * len(other)
    return tensor(spread(t.data.reshape(shape), sizes(axes)), axes, t)


def merged(t: Tensor, keep: int) -> np.ndarray:
    """Data with all but the last axes flattened into one.

    `keep`: how many of the last axes stay; each becomes one axis of its numbers.
    """
    tail = [numbers(axis) for axis in t.axes[len(t.axes) - keep :]]
    return t.data.reshape((-1, *tail))
