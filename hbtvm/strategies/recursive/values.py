"""Values of a cell in normal form, each only once, and without what is zero where there are no children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hbtvm.recursive.cell import Shape, Value
from hbtvm.recursive.reference import FUNCTIONS

THERE = "there"  # operator of normal forms only: 1 if there is a child in the place `start`, else 0; shape ()
WITHOUT_ZERO = ("sigmoid", "exp")  # functions of one number that are not 0 at 0

_NOT_ZERO = ("softmax", "total", "most")
"""Others: softmax has the sum 1, and what is over all children is that of those that are there."""


@dataclass
class Values:
    """Values in the order of computation, equal ones only once, with the constants that they read."""

    weights: dict[str, np.ndarray] = field(default_factory=dict)
    list: list[Value] = field(default_factory=list)
    _known: dict[Any, int] = field(default_factory=dict)
    _weights: dict[Any, str] = field(default_factory=dict)

    def add(self, op: str, of: Sequence[int] = (), shape: Shape = (), **more: Any) -> int:
        """The number of a value, new or known."""
        value = Value(op, tuple(of), tuple(shape), **more)
        folded = self._folded(value)
        if folded is not None:
            return folded
        if value not in self._known:
            self._known[value] = len(self.list)
            self.list.append(value)
        return self._known[value]

    def _folded(self, value: Value) -> int | None:
        """The number of a constant, if a value is a function of constants only."""
        known = [self.list[one] for one in value.of]
        if not value.shape or value.op not in FUNCTIONS or not known:
            return None
        if any(one.op not in ("weight", "constant") for one in known):
            return None
        arrays = [
            np.full(one.shape, one.constant)
            if one.op == "constant"
            else self.weights[one.name].astype(np.float64)
            for one in known
        ]
        return self.weight(np.broadcast_to(FUNCTIONS[value.op](*arrays), value.shape))

    def weight(self, array: np.ndarray) -> int:
        """The number of a constant."""
        name = self.named(array)
        return self.add("weight", shape=array.shape, name=name)

    def named(self, array: np.ndarray) -> str:
        """The name of a constant, new or known."""
        array = np.ascontiguousarray(array, np.float32)
        key = (array.shape, array.tobytes())
        if key not in self._weights:
            self._weights[key] = f"w{len(self._weights)}"
            self.weights[self._weights[key]] = array
        return self._weights[key]


class Specialised(Values):
    """Values of which those that are zero, or are added to zero, are left out."""

    def add(self, op: str, of: Sequence[int] = (), shape: Shape = (), **more: Any) -> int:
        shape = tuple(shape)
        zero = [self._is(one, 0.0) for one in of]
        if (op in ("mul", "matmul", "outer") and any(zero)) or (op == "div" and zero[0]):
            return super().add("constant", shape=shape)
        if of and all(zero):
            if op in WITHOUT_ZERO:
                return super().add("constant", shape=shape, constant=0.5 if op == "sigmoid" else 1.0)
            if op not in ("div", "softmax"):
                return super().add("constant", shape=shape)
        if op == "add" and any(zero) and self.list[of[zero[0]]].shape == shape:
            return of[1] if zero[0] else of[0]
        if op == "sub" and zero[1] and self.list[of[0]].shape == shape:
            return of[0]
        if op == "concat" and any(zero):
            of = [
                self.weight(np.zeros(self.list[one].shape, np.float32)) if none else one
                for one, none in zip(of, zero, strict=True)
            ]
        return super().add(op, of, shape, **{**more, "per_child": False})

    def _is(self, number: int, constant: float) -> bool:
        value = self.list[number]
        return value.op == "constant" and value.constant == constant


def vanishes(values: Sequence[Value], number: int, place: int | None = None) -> bool:
    """Whether a value of a child is zero where that child's states are, since it is not there.

    What is multiplied by zero is taken to be finite. Other children may be there: what depends on them, too,
    does not vanish.

    `place`: the child's; None for one of any number of children.
    """
    zero: list[bool] = []
    for value in values[: number + 1]:
        of = [zero[one] for one in value.of]
        if value.op in ("child", THERE):
            zero.append(value.start == place)
        elif value.op == "children":
            zero.append(True)
        elif value.op == "constant":
            zero.append(value.constant == 0)
        elif value.op in ("mul", "matmul", "outer"):
            zero.append(any(of))
        elif value.op == "div":
            # Divisors may be zero there, too.
            divisor = values[value.of[1]]
            zero.append(of[0] and divisor.op == "constant" and divisor.constant != 0)
        else:
            zero.append(bool(of) and value.op not in (*WITHOUT_ZERO, *_NOT_ZERO) and all(of))
    return zero[number]
