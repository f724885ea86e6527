"""Products of constants and vectors: sums over all terms, for a panel of outputs and the nodes of a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tvm import tirx

from hbtvm.schedules.statements import Scratch, broadcast, const, scratch, sequence, span, splat
from hbtvm.strategies.recursive.nests import Nest, padded
from hbtvm.strategies.recursive.parameters import Parameters
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.vectors import Place

Order = Literal["nodes", "panels"]


@dataclass(frozen=True)
class Tiling:
    """Tiling of a step's loops."""

    tile: int  # nodes of a tile, R
    # `vectors`, `lanes`: most vectors of a panel, and numbers of a vector
    vectors: int
    lanes: int
    unroll: int  # most unrolled terms of a sum
    order: Order  # see `hbtvm.strategies.recursive.steps`
    registers: int  # most vectors of sums at a time
    fused: bool = True  # whether a step computes all values of a nest, else a step for each


@dataclass(frozen=True)
class _Group:
    """Products of the same constants with several operands, and each operand's products."""

    operands: tuple[int, ...]
    weights: tuple[str, ...]
    products: tuple[tuple[int, ...], ...]


class Products:
    """Makes the statements of a nest's products.

    `facts`, `tiling`, `parameters`: the cell, the step's tiling, and the function's parameters.
    `stored`: loads an operand's numbers, by its value's number, the place and the number of lanes.
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
            _Group(tuple(operands), names, tuple(tuple(by_operand[operand]) for operand in operands))
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
        """Sum over all terms, for as many nodes at a time as registers hold."""
        tiling = self._tiling
        arrays = [self._facts.weights[name] for name in group.weights]
        table = self._parameters.table(_packed(arrays, vectors * tiling.lanes))
        terms = arrays[0].shape[1]
        rows = [(i, node) for i in range(len(group.operands)) for node in range(tiling.tile)]
        most = max(1, tiling.registers // (len(arrays) * vectors))
        pieces = -(-len(rows) // most)
        size = -(-len(rows) // pieces)
        statements = []
        for at in range(0, len(rows), size):
            piece = rows[at : at + size]
            statements += self._sums(group, piece, tile, panel, vectors, table, terms, sums, numbers)
        return statements

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
        sums_of = {
            (row, q, n): scratch("sum", lanes, "float32")
            for row in range(len(rows))
            for q in range(weights)
            for n in range(vectors)
        }
        zero = splat(0.0, "float32", lanes)
        begin = [
            statement
            for memory in sums_of.values()
            for statement in (*memory.allocation(), memory.store(zero, 0, lanes))
        ]
        unroll = max(n for n in range(1, self._tiling.unroll + 1) if terms % n == 0)

        def term(k: Any) -> list[Any]:
            statements, loaded = [], {}
            for q in range(weights):
                for n in range(vectors):
                    variable = tirx.Var("w", f"float32x{lanes}")
                    index = [panel, k, tirx.const(q, "int64"), span(tirx.const(n * lanes, "int64"), lanes)]
                    statements.append(tirx.Bind(variable, tirx.BufferLoad(table, index)))
                    loaded[q, n] = variable
            for i, (operand, node) in enumerate(rows):
                place = Place(tile, tirx.const(node, "int64"), k)
                x = tirx.Var("x", f"float32x{lanes}")
                number = self._stored(group.operands[operand], place, 1)
                statements.append(tirx.Bind(x, broadcast(number, lanes)))
                for q in range(weights):
                    for n in range(vectors):
                        memory = sums_of[i, q, n]
                        value = memory.load(0, lanes) + x * loaded[q, n]
                        statements.append(memory.store(value, 0, lanes))
            return statements

        k = tirx.Var("k", "int64")
        body = [statement for u in range(unroll) for statement in term(k * unroll + u)]
        loop = serial_loop(k, tirx.const(terms // unroll, "int64"), body)
        end = []
        for i, (operand, node) in enumerate(rows):
            for q in range(weights):
                number = numbers[group.products[operand][q]]
                for n in range(vectors):
                    at = ((number * self._tiling.tile + node) * vectors + n) * lanes
                    end.append(sums.store(sums_of[i, q, n].load(0, lanes), at, lanes))
        return [*begin, loop, *end]


def _packed(arrays: Sequence[np.ndarray], panel: int) -> np.ndarray:
    """Pack the constants of products: (panels, terms, products, numbers of a panel)."""
    height = padded(len(arrays[0]))
    panels = height // panel
    table = np.zeros((panels, arrays[0].shape[1], len(arrays), panel), np.float32)
    for q, array in enumerate(arrays):
        tall = np.zeros((height, array.shape[1]), np.float32)
        tall[: len(array)] = array
        table[:, :, q] = tall.reshape(panels, panel, -1).transpose(0, 2, 1)
    return table


def serial_loop(variable: Any, extent: Any, body: Sequence[Any]) -> Any:
    """Return a loop from 0."""
    return tirx.For(variable, const(0), extent, tirx.ForKind.SERIAL, sequence(list(body)))
