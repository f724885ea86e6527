"""Products of constants and vectors: sums over all terms, for a panel of outputs and the nodes of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tvm import tirx

from hbtvm.schedules.statements import Scratch, broadcast, every, scratch, sequence, span
from hbtvm.strategies.recursive.nests import Nest, padded
from hbtvm.strategies.recursive.parameters import Parameters
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.vectors import Place

Order = Literal["nodes", "panels"]


@dataclass(frozen=True)
class Tiling:
    """How steps go about their work."""

    tile: int  # nodes of a tile, R
    # `vectors`, `lanes`: vectors of a panel, at most, and numbers of a vector
    vectors: int
    lanes: int
    unroll: int  # terms of a sum that are written out, at most
    order: Order  # see the module
    registers: int  # most vectors of sums at a time
    fused: bool = True  # whether the values of a nest are computed together; else each is a step of its own


@dataclass(frozen=True)
class _Group:
    """Products of the same constants with several operands: operands, and for each the products."""

    operands: tuple[int, ...]
    weights: tuple[str, ...]
    products: tuple[tuple[int, ...], ...]


class Products:
    """Makes the statements of a nest's products.

    `facts`, `tiling`, `parameters`: the cell, how steps go about their work, and what the function takes.
    `stored`: gives numbers of an operand, by its value's number, the place and how many.
    """

    def __init__(
        self,
        facts: Facts,
        tiling: Tiling,
        parameters: Parameters,
        stored: Callable[[int, Place, int], Any],
    ) -> None:
        self._facts, self._tiling, self._parameters, self._stored = facts, tiling, parameters, stored

    def groups(self, nest: Nest) -> list[_Group]:
        values = self._facts.values
        by_operand: dict[int, list[int]] = {}
        for number in nest.products:
            by_operand.setdefault(values[number].of[1], []).append(number)
        by_weights: dict[tuple[str, ...], list[int]] = {}
        for operand, products in by_operand.items():
            products.sort(key=lambda number: values[values[number].of[0]].name)
            names = tuple(values[values[number].of[0]].name for number in products)
            by_weights.setdefault(names, []).append(operand)
        return [
            _Group(tuple(operands), names, tuple(tuple(by_operand[one]) for one in operands))
            for names, operands in by_weights.items()
        ]

    def sums_of(
        self,
        group: _Group,
        tile: Any,
        panel: Any,
        vectors: int,
        sums: Scratch,
        numbers: dict[int, int],
    ) -> list[Any]:
        """Sums over all terms, for as many nodes at a time as registers hold."""
        tiling = self._tiling
        arrays = [self._facts.weights[name] for name in group.weights]
        table = self._parameters.table(_packed(arrays, vectors * tiling.lanes))
        terms = arrays[0].shape[1]
        rows = [(i, node) for i in range(len(group.operands)) for node in range(tiling.tile)]
        most = max(1, tiling.registers // (len(arrays) * vectors))
        pieces = -(-len(rows) // most)
        size = -(-len(rows) // pieces)
        made = []
        for at in range(0, len(rows), size):
            own = rows[at : at + size]
            made += self._sums(group, own, tile, panel, vectors, table, terms, sums, numbers)
        return made

    def _sums(
        self,
        group: _Group,
        rows: Sequence[tuple[int, int]],
        tile: Any,
        panel: Any,
        vectors: int,
        table: Any,
        terms: int,
        sums: Scratch,
        numbers: dict[int, int],
    ) -> list[Any]:
        lanes, weights = self._tiling.lanes, len(group.weights)
        own = {
            (row, q, n): scratch("sum", lanes, "float32")
            for row in range(len(rows))
            for q in range(weights)
            for n in range(vectors)
        }
        zero = every(0.0, "float32", lanes)
        begin = [one for memory in own.values() for one in (*memory.made(), memory.store(zero, 0, lanes))]
        unroll = max(n for n in range(1, self._tiling.unroll + 1) if terms % n == 0)

        def term(k: Any) -> list[Any]:
            made, loaded = [], {}
            for q in range(weights):
                for n in range(vectors):
                    variable = tirx.Var("w", f"float32x{lanes}")
                    index = [panel, k, tirx.const(q, "int64"), span(tirx.const(n * lanes, "int64"), lanes)]
                    made.append(tirx.Bind(variable, tirx.BufferLoad(table, index)))
                    loaded[q, n] = variable
            for i, (operand, node) in enumerate(rows):
                place = Place(tile, tirx.const(node, "int64"), k)
                x = tirx.Var("x", f"float32x{lanes}")
                number = self._stored(group.operands[operand], place, 1)
                made.append(tirx.Bind(x, broadcast(number, lanes)))
                for q in range(weights):
                    for n in range(vectors):
                        memory = own[i, q, n]
                        value = memory.load(0, lanes) + x * loaded[q, n]
                        made.append(memory.store(value, 0, lanes))
            return made

        k = tirx.Var("k", "int64")
        body = [one for u in range(unroll) for one in term(k * unroll + u)]
        loop = serial_loop(k, tirx.const(terms // unroll, "int64"), body)
        end = []
        for i, (operand, node) in enumerate(rows):
            for q in range(weights):
                number = numbers[group.products[operand][q]]
                for n in range(vectors):
                    at = ((number * self._tiling.tile + node) * vectors + n) * lanes
                    end.append(sums.store(own[i, q, n].load(0, lanes), at, lanes))
        return [*begin, loop, *end]


def _packed(arrays: Sequence[np.ndarray], panel: int) -> np.ndarray:
    """Constants of products side by side: (panels, terms, products, numbers of a panel)."""
    height = padded(len(arrays[0]))
    panels = height // panel
    made = np.zeros((panels, arrays[0].shape[1], len(arrays), panel), np.float32)
    for q, array in enumerate(arrays):
        tall = np.zeros((height, array.shape[1]), np.float32)
        tall[: len(array)] = array
        made[:, :, q] = tall.reshape(panels, panel, -1).transpose(0, 2, 1)
    return made


def serial_loop(variable: Any, extent: Any, body: Sequence[Any]) -> Any:
    """A loop from 0 on."""
    return tirx.For(variable, tirx.const(0, "int64"), extent, tirx.ForKind.SERIAL, sequence(list(body)))
