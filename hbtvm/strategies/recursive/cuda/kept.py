"""Products whose constants stay in shared memory while a kernel goes through all levels.

This is Cortex's model persistence (MLSys'21, section 5): each block owns a few outputs of each nest, loads
the constants of their products before the first level, and computes these outputs of all tiles of nodes that
its team does. Blocks `panels` apart own the same outputs, of other tiles.

Few outputs are few threads, so threads share the terms of a sum, too::

    for part of the terms: operands of the tile's nodes go to shared memory; each thread adds every n-th term
    sums of all threads go to shared memory; for node and output: the thread adds them up, and computes values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.errors import UnsupportedModel
from hbtvm.schedules.statements import Scratch, scratch, sequence
from hbtvm.strategies.recursive.cuda.parameters import DeviceParameters
from hbtvm.strategies.recursive.cuda.step import SHARED_BYTES, block_barrier, const
from hbtvm.strategies.recursive.cuda.steps import LevelStep
from hbtvm.strategies.recursive.cuda.values import DeviceVectors
from hbtvm.strategies.recursive.products import serial_loop
from hbtvm.strategies.recursive.vectors import Place


@dataclass
class Kept:
    """Constants in shared memory, and behind them room for sums."""

    # By number among all constants: where a block's part begins, and the array, (panels, numbers)
    tables: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)
    # `count`, `sums`: numbers of constants, and of sums
    count: int = 0
    sums: int = 0
    buffer: Any = None

    @classmethod
    def of(cls, steps: Sequence[KeptStep], parameters: DeviceParameters, most: int) -> Kept:
        """What steps need.

        Raises `UnsupportedModel` if that is too little.

        `most`: bytes that there are.
        """
        made = cls()
        for step in steps:
            made.sums = max(made.sums, step.sum_numbers())
            for array in step.packed():
                number = parameters.tables.number(array)
                if number not in made.tables:
                    made.tables[number] = made.count, array
                    made.count += array.shape[1]
        if made.bytes > most:
            raise UnsupportedModel(
                f"constants of a block's outputs take {made.bytes:,} bytes, and its shared memory has room "
                f"for {most:,}; give blocks fewer outputs, or leave constants in global memory"
            )
        made.buffer = tirx.decl_buffer((made.count + made.sums,), "float32", "kept", scope="shared.dyn")
        return made

    @property
    def bytes(self) -> int:
        """Size of all."""
        return 4 * (self.count + self.sums)

    def loaded(self, parameters: DeviceParameters, block: Any, thread: Any, threads: int) -> list[Any]:
        """Load a block's constants."""
        made: list[Any] = []
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
            made.append(serial_loop(n, const(-(-count // threads)), body))
        return [*made, block_barrier()]


class KeptStep(LevelStep):
    """One nest with products, whose constants stay in shared memory."""

    kept: Kept  # all constants that stay

    @property
    def panels(self) -> int:
        """Panels of outputs, of which each block owns one."""
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
        own = tirx.Select(team < teams, count, const(0))
        return own, lambda n: (n * teams + team) * panels + tirx.truncmod(block, panels)

    def packed(self) -> list[np.ndarray]:
        """Constants of each group of products by panel: (panels, products of an operand, terms, columns)."""
        made = []
        for operands, weights, _ in self._groups():
            arrays = [self.facts.weights[name] for name in weights]
            terms = self._all_terms(len(operands), arrays[0].shape[1])
            found = np.zeros((self.panels, len(arrays), terms, self.blocking.columns), np.float32)
            for q, array in enumerate(arrays):
                tall = np.zeros((self.panels * self.blocking.columns, array.shape[1]), np.float32)
                tall[: len(array)] = array
                parts = tall.reshape(self.panels, self.blocking.columns, -1).transpose(0, 2, 1)
                found[:, q, : array.shape[1]] = parts
            made.append(found.reshape(self.panels, -1))
        return made

    def sum_numbers(self) -> int:
        """Numbers of sums of a tile, of all threads."""
        sums = sum(len(operands) * len(weights) for operands, weights, _ in self._groups())
        return sums * self.blocking.tile * self.blocking.threads

    def statements(self, level: Any, unit: Any) -> list[Any]:
        p, blocking, panels = self.parameters, self.blocking, const(self.panels)
        first, last, row = (tirx.Var(name, "int64") for name in ("first", "last", "row"))
        own, share, column = (tirx.Var(name, "int64") for name in ("own", "share", "column"))
        columns = const(blocking.columns)
        made = [
            tirx.Bind(first, p.first_row(level)),
            tirx.Bind(last, p.first_row(level + const(1))),
            tirx.Bind(row, first + tirx.truncdiv(unit, panels) * const(blocking.tile)),
            tirx.Bind(own, tirx.truncmod(self.thread, columns)),
            tirx.Bind(share, tirx.truncdiv(self.thread, columns)),
            tirx.Bind(column, tirx.truncmod(unit, panels) * columns + own),
        ]
        places: dict[int, int] = {}
        stores: list[Any] = []
        for (operands, weights, products), array in zip(self._groups(), self.packed(), strict=True):
            sums = [[scratch("sums", blocking.tile, "float32") for _ in weights] for _ in operands]
            start, _ = self.kept.tables[p.tables.number(array)]
            made += self._partial(operands, weights, sums, start, (first, last, row), own, share)
            for of_operand, numbers in zip(sums, products, strict=True):
                for memory, number in zip(of_operand, numbers, strict=True):
                    places[number] = len(places)
                    for r in range(blocking.tile):
                        to = self._sum_place(places[number], const(r), share, own)
                        stores.append(tirx.BufferStore(self.kept.buffer, memory.load(r), [to]))
        return [*made, *stores, block_barrier(), self._results(places, first, last, row, column, own, share)]

    def _part(self, operands: int, terms: int) -> int:
        """As in `LevelStep`, and a multiple of what all threads add at a time."""
        step = self.blocking.unroll * self._shares
        most = SHARED_BYTES // (4 * operands * self.blocking.tile)
        return max(1, min(-(-terms // step), most // step)) * step

    def _all_terms(self, operands: int, terms: int) -> int:
        part = self._part(operands, terms)
        return -(-terms // part) * part

    def _sum_place(self, which: int, r: Any, share: Any, own: Any) -> Any:
        node = const(which * self.blocking.tile) + r
        return (
            const(self.kept.count) + (node * const(self._shares) + share) * const(self.blocking.columns) + own
        )

    def _partial(
        self,
        operands: Sequence[int],
        weights: Sequence[str],
        sums: list[list[Scratch]],
        start: int,
        rows: tuple[Any, Any, Any],
        own: Any,
        share: Any,
    ) -> list[Any]:
        """Sums over a thread's terms, of its output and all nodes of the tile."""
        nodes, unroll = self.blocking.tile, self.blocking.unroll
        terms = self.facts.weights[weights[0]].shape[1]
        part, all_terms = self._part(len(operands), terms), self._all_terms(len(operands), terms)
        made: list[Any] = []
        for memory in (one for of_operand in sums for one in of_operand):
            made += memory.made()
            made += [memory.store(tirx.const(0.0, "float32"), r) for r in range(nodes)]
        at, n = tirx.Var("part", "int64"), tirx.Var("n", "int64")

        def term(k: Any) -> list[Any]:
            body = []
            found = [tirx.Var("w", "float32") for _ in weights]
            for q, variable in enumerate(found):
                place = const(q * all_terms) + at * const(part) + k
                place = const(start) + place * const(self.blocking.columns) + own
                body.append(tirx.Bind(variable, tirx.BufferLoad(self.kept.buffer, [place])))
            for i in range(len(operands)):
                for r in range(nodes):
                    x = tirx.Var("x", "float32")
                    place = (const(i * part) + k) * const(nodes) + const(r)
                    body.append(tirx.Bind(x, tirx.BufferLoad(self.shared, [place])))
                    for q, variable in enumerate(found):
                        memory = sums[i][q]
                        body.append(memory.store(memory.load(r) + x * variable, r))
            return body

        shares = const(self._shares)
        written_out = [
            one for u in range(unroll) for one in term((n * const(unroll) + const(u)) * shares + share)
        ]
        body = [
            *self._gathered(operands, terms, part, at, *rows),
            block_barrier(),
            serial_loop(n, const(part // (unroll * self._shares)), written_out),
            block_barrier(),
        ]
        return [*made, serial_loop(at, const(all_terms // part), body)]

    def _results(
        self, places: dict[int, int], first: Any, last: Any, row: Any, column: Any, own: Any, share: Any
    ) -> Any:
        """Add sums up, and compute and store all values of a thread's output, for its share of the nodes."""
        n, r, here = (tirx.Var(name, "int64") for name in ("n", "r", "here"))
        place = Place(here, const(0), column)
        totals = {number: scratch("total", 1, "float32") for number in places}
        made: list[Any] = []
        for number, memory in totals.items():
            other = tirx.Var("other", "int64")
            found = tirx.BufferLoad(self.kept.buffer, [self._sum_place(places[number], r, other, own)])
            added = memory.store(memory.load(0) + found, 0)
            made += [*memory.made(), memory.store(tirx.const(0.0, "float32"), 0)]
            made.append(serial_loop(other, const(self._shares), [added]))

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
            tirx.IfThenElse(inside, sequence([*made, *vectors.statements]), None),
        ]
        return serial_loop(n, const(-(-nodes // shares)), body)
