"""Values of a cell in normal form, without duplicates and, for leaves, without zeros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hbtvm.recursive.cell import Shape, Value
from hbtvm.recursive.reference import FUNCTIONS

THERE = "there"  # operator of normal forms: 1 if there is a child in the place `start`, else 0; shape ()
WITHOUT_ZERO = ("sigmoid", "exp")  # functions of one number that are not 0 at 0

_NOT_ZERO = ("softmax", "total", "most")
"""Other operators without a zero: softmax sums to 1; sums and maxima depend on the children that exist."""


@dataclass
class Values:
    """Distinct values in the order of computation, with the constants that they read."""

    weights: dict[str, np.ndarray] = field(default_factory=dict)
    list: list[Value] = field(default_factory=list)
    _known: dict[Any, int] = field(default_factory=dict)
    _weights: dict[Any, str] = field(default_factory=dict)

    def add(self, op: str, of: Sequence[int] = (), shape: Shape = (), **more: Any) -> int:
        """Return the number of a new or known value."""
        value = Value(op, tuple(of), tuple(shape), **more)
        folded = self._folded(value)
        if folded is not None:
            return folded
        if value not in self._known:
            self._known[value] = len(self.list)
            self.list.append(value)
        return self._known[value]

    def _folded(self, value: Value) -> int | None:
        """Return the number of a constant if a value is a function of constants only, else None."""
        known = [self.list[operand] for operand in value.of]
        if not value.shape or value.op not in FUNCTIONS or not known:
            return None
        if any(operand.op not in ("weight", "constant") for operand in known):
            return None
        arrays = [
            np.full(operand.shape, operand.constant)
            if operand.op == "constant"
            else self.weights[operand.name].astype(np.float64)
            for operand in known
        ]
        return self.weight(np.broadcast_to(FUNCTIONS[value.op](*arrays), value.shape))

    def weight(self, array: np.ndarray) -> int:
        """Return the number of a constant."""
        name = self.named(array)
        return self.add("weight", shape=array.shape, name=name)

    def named(self, array: np.ndarray) -> str:
        """Return the name of a new or known constant."""
        array = np.ascontiguousarray(array, np.float32)
        key = (array.shape, array.tobytes())
        if key not in self._weights:
            self._weights[key] = f"w{len(self._weights)}"
            self.weights[self._weights[key]] = array
        return self._weights[key]


class Specialised(Values):
    """Values without zeros, and without additions to zero."""

    def add(self, op: str, of: Sequence[int] = (), shape: Shape = (), **more: Any) -> int:
        shape = tuple(shape)
        zero = [self._is(operand, 0.0) for operand in of]
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
                self.weight(np.zeros(self.list[operand].shape, np.float32)) if is_zero else operand
                for operand, is_zero in zip(of, zero, strict=True)
            ]
        return super().add(op, of, shape, **{**more, "per_child": False})

    def _is(self, number: int, constant: float) -> bool:
        value = self.list[number]
        return value.op == "constant" and value.constant == constant


def vanishes(values: Sequence[Value], number: int, place: int | None = None) -> bool:
    """Return whether a value of a child is zero if that child, and thus its state, is absent.

    Factors of zero are assumed to be finite. Other children may exist: values that also depend on them do not
    vanish.

    `place`: the child's; None with any number of children.
    """
    zero: list[bool] = []
    for value in values[: number + 1]:
        of = [zero[operand] for operand in value.of]
        if value.op in ("child", THERE):
            zero.append(value.start == place)
        elif value.op == "children":
            zero.append(True)
        elif value.op == "constant":
            zero.append(value.constant == 0)
        elif value.op in ("mul", "matmul", "outer"):
            zero.append(any(of))
        elif value.op == "div":
            # The divisor may also be zero.
            divisor = values[value.of[1]]
            zero.append(of[0] and divisor.op == "constant" and divisor.constant != 0)
        else:
            zero.append(bool(of) and value.op not in (*WITHOUT_ZERO, *_NOT_ZERO) and all(of))
    return zero[number]
