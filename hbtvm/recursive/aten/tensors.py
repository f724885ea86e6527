"""Tensors of a module while it becomes a cell: which numbers of which values stand where.

A module computes many nodes at once, a cell one. A tensor's axes are therefore made of atoms: the batch, the
children, or so many numbers of the node itself. Operators that only move numbers then only move references.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm.errors import ModelError

Atom = int | str  # ``"b"``: the batch; ``"c"``: the children; a number greater than 1: so many numbers
Axis = tuple[Atom, ...]  # atoms, the first one outside; without any, of size 1
MOST_NUMBERS = 1 << 24  # most numbers that a tensor may grow to, for one node


@dataclass(frozen=True)
class Size:
    """A number of elements: `count` times the batch to the power `batch`, children to that of `children`."""

    count: int
    batch: int = 0
    children: int = 0

    def times(self, other: Size) -> Size:
        """The product."""
        return Size(self.count * other.count, self.batch + other.batch, self.children + other.children)

    def by(self, other: Size) -> Size | None:
        """The quotient; None if it is no whole number."""
        if not other.count or self.count % other.count:
            return None
        found = Size(self.count // other.count, self.batch - other.batch, self.children - other.children)
        return None if found.batch < 0 or found.children < 0 else found

    def plain(self) -> int | Size:
        """As a whole number, if it is one."""
        return self if self.batch or self.children else self.count


def as_size(value: Any) -> Size:
    """A `Size` of a whole number or of one."""
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
    axes: tuple[Axis, ...]  # what the tensor's axes are made of
    name: str = ""  # of the weight that a constant comes from
    # Of the input, if this is the nodes' number, which only picks rows of an embedding; else -1
    number: int = -1

    @property
    def constant(self) -> bool:
        """Whether it is the same at all nodes."""
        return self.data.dtype.kind == "f"

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """Of all axes, in order."""
        return tuple(atom for axis in self.axes for atom in axis)

    def axis(self, number: Any) -> int:
        """An axis' number from 0, of one that may count from the end."""
        if type(number) is not int or not -len(self.axes) <= number < max(1, len(self.axes)):
            raise ModelError(f"names axis {number!r:.80} of {len(self.axes)}")
        return number % max(1, len(self.axes))

    def span(self, axis: int) -> slice:
        """Which axes of `data` an axis is."""
        begin = sum(map(len, self.axes[:axis]))
        return slice(begin, begin + len(self.axes[axis]))


def tensor(data: np.ndarray, axes: Sequence[Axis], like: Tensor | None = None) -> Tensor:
    """A tensor, whose data takes the form that the axes demand."""
    data = data.reshape(sizes(axes))
    return Tensor(data, tuple(axes)) if like is None else replace(like, data=data, axes=tuple(axes))


def spread(data: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Data repeated along axes of size 1.

    Raises `ModelError` if there are too many numbers.
    """
    if math.prod(shape) > MOST_NUMBERS:
        raise ModelError(f"gives {math.prod(shape)} numbers for a node; expected at most {MOST_NUMBERS}")
    return np.broadcast_to(data, tuple(shape))


def sizes(axes: Sequence[Axis]) -> tuple[int, ...]:
    """The shape of the data of a tensor of such axes."""
    return tuple(atom if isinstance(atom, int) else 1 for axis in axes for atom in axis)


def axis_of(count: int) -> Axis:
    """An axis of so many numbers."""
    if count < 1:
        raise ModelError("has an axis without elements")
    return (count,) if count > 1 else ()


def numbers(axis: Axis) -> int:
    """How many elements an axis has for one node and one child."""
    return math.prod(atom for atom in axis if isinstance(atom, int))


def joined(atoms: Sequence[Atom]) -> list[Atom]:
    """Atoms with neighbouring numbers multiplied."""
    found: list[Atom] = []
    for atom in atoms:
        if found and isinstance(atom, int) and isinstance(found[-1], int):
            found[-1] *= atom
        else:
            found.append(atom)
    return found


def size_of(axis: Axis, places: int | None) -> Size:
    """An axis' size.

    `places`: how many children there are; None for any number.
    """
    count = numbers(axis)
    if "c" in axis and places is not None:
        return Size(count * places, axis.count("b"))
    return Size(count, axis.count("b"), axis.count("c"))


def regrouped(t: Tensor, wanted: Sequence[Size], places: int | None) -> Tensor | None:
    """A tensor's numbers in the same order in axes of other sizes; None if that parts its children.

    Raises `ModelError` if there are not so many numbers, or nodes of the batch would be mixed.
    """
    atoms = joined(t.atoms)
    axes: list[Axis] = []
    at = 0
    for size in wanted:
        left, axis = size, []
        while left != Size(1):
            if at == len(atoms):
                raise ModelError("gives a tensor a form that it has too few numbers for")
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
                raise ModelError("gives a tensor a form that mixes nodes of the batch, or can't be taken")
        axes.append(tuple(axis))
    if at != len(atoms):
        raise ModelError("gives a tensor a form that it has too many numbers for")
    return tensor(t.data, axes, t)
