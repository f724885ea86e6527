"""Tensors brought to the same axes, as torch broadcasts them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.tensors import Axis, Tensor, numbers, sizes, spread, tensor
from hbtvm.recursive.aten.values import Values


def aligned(values: Values, tensors: Sequence[Tensor], apart: Collection[int] = ()) -> list[Tensor]:
    """Return tensors with the same axes, except for some.

    `apart`: axes that each tensor keeps, as negative numbers from the end.
    Raises `ModelError` if sizes differ, nodes of the batch would mix, or children are distinguished although
    their number is open.
    """
    count = max(len(x.axes) for x in tensors)
    padded = [_padded(x, count) for x in tensors]
    shared = [at for at in range(count) if at - count not in apart]
    for at in shared:
        padded = _unified(values, padded, at)
    axes = [next((x.axes[at] for x in padded if x.axes[at]), ()) for at in range(count)]
    atoms = [atom for at in shared for atom in axes[at]]
    if atoms.count("b") > 1:
        raise ModelError("mixes nodes of the batch")
    if atoms.count("c") > 1:
        return aligned(values, [values.unrolled(x) for x in padded], apart)
    return [_spread(x, [axes[at] if at in shared else x.axes[at] for at in range(count)]) for x in padded]


def _padded(t: Tensor, count: int) -> Tensor:
    return tensor(t.data, ((),) * (count - len(t.axes)) + t.axes, t)


def _unified(values: Values, tensors: list[Tensor], at: int) -> list[Tensor]:
    """Return tensors whose axes in a place are equal or of size 1."""
    kinds = {x.axes[at] for x in tensors if x.axes[at]}
    if len(kinds) < 2:
        return tensors
    if any("c" in kind for kind in kinds):
        # Equal numbers for all children collapse to one.
        tensors = [_collapsed(values, x, at) for x in tensors]
        if len({x.axes[at] for x in tensors if x.axes[at]}) < 2:
            return tensors
        tensors = [values.unrolled(x) if "c" in x.axes[at] else x for x in tensors]
    kinds = {x.axes[at] for x in tensors if x.axes[at]}
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
    for axis, other in zip(t.axes, axes, strict=True):
        shape += sizes([axis]) if axis == other else (1,) * len(other)
    return tensor(spread(t.data.reshape(shape), sizes(axes)), axes, t)


def merged(t: Tensor, keep: int) -> np.ndarray:
    """Return data with all but the last `keep` axes flattened into one."""
    tail = [numbers(axis) for axis in t.axes[len(t.axes) - keep :]]
    return t.data.reshape((-1, *tail))
