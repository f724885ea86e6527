"""Tensors of a module during its conversion to a cell: arrays of references to numbers of values.

A module computes many nodes at once, a cell a single node. A tensor's axes therefore consist of atoms: the
batch, the children, or a number of the node's numbers. Operators that only move numbers just move references.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm.errors import ModelError

Atom = int | str  # ``"b"``: the batch; ``"c"``: the children; a number above 1: that many numbers
Axis = tuple[Atom, ...]  # atoms, outermost first; none for size 1
MOST_NUMBERS = 1 << 24  # most numbers of a tensor for one node


@dataclass(frozen=True)
class Size:
    """A number of elements: `count` times the batch to the power `batch`, children to that of `children`."""

    count: int
    batch: int = 0
    children: int = 0

    def times(self, other: Size) -> Size:
        """Return the product."""
        return Size(self.count * other.count, self.batch + other.batch, self.children + other.children)

    def by(self, other: Size) -> Size | None:
        """Return the quotient, or None if it is not a whole number."""
        if not other.count or self.count % other.count:
            return None
        quotient = Size(self.count // other.count, self.batch - other.batch, self.children - other.children)
        return None if quotient.batch < 0 or quotient.children < 0 else quotient

    def plain(self) -> int | Size:
        """Return a whole number if it depends on neither batch nor children."""
        return self if self.batch or self.children else self.count


def as_size(value: Any) -> Size:
    """Return a `Size` for a whole number or a `Size`."""
    if isinstance(value, Size):
        return value
    if type(value) is not int:
        raise ModelError(f"has {value!r:.80} for a size")
    return Size(value)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor."""

    # An axis for each atom, 1 long for the batch and the children. int64: references to numbers of values
    # (see `Values`); float32: constants.
    data: np.ndarray
    axes: tuple[Axis, ...]
    name: str = ""  # name of the weight that a constant comes from
    # Index of the input if this is the nodes' number, which only picks rows of an embedding; else -1
    number: int = -1

    @property
    def constant(self) -> bool:
        """Whether it is the same at all nodes."""
        return self.data.dtype.kind == "f"

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """Atoms of all axes, in order."""
        return tuple(atom for axis in self.axes for atom in axis)

    def axis(self, number: Any) -> int:
        """Return an axis' number from 0; negative numbers count from the end."""
        if type(number) is not int or not -len(self.axes) <= number < max(1, len(self.axes)):
            raise ModelError(f"names axis {number!r:.80} of {len(self.axes)}")
        return number % max(1, len(self.axes))

    def span(self, axis: int) -> slice:
        """Return the axes of `data` that an axis consists of."""
        begin = sum(map(len, self.axes[:axis]))
        return slice(begin, begin + len(self.axes[axis]))


def tensor(data: np.ndarray, axes: Sequence[Axis], like: Tensor | None = None) -> Tensor:
    """Return a tensor, with data reshaped to the axes."""
    data = data.reshape(sizes(axes))
    return Tensor(data, tuple(axes)) if like is None else replace(like, data=data, axes=tuple(axes))


def spread(data: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Broadcast data along axes of size 1.

    Raises `ModelError` if there are too many numbers.
    """
    if math.prod(shape) > MOST_NUMBERS:
        raise ModelError(f"gives {math.prod(shape)} numbers for a node; expected at most {MOST_NUMBERS}")
    return np.broadcast_to(data, tuple(shape))


def sizes(axes: Sequence[Axis]) -> tuple[int, ...]:
    """Return the shape of the data of a tensor with these axes."""
    return tuple(atom if isinstance(atom, int) else 1 for axis in axes for atom in axis)


def axis_of(count: int) -> Axis:
    """Return an axis of `count` numbers."""
    if count < 1:
        raise ModelError("has an axis without elements")
    return (count,) if count > 1 else ()


def numbers(axis: Axis) -> int:
    """Return the number of an axis' elements for one node and one child."""
    return math.prod(atom for atom in axis if isinstance(atom, int))


def joined(atoms: Sequence[Atom]) -> list[Atom]:
    """Return atoms with neighbouring numbers multiplied."""
    merged: list[Atom] = []
    for atom in atoms:
        if merged and isinstance(atom, int) and isinstance(merged[-1], int):
            merged[-1] *= atom
        else:
            merged.append(atom)
    return merged


def size_of(axis: Axis, places: int | None) -> Size:
    """Return an axis' size; `places`: number of children, None for any number."""
    count = numbers(axis)
    if "c" in axis and places is not None:
        return Size(count * places, axis.count("b"))
    return Size(count, axis.count("b"), axis.count("c"))


def regrouped(t: Tensor, wanted: Sequence[Size], places: int | None) -> Tensor | None:
    """Reshape a tensor to axes of other sizes; None if that splits its children.

    Raises `ModelError` if the number of elements differs, or nodes of the batch would mix.
    """
    atoms = joined(t.atoms)
    axes: list[Axis] = []
    at = 0
    for size in wanted:
        left, axis = size, []
        while left != Size(1):
            if at == len(atoms):
                raise ModelError("reshapes a tensor to more elements than it has")
            atom = atoms[at]
            whole = size_of((atom,), places)
            rest = left.by(whole)
            if rest is not None:
                axis.append(atom)
                left, at = rest, at + 1
            elif (
                isinstance(atom, int)
                and left.count > 1
                and atom % left.count == 0
                and left == Size(left.count)
            ):
                axis.append(left.count)
                atoms[at : at + 1] = [left.count, atom // left.count]
                left, at = Size(1), at + 1
            elif "c" in atoms:
                return None
            else:
                raise ModelError(
                    "reshapes a tensor across nodes of the batch, or to axes that its axes don't divide into"
                )
        axes.append(tuple(axis))
    if at != len(atoms):
        raise ModelError("reshapes a tensor to fewer elements than it has")
    return tensor(t.data, axes, t)
