"""Shared parts of rewrites of cells: rebuilding values without duplicates, and removing dead values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hbtvm.recursive.cell import Cell, Shape, Value
from hbtvm.recursive.validate import needed
from hbtvm.recursive.values import Values


class Maker(Values):
    """Rebuilt values, and the weights that they read."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self.weights = dict(weights)

    def constant(self, number: float, shape: Shape) -> int:
        """Add a constant value; return its number."""
        return self.put(Value("constant", (), shape, constant=float(number)))

    def weight(self, name: str, array: np.ndarray) -> int:
        """Add a weight; return its value's number. `name` is the prefix of its name."""
        return self.put(Value("weight", (), array.shape, name=self.named(name, array)))

    def named(self, name: str, array: np.ndarray) -> str:
        """Add a weight as float32; return its name: `name`, with a suffix if another weight has that name."""
        array = np.ascontiguousarray(array, np.float32)
        free, count = name, 1
        while free in self.weights:
            known = self.weights[free]
            if known.shape == array.shape and known.tobytes() == array.tobytes():
                return free
            free, count = f"{name}.{count}", count + 1
        self.weights[free] = array
        return free


def without_dead(cell: Cell) -> Cell:
    """Remove values that no state needs, and weights that no value reads; merge equal values."""
    outputs = [*cell.inner.values(), *(cell.leaf or {}).values()]
    maker = Maker({})
    new: dict[int, int] = {}
    for number in needed(cell.values, outputs):
        value = cell.values[number]
        new[number] = maker.put(replace(value, of=tuple(new[operand] for operand in value.of)))
    used = {value.name for value in maker.values if value.op in ("weight", "embed")}
    return replace(
        cell,
        values=tuple(maker.values),
        weights={name: array for name, array in cell.weights.items() if name in used},
        inner={name: new[number] for name, number in cell.inner.items()},
        leaf=None if cell.leaf is None else {name: new[number] for name, number in cell.leaf.items()},
    )
