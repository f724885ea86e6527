"""Products whose constants stay in shared memory while a kernel processes all levels.

This is Cortex's model persistence (MLSys'21, section 5): each block owns a few outputs of each nest, loads
the constants of their products before the first level, and computes these outputs for its team's tiles of
nodes. Blocks `panels` apart own the same outputs for other tiles.

Few outputs occupy few threads, so threads also share the terms of a sum::

    for part of the terms: operands of the tile's nodes go to shared memory; each thread adds every n-th term
    sums of all threads go to shared memory; for node and output: the thread adds them up, and computes values
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.errors import UnsupportedModel
from hbtvm.schedules.statements import Scratch, const, registers, sequence
from hbtvm.strategies.recursive.cuda.parameters import DeviceParameters
from hbtvm.strategies.recursive.cuda.step import SHARED_BYTES, block_barrier
from hbtvm.strategies.recursive.cuda.steps import LevelStep
from hbtvm.strategies.recursive.cuda.values import DeviceVectors
from hbtvm.strategies.recursive.products import serial_loop
from hbtvm.strategies.recursive.vectors import Place


@dataclass
class Kept:
    """Constants in shared memory, followed by sums."""

    # By number among all constants: the start of a block's part, and the array, (panels, numbers)
    tables: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)
    # `count`, `sums`: numbers of constants, and of sums
    count: int = 0
    sums: int = 0
    buffer: Any = None

    @classmethod
    def of(cls, steps: Sequence[KeptStep], parameters: DeviceParameters, most: int) -> Kept:
        """Return the memory of steps; raises `UnsupportedModel` if it exceeds `most` bytes."""
        kept = cls()
        for step in steps:
            kept.sums = max(kept.sums, step.sum_numbers())
            for array in step.packed():
                number = parameters.tables.number(array)
                if number not in kept.tables:
                    kept.tables[number] = kept.count, array
                    kept.count += array.shape[1]
        if kept.bytes > most:
            raise UnsupportedModel(
                f"constants of a block's outputs take {kept.bytes:,} bytes, and its shared memory has room "
                f"for {most:,}; give blocks fewer outputs, or leave constants in global memory"
            )
        kept.buffer = tirx.decl_buffer((kept.count + kept.sums,), "float32", "kept", scope="shared.dyn")
        return kept

    @property
    def bytes(self) -> int:
        """Size of constants and sums."""
        return 4 * (self.count + self.sums)

    def loaded(self, parameters: DeviceParameters, block: Any, thread: Any, threads: int) -> list[Any]:
        """Return statements that load a block's constants."""
        statements: list[Any] = []
        for start, array in self.tables.values():
            panels, count = array.shape
            n, e = tirx.Var("n", "int64"), tirx.Var("e", "int64")
            value = tirx.BufferLoad(parameters.table(array), [tirx.truncmod(block, const(panels)), e])
            body = [
                tirx.Bind(e, n * const(threads) + thread),
                tirx.IfThenElse(
                    e < const(count), tirx.BufferStore(self.buffer, value, [e + const(start)]), None
                ),
            ]
            statements.append(serial_loop(n, const(-(-count // threads)), body))
        return [*statements, block_barrier()]


class KeptStep(LevelStep):
    """One nest with products, whose constants stay in shared memory."""

    kept: Kept  # the constants of all steps

    @property
    def panels(self) -> int:
        """Number of panels of outputs; each block owns one."""
        return -(-self.nest.width // self.blocking.columns)

    @property
    def _shares(self) -> int:
        """Threads that share the terms of a sum."""
        return self.blocking.threads // self.blocking.columns

    def work(self, level: Any, block: Any, blocks: Any) -> tuple[Any, Callable[[Any], Any]]:
        """See `DeviceStep`; there are at least as many blocks as panels."""
        panels = const(self.panels)
        teams, team = tirx.truncdiv(blocks, panels), tirx.truncdiv(block, panels)
        tiles = tirx.truncdiv(self.units(level), panels)
        count = tirx.truncdiv(tiles + teams - const(1) - team, teams)
        tiles_of_team = tirx.Select(team < teams, count, const(0))
        return tiles_of_team, lambda n: (n * teams + team) * panels + tirx.truncmod(block, panels)

    def packed(self) -> list[np.ndarray]:
        """Pack each group's constants by panel: (panels, products of an operand, terms, columns)."""
        panels = []
        for operands, weights, _ in self._groups():
            arrays = [self.facts.weights[name] for name in weights]
            terms = self._all_terms(len(operands), arrays[0].shape[1])
            table = np.zeros((self.panels, len(arrays), terms, self.blocking.columns), np.float32)
            for q, array in enumerate(arrays):
                tall = np.zeros((self.panels * self.blocking.columns, array.shape[1]), np.float32)
                tall[: len(array)] = array
                parts = tall.reshape(self.panels, self.blocking.columns, -1).transpose(0, 2, 1)
                table[:, q, : array.shape[1]] = parts
            panels.append(table.reshape(self.panels, -1))
        return panels

    def sum_numbers(self) -> int:
        """Return the number of a tile's sums over all threads."""
        sums = sum(len(operands) * len(weights) for operands, weights, _ in self._groups())
        return sums * self.blocking.tile * self.blocking.threads

    def statements(self, level: Any, unit: Any) -> list[Any]:
        p, blocking, panels = self.parameters, self.blocking, const(self.panels)
        first, last, row = (tirx.Var(name, "int64") for name in ("first", "last", "row"))
        output, share, column = (tirx.Var(name, "int64") for name in ("output", "share", "column"))
        columns = const(blocking.columns)
        statements = [
            tirx.Bind(first, p.first_row(level)),
            tirx.Bind(last, p.first_row(level + const(1))),
            tirx.Bind(row, first + tirx.truncdiv(unit, panels) * const(blocking.tile)),
            tirx.Bind(output, tirx.truncmod(self.thread, columns)),
            tirx.Bind(share, tirx.truncdiv(self.thread, columns)),
            tirx.Bind(column, tirx.truncmod(unit, panels) * columns + output),
        ]
        places: dict[int, int] = {}
        stores: list[Any] = []
        for (operands, weights, products), array in zip(self._groups(), self.packed(), strict=True):
            sums = [[registers("sums", blocking.tile, "float32") for _ in weights] for _ in operands]
            start, _ = self.kept.tables[p.tables.number(array)]
            statements += self._partial(operands, weights, sums, start, (first, last, row), output, share)
            for of_operand, numbers in zip(sums, products, strict=True):
                for memory, number in zip(of_operand, numbers, strict=True):
                    places[number] = len(places)
                    for r in range(blocking.tile):
                        to = self._sum_place(places[number], const(r), share, output)
                        stores.append(tirx.BufferStore(self.kept.buffer, memory.load(r), [to]))
        return [
            *statements,
            *stores,
            block_barrier(),
            self._results(places, first, last, row, column, output, share),
        ]

    def _part(self, operands: int, terms: int) -> int:
        """As in `LevelStep`, but a multiple of the terms that all threads add at once."""
        step = self.blocking.unroll * self._shares
        most = SHARED_BYTES // (4 * operands * self.blocking.tile)
        return max(1, min(-(-terms // step), most // step)) * step

    def _all_terms(self, operands: int, terms: int) -> int:
        part = self._part(operands, terms)
        return -(-terms // part) * part

    def _sum_place(self, which: int, r: Any, share: Any, output: Any) -> Any:
        node = const(which * self.blocking.tile) + r
        return (
            const(self.kept.count)
            + (node * const(self._shares) + share) * const(self.blocking.columns)
            + output
        )

    def _partial(
        self,
        operands: Sequence[int],
        weights: Sequence[str],
        sums: list[list[Scratch]],
        start: int,
        rows: tuple[Any, Any, Any],
        output: Any,
        share: Any,
    ) -> list[Any]:
        """Sum over a thread's terms, for its output and all nodes of the tile."""
        nodes, unroll = self.blocking.tile, self.blocking.unroll
        terms = self.facts.weights[weights[0]].shape[1]
        part, all_terms = self._part(len(operands), terms), self._all_terms(len(operands), terms)
        statements: list[Any] = []
        for memory in itertools.chain.from_iterable(sums):
            statements += memory.allocation()
            statements += [memory.store(tirx.const(0.0, "float32"), r) for r in range(nodes)]
        at, n = tirx.Var("part", "int64"), tirx.Var("n", "int64")

        def term(k: Any) -> list[Any]:
            body = []
            weight_vars = [tirx.Var("w", "float32") for _ in weights]
            for q, variable in enumerate(weight_vars):
                place = const(q * all_terms) + at * const(part) + k
                place = const(start) + place * const(self.blocking.columns) + output
                body.append(tirx.Bind(variable, tirx.BufferLoad(self.kept.buffer, [place])))
            for i in range(len(operands)):
                for r in range(nodes):
                    x = tirx.Var("x", "float32")
                    place = (const(i * part) + k) * const(nodes) + const(r)
                    body.append(tirx.Bind(x, tirx.BufferLoad(self.shared, [place])))
                    for q, variable in enumerate(weight_vars):
                        memory = sums[i][q]
                        body.append(memory.store(memory.load(r) + x * variable, r))
            return body

        shares = const(self._shares)
        written_out = [
            statement
            for u in range(unroll)
            for statement in term((n * const(unroll) + const(u)) * shares + share)
        ]
        body = [
            *self._gathered(operands, terms, part, at, *rows),
            block_barrier(),
            serial_loop(n, const(part // (unroll * self._shares)), written_out),
            block_barrier(),
        ]
        return [*statements, serial_loop(at, const(all_terms // part), body)]

    def _results(
        self, places: dict[int, int], first: Any, last: Any, row: Any, column: Any, output: Any, share: Any
    ) -> Any:
        """Add the threads' sums, then compute and store a thread's output for its share of the nodes."""
        n, r, here = (tirx.Var(name, "int64") for name in ("n", "r", "here"))
        place = Place(here, const(0), column)
        totals = {number: registers("total", 1, "float32") for number in places}
        statements: list[Any] = []
        for number, memory in totals.items():
            other = tirx.Var("other", "int64")
            partial = tirx.BufferLoad(self.kept.buffer, [self._sum_place(places[number], r, other, output)])
            added = memory.store(memory.load(0) + partial, 0)
            statements += [*memory.allocation(), memory.store(tirx.const(0.0, "float32"), 0)]
            statements.append(serial_loop(other, const(self._shares), [added]))

        def load(number: int, where: Place, _: int) -> Any:
            if where is place and number in totals:
                return totals[number].load(0)
            return self.stored(number, where, first)

        vectors = DeviceVectors(self.facts, self.parameters, place, 1, load)
        self._put(vectors, first, here, column)
        nodes, shares = self.blocking.tile, self._shares
        inside = tirx.all(r < const(nodes), here < last, column < const(self.nest.width))
        body = [
            tirx.Bind(r, n * const(shares) + share),
            tirx.Bind(here, row + r),
            tirx.IfThenElse(inside, sequence([*statements, *vectors.statements]), None),
        ]
        return serial_loop(n, const(-(-nodes // shares)), body)
