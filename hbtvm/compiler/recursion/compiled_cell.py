"""`CompiledCell`: a cell that is compiled once, and whose tables are refilled for new weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.compiler.building.cpu import executor
from hbtvm.compiler.recursion.build import entry_of, kernels_of
from hbtvm.recursive.builder import CellFunction
from hbtvm.recursive.cell import Readout, Shape
from hbtvm.runtime.native.library import load_functions, load_library
from hbtvm.runtime.recursive.description import names_of
from hbtvm.runtime.recursive.host import RecursiveHost
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.levels import Levels, classes_of

_MOST = 1 << 24  # exclusive limit of weights, which float32 has to count exactly


class CompiledCell:
    """A recursive cell for any weights of some shapes, on one thread.

    Raises `BuildError` if there is no C compiler, or it failed; `UnsupportedModel` if a value of the cell has
    no kernel; `ValueError` if kernels take other constants than the weights' own numbers, or there are too
    many of them.

    `cell`: the cell.
    `shapes`: its weights' shapes, by name.
    `readout`: the readout of states.
    `rows`, `nodes`, `levels`: a typical call's structures, and nodes and levels of each.
    `target`: this machine.
    """

    def __init__(
        self,
        cell: CellFunction,
        shapes: Mapping[str, Shape],
        readout: Readout,
        *,
        rows: int,
        nodes: int,
        levels: int,
        target: Target,
    ) -> None:
        self._shapes = dict(shapes)
        count = sum(map(math.prod, self._shapes.values()))
        if count >= _MOST:
            raise ValueError(f"the cell has {count:,} weights; expected fewer than {_MOST:,}")
        numbered = self._numbered()
        bound = cell.bind(numbered)
        classes, strategy = classes_of(bound), Levels()
        workload = strategy.workload(classes, rows, nodes, levels, 1)
        config = _of_weights(strategy.default(workload, target))
        kernels = kernels_of(classes, workload, config, target)
        # Also numbered from the end: numbers computed from weights, rather than copied, then give different
        # indices.
        behind = {name: np.float32(count + 1) - array for name, array in numbered.items()}
        tables = strategy.kernels(classes_of(cell.bind(behind)), config, target).tables
        self._places = [_places(*both, count) for both in zip(kernels.tables, tables, strict=True)]
        self._entry = entry_of(bound, classes, readout, (kernels,))
        names = names_of(kernels)
        self._functions = [dict(zip(names, load_functions(kernels.library, names), strict=True))]
        self._library = load_library(executor(target))

    def host(self, weights: Mapping[str, Any]) -> RecursiveHost:
        """Return the cell with some weights.

        Raises `ValueError` if a weight is missing, or has another shape.
        """
        flat = [np.zeros(1, np.float32)]
        for name, shape in self._shapes.items():
            array = np.asarray(weights.get(name), np.float32)
            if array.shape != shape:
                raise ValueError(f"weight {name!r} has the shape {array.shape}; expected {shape}")
            flat.append(array.ravel())
        numbers = np.concatenate(flat)
        kernels = replace(self._entry.kernels[0], tables=tuple(numbers[places] for places in self._places))
        host = RecursiveHost(self._library, replace(self._entry, kernels=(kernels,)), 1, self._functions)
        host.check()
        return host

    def _numbered(self) -> dict[str, np.ndarray]:
        """Return weights whose numbers are their indices among all weights, from 1 on."""
        numbers, at = {}, 1
        for name, shape in self._shapes.items():
            size = math.prod(shape)
            numbers[name] = np.arange(at, at + size, dtype=np.float32).reshape(shape)
            at += size
        return numbers


def _of_weights(config: Config) -> Config:
    """Return a configuration whose tables hold weights only, without precomputed numbers.

    Calls are large, so that the rest of a level needs no separate kernels.
    """
    more = {"first": 0} if "first" in config else {}
    return {**config, "leaf": "compute", "tail": 0, **more}


def _places(table: np.ndarray, behind: np.ndarray, count: int) -> np.ndarray:
    """Return the weight's index of each number of a table; 0 for the number 0.

    Raises `ValueError` if a number is not a weight.

    `table`, `behind`: tables of weights numbered from 1 to `count`, and from `count` to 1.
    """
    places = table.astype(np.int64)
    expected = np.where(places > 0, count + 1 - places, 0)
    if table.dtype != np.float32 or not (np.array_equal(places, table) and np.array_equal(expected, behind)):
        raise ValueError("kernels have a table of what is computed from weights; expected their own numbers")
    return places
