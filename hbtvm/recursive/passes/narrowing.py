"""Remove unread rows of values: gates multiplied by zero, and their weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hbtvm.recursive.cell import BINARY, UNARY, Value
from hbtvm.recursive.passes.rewriting import Maker
from hbtvm.recursive.validate import needed

_POINTWISE = (*UNARY, *BINARY, "total", "most")
_NARROW = (*_POINTWISE, "weight", "embed", "matmul", "constant", "concat", "slice")
"""Operators whose rows can be computed separately."""


def narrowed(maker: Maker, outputs: Iterable[int]) -> dict[int, int]:
    """Rebuild values with only the rows (along the first axis) that outputs need.

    `maker`: holds the values, and receives the new values.
    Returns the new number of each output.
    """
    outputs = list(outputs)
    values = tuple(maker.values)
    order = needed(values, outputs)
    read = _read(values, order, outputs)
    narrow = _Narrow(values, maker, read)
    for number in order:
        narrow.make(number)
    return {number: narrow.new[number] for number in outputs}


def _read(values: Sequence[Value], order: Sequence[int], outputs: Sequence[int]) -> dict[int, np.ndarray]:
    """Return the rows of each value that are read."""
    read = {operand: np.zeros(values[operand].shape[:1] or (1,), bool) for operand in order}
    for number in outputs:
        read[number][:] = True
    for number in reversed(order):
        value, rows = values[number], read[number]
        if value.op not in _NARROW:
            rows[:] = True
        if value.op in _POINTWISE:
            for operand in value.of:
                read[operand] |= rows if values[operand].shape else True
        elif value.op == "slice":
            read[value.of[0]][value.start : value.stop] |= rows
        elif value.op == "concat":
            at = 0
            for operand in value.of:
                size = values[operand].shape[0]
                read[operand] |= rows[at : at + size]
                at += size
        elif value.op == "matmul":
            read[value.of[0]] |= rows
            read[value.of[1]][:] = True
        else:
            for operand in value.of:
                read[operand][:] = True
    return read


class _Narrow:
    def __init__(self, values: Sequence[Value], maker: Maker, read: dict[int, np.ndarray]) -> None:
        self._values, self._maker, self._read = values, maker, read
        self.new: dict[int, int] = {}

    def make(self, number: int) -> None:
        value, rows, maker = self._values[number], self._read[number], self._maker
        if not rows.any():
            return
        shape = (int(rows.sum()), *value.shape[1:]) if value.shape else ()
        if value.op == "slice":
            whole = np.zeros(len(self._read[value.of[0]]), bool)
            whole[value.start : value.stop] = rows
            self.new[number] = self._rows(value.of[0], whole)
            return
        if value.op == "concat":
            parts, at = [], 0
            for operand in value.of:
                size = self._values[operand].shape[0]
                if rows[at : at + size].any():
                    parts.append(self._rows(operand, rows[at : at + size]))
                at += size
            self.new[number] = parts[0] if len(parts) == 1 else maker.apply("concat", parts)
            return
        if value.op in ("weight", "embed") and not rows.all():
            array = maker.weights[value.name]
            array = array[rows] if value.op == "weight" else array[:, rows]
            value = replace(value, name=maker.named(value.name, array))
        if value.op in _POINTWISE:
            of = [
                self._rows(operand, rows) if self._values[operand].shape else self.new[operand]
                for operand in value.of
            ]
        elif value.op == "matmul":
            of = [self._rows(value.of[0], rows), self.new[value.of[1]]]
        else:
            of = [self.new[operand] for operand in value.of]
        self.new[number] = maker.put(replace(value, of=tuple(of), shape=shape))

    def _rows(self, number: int, rows: np.ndarray) -> int:
        """Return some rows of a rebuilt value, which may have further rows."""
        new = self.new[number]
        used = rows[self._read[number]]
        if used.all():
            return new
        edges = np.flatnonzero(np.diff(used, prepend=False, append=False)).tolist()
        parts = [
            self._maker.apply("slice", (new,), start=start, stop=stop)
            for start, stop in zip(edges[::2], edges[1::2], strict=True)
        ]
        return parts[0] if len(parts) == 1 else self._maker.apply("concat", parts)
