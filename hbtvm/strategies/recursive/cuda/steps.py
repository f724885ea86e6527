"""Statements of a level's steps on GPUs: a block of threads computes a panel of outputs for a tile of nodes.

    for part of the terms: operands of the tile's nodes go to shared memory; each thread adds to its sums
    for node of the tile: each thread computes all values of its output from its sums

Constants are packed as (terms, products, outputs), so that neighbouring threads read neighbouring numbers.
Functions of children's states alone are computed while operands go to shared memory; other values that later
steps read go to memory between steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.schedules.statements import Scratch, const, registers, sequence
from hbtvm.strategies.recursive.cuda.step import SHARED_BYTES, DeviceStep, block_barrier
from hbtvm.strategies.recursive.cuda.values import DeviceVectors
from hbtvm.strategies.recursive.nests import Nest
from hbtvm.strategies.recursive.products import Products, Tiling, serial_loop
from hbtvm.strategies.recursive.vectors import Place


class LevelStep(DeviceStep):
    """One nest of pointwise values, with or without products with constants."""

    @property
    def nest(self) -> Nest:
        """The step's only nest."""
        return self.nests[0]

    @property
    def panels(self) -> int:
        """Number of panels of outputs."""
        return -(-self.nest.width // self.blocking.threads)

    def is_before(self, which: int) -> bool:
        return which < self.which[0]

    def statements(self, level: Any, unit: Any) -> list[Any]:
        p, nodes = self.parameters, self.blocking.tile
        first, last, row = (tirx.Var(name, "int64") for name in ("first", "last", "row"))
        column = tirx.Var("column", "int64")
        panels = const(self.panels)
        statements = [
            tirx.Bind(first, p.first_row(level)),
            tirx.Bind(last, p.first_row(level + const(1))),
            tirx.Bind(row, first + tirx.truncdiv(unit, panels) * const(nodes)),
            tirx.Bind(column, tirx.truncmod(unit, panels) * const(self.blocking.threads) + self.thread),
        ]
        sums: dict[int, Scratch] = {}
        for operands, weights, products in self._groups():
            group_sums = [[registers("sums", nodes, "float32") for _ in weights] for _ in operands]
            statements += self._sums(operands, weights, group_sums, first, last, row, column)
            for i in range(len(operands)):
                sums |= dict(zip(products[i], group_sums[i], strict=True))
        return [*statements, self._values(sums, first, last, row, column)]

    def shared_numbers(self) -> int:
        most = 0
        for operands, weights, _ in self._groups():
            terms = self.facts.weights[weights[0]].shape[1]
            most = max(most, len(operands) * self.blocking.tile * self._part(len(operands), terms))
        return most

    def _groups(self) -> list[tuple[Sequence[int], Sequence[str], Sequence[Sequence[int]]]]:
        tiling = Tiling(self.blocking.tile, 1, 1, 1, "nodes", 1)
        groups = Products(self.facts, tiling, self.parameters, lambda *_: None).groups(self.nest)
        return [(group.operands, group.weights, group.products) for group in groups]

    def _part(self, operands: int, terms: int) -> int:
        """Return the terms whose operands fit shared memory together, a multiple of the unrolled terms."""
        unroll = self.blocking.unroll
        most = SHARED_BYTES // (4 * operands * self.blocking.tile)
        return max(1, min(-(-terms // unroll), most // unroll)) * unroll

    def _sums(
        self,
        operands: Sequence[int],
        weights: Sequence[str],
        sums: list[list[Scratch]],
        first: Any,
        last: Any,
        row: Any,
        column: Any,
    ) -> list[Any]:
        """Sum over all terms, for a thread's output and all nodes of the tile."""
        nodes, unroll = self.blocking.tile, self.blocking.unroll
        arrays = [self.facts.weights[name] for name in weights]
        terms = arrays[0].shape[1]
        part = self._part(len(operands), terms)
        parts = -(-terms // part)
        table = self.parameters.table(_packed(arrays, parts * part, self.panels * self.blocking.threads))
        statements: list[Any] = []
        for memory in (statement for of_operand in sums for statement in of_operand):
            statements += memory.allocation()
            statements += [memory.store(tirx.const(0.0, "float32"), r) for r in range(nodes)]
        at, k = tirx.Var("part", "int64"), tirx.Var("k", "int64")

        def term(k: Any) -> list[Any]:
            body = []
            w = [tirx.Var("w", "float32") for _ in weights]
            for q, variable in enumerate(w):
                body.append(
                    tirx.Bind(variable, tirx.BufferLoad(table, [at * const(part) + k, const(q), column]))
                )
            for i in range(len(operands)):
                for r in range(nodes):
                    x = tirx.Var("x", "float32")
                    place = (const(i * part) + k) * const(nodes) + const(r)
                    body.append(tirx.Bind(x, tirx.BufferLoad(self.shared, [place])))
                    for q, variable in enumerate(w):
                        memory = sums[i][q]
                        body.append(memory.store(memory.load(r) + x * variable, r))
            return body

        written_out = [statement for u in range(unroll) for statement in term(k * const(unroll) + const(u))]
        body = [
            *self._gathered(operands, terms, part, at, first, last, row),
            block_barrier(),
            serial_loop(k, const(part // unroll), written_out),
            block_barrier(),
        ]
        return [*statements, serial_loop(at, const(parts), body)]

    def _gathered(
        self, operands: Sequence[int], terms: int, part: int, at: Any, first: Any, last: Any, row: Any
    ) -> list[Any]:
        """Copy the operands of a part of the terms to shared memory, as (operand, term, node)."""
        nodes, threads = self.blocking.tile, self.blocking.threads
        statements = []
        for i, operand in enumerate(operands):
            n, e, k, here = (tirx.Var(name, "int64") for name in ("n", "e", "term", "here"))
            count = -(-nodes * part // threads)
            # Iterations beyond the end store the last number again.
            bounds = [
                tirx.Bind(e, tirx.min(n * const(threads) + self.thread, const(nodes * part - 1))),
                tirx.Bind(k, at * const(part) + tirx.truncmod(e, const(part))),
                tirx.Bind(here, tirx.min(row + tirx.truncdiv(e, const(part)), last - const(1))),
            ]
            place = Place(here, const(0), tirx.min(k, const(terms - 1)))
            vectors = self.vectors(place, first)
            value = vectors.of(operand)
            inside = tirx.Select(k < const(terms), value, tirx.const(0.0, "float32"))
            place_in = const(i * part * nodes) + tirx.truncmod(e, const(part)) * const(nodes)
            store = tirx.BufferStore(self.shared, inside, [place_in + tirx.truncdiv(e, const(part))])
            statements.append(serial_loop(n, const(count), [*bounds, *vectors.statements, store]))
        return statements

    def _values(self, sums: dict[int, Scratch], first: Any, last: Any, row: Any, column: Any) -> Any:
        """Compute and store all values of a thread's output, node by node."""
        nodes, nest = self.blocking.tile, self.nest
        r, here = tirx.Var("r", "int64"), tirx.Var("here", "int64")
        place = Place(here, const(0), column)

        def load(number: int, where: Place, lanes: int) -> Any:
            if where is place and number in sums:
                return sums[number].load(r)
            return self.stored(number, where, first)

        vectors = DeviceVectors(self.facts, self.parameters, place, 1, load)
        self._put(vectors, first, here, column)
        inside = tirx.all(here < last, column < const(nest.width))
        body = [tirx.Bind(here, row + r), tirx.IfThenElse(inside, sequence(vectors.statements), None)]
        return tirx.For(r, const(0), const(nodes), tirx.ForKind.UNROLLED, sequence(body))

    def _put(self, vectors: DeviceVectors, first: Any, here: Any, column: Any) -> None:
        """Compute and store all values of the nest at a place."""
        for number in self.nest.stored:
            if number not in self._inline:
                value = vectors.of(number)
                vectors.statements += self.store(number, here - first, column, value)
        for start, number in self.nest.states.items():
            value = vectors.of(number)
            vectors.statements.append(self.store_state(start, here, column, value))


def _packed(arrays: Sequence[np.ndarray], terms: int, outputs: int) -> np.ndarray:
    """Pack the constants of products by term: (terms, products, outputs), padded with zeros."""
    table = np.zeros((terms, len(arrays), outputs), np.float32)
    for q, array in enumerate(arrays):
        table[: array.shape[1], q, : len(array)] = array.T
    return table
