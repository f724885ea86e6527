"""Distinct values of a cell in the order of computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hbtvm.errors import ModelError
from hbtvm.recursive.cell import Value
from hbtvm.recursive.validate import computed


class Values:
    """The values of a cell under construction."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._known: dict[Value, int] = {}

    def put(self, value: Value) -> int:
        """Return the number of a new or known value."""
        if value not in self._known:
            self._known[value] = len(self.values)
            self.values.append(value)
        return self._known[value]

    def apply(self, op: str, of: Sequence[int], **more: Any) -> int:
        """Add an operator of values; return its number. Raises `ModelError` if operands don't fit."""
        value = Value(op, tuple(of), **more)
        try:
            shape, per_child = computed(value, [self.values[operand] for operand in of])
        except ModelError as error:
            raise ModelError(f"{op} {error}") from None
        return self.put(replace(value, shape=shape, per_child=per_child))
