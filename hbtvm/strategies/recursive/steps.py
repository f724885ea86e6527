"""Steps of a level: functions over tiles of its nodes.

By nodes, everything of a tile is computed in one step::

    for tile: gather operands; for each nest: for panel: products in registers; from them, values

By panels, each nest is a step of its own, and a panel of its constants serves all tiles of a level::

    gather operands of all tiles
    for each nest: for panel (of the thread's `span`): for tile: products in registers; from them, values
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tvm import tirx

from hbtvm.runtime.recursive.entry import Step
from hbtvm.schedules.statements import Scratch, broadcast, every, scratch, sequence, span
from hbtvm.strategies.recursive.nests import Nest, padded
from hbtvm.strategies.recursive.parameters import Parameters, Tables
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.vectors import Place, Vectors

Order = Literal["nodes", "panels"]


@dataclass(frozen=True)
class Tiling:
    """How steps go about their work.

    Attributes
    ----------
    tile
        Nodes of a tile, R.
    vectors, lanes
        Vectors of a panel, at most, and numbers of a vector.
    unroll
        Terms of a sum that are written out, at most.
    order
        See the module.
    registers
        Most vectors of sums at a time.
    """

    tile: int
    vectors: int
    lanes: int
    unroll: int
    order: Order
    registers: int


@dataclass(frozen=True)
class Made:
    """Steps of a program, their functions, and the widths of the memory between them."""

    steps: tuple[Step, ...]
    functions: dict[str, Any]
    scratch: tuple[int, ...]


def steps_of(facts: Facts, tiling: Tiling, tables: Tables, name: str) -> Made:
    """Return the steps that compute a level's nodes; names of functions begin with `name`."""
    nests = facts.nests
    widths = [padded_width(facts, number) for number in nests.scratch]
    if tiling.order == "nodes":
        maker = _Maker(facts, tiling, tables, range(len(nests.nests)), fused=True)
        step, function = maker.by_nodes(name)
        return Made((step,), {name: function}, ())
    steps, functions = [], {}
    for which in _together(nests.nests):
        own = f"{name}_{which[0]}"
        maker = _Maker(facts, tiling, tables, which, fused=False)
        products = nests.nests[which[0]].products
        step, functions[own] = maker.by_panels(own) if products else maker.by_nodes(own)
        steps.append(step)
    return Made(tuple(steps), functions, tuple(widths))


def padded_width(facts: Facts, number: int) -> int:
    """Numbers that a value takes in memory."""
    shape = facts.values[number].shape
    rows = int(np.prod(shape[:-1])) if shape else 1
    return rows * padded(shape[-1]) if shape else padded(1)


def _together(nests: Sequence[Nest]) -> list[list[int]]:
    """Numbers of nests by step: those without products that follow each other are one."""
    made: list[list[int]] = []
    for i, nest in enumerate(nests):
        if made and not nest.products and not nests[made[-1][-1]].products:
            made[-1].append(i)
        else:
            made.append([i])
    return made


@dataclass(frozen=True)
class _Group:
    """Products of the same constants with several operands: operands, and for each the products."""

    operands: tuple[int, ...]
    weights: tuple[str, ...]
    products: tuple[tuple[int, ...], ...]


class _Maker:
    """Makes the function of one step."""

    def __init__(
        self, facts: Facts, tiling: Tiling, tables: Tables, nests: Sequence[int], fused: bool
    ) -> None:
        self.facts, self.tiling, self.nests, self.fused = facts, tiling, nests, fused
        self.parameters = Parameters(tiling.tile, facts.width, facts.children, tables)
        self.made: list[Any] = []  # memory of the whole function
        self._own: dict[int, Scratch] = {}

    def by_nodes(self, name: str) -> tuple[Step, Any]:
        """All nests of a tile, tile by tile."""
        tile = tirx.Var("tile", "int64")
        self.parameters.out  # noqa: B018 (tells how many tiles there are)
        body = [one for which in self.nests for one in self._nest(which, tile)]
        loop = _serial(tile, self.parameters.tiles, body)
        return self._step(name, [*self.made, loop], 0)

    def by_panels(self, name: str) -> tuple[Step, Any]:
        """One nest, panel by panel."""
        (which,) = self.nests
        nest = self.facts.nests.nests[which]
        vectors = self._vectors(nest)
        panels = nest.width // (vectors * self.tiling.lanes)
        self.parameters.out  # noqa: B018
        tile, i = tirx.Var("tile", "int64"), tirx.Var("i", "int64")
        bounds = [
            tirx.Cast("int64", tirx.BufferLoad(self.parameters.span, [tirx.const(n, "int64")]))
            for n in (0, 1)
        ]
        first = tirx.Var("first", "int64")
        body = _serial(tile, self.parameters.tiles, self._panel(which, tile, first + i))
        loop = _serial(i, bounds[1] - first, [body])
        return self._step(name, [*self.made, tirx.Bind(first, bounds[0]), loop], panels)

    def _step(self, name: str, body: list[Any], panels: int) -> tuple[Step, Any]:
        function = self.parameters.function(name, sequence(body))
        return Step(name, self.tiling.tile, self.parameters.arguments(), panels), function

    def _vectors(self, nest: Nest) -> int:
        """Vectors of a panel."""
        most = min(self.tiling.vectors, nest.width // self.tiling.lanes)
        return max(n for n in range(1, most + 1) if nest.width % (n * self.tiling.lanes) == 0)

    def _nest(self, which: int, tile: Any) -> list[Any]:
        nest = self.facts.nests.nests[which]
        if nest.products:
            panel = tirx.Var("panel", "int64")
            panels = nest.width // (self._vectors(nest) * self.tiling.lanes)
            return [_serial(panel, tirx.const(panels, "int64"), self._panel(which, tile, panel))]
        node, vector = tirx.Var("node", "int64"), tirx.Var("vector", "int64")
        count = nest.width // self.tiling.lanes
        place = Place(tile, node, vector * self.tiling.lanes)
        inner = _serial(vector, tirx.const(count, "int64"), self._values(which, place, lambda *_: None))
        return [_serial(node, tirx.const(self.tiling.tile, "int64"), [inner])]

    def _panel(self, which: int, tile: Any, panel: Any) -> list[Any]:
        """Products of a panel, and from them all values of it."""
        nest, tiling = self.facts.nests.nests[which], self.tiling
        vectors = self._vectors(nest)
        count = len(nest.products) * tiling.tile * vectors
        sums = scratch("sums", count * tiling.lanes, "float32")
        self.made += sums.made()
        numbers = {number: i for i, number in enumerate(nest.products)}
        body = [
            one
            for group in self._groups(nest)
            for one in self._products(group, which, tile, panel, vectors, sums, numbers)
        ]
        node, vector = tirx.Var("node", "int64"), tirx.Var("vector", "int64")

        def product(number: int) -> Any:
            if number not in numbers:
                return None
            at = ((numbers[number] * tiling.tile + node) * vectors + vector) * tiling.lanes
            return sums.load(at, tiling.lanes)

        place = Place(tile, node, (panel * vectors + vector) * tiling.lanes)
        inner = _serial(vector, tirx.const(vectors, "int64"), self._values(which, place, product))
        return [*body, _serial(node, tirx.const(tiling.tile, "int64"), [inner])]

    def _groups(self, nest: Nest) -> list[_Group]:
        values = self.facts.values
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

    def _products(
        self,
        group: _Group,
        which: int,
        tile: Any,
        panel: Any,
        vectors: int,
        sums: Scratch,
        numbers: dict[int, int],
    ) -> list[Any]:
        """Sums over all terms, for as many nodes at a time as registers hold."""
        tiling = self.tiling
        arrays = [self.facts.weights[name] for name in group.weights]
        table = self.parameters.table(_packed(arrays, vectors * tiling.lanes))
        terms = arrays[0].shape[1]
        rows = [(i, node) for i in range(len(group.operands)) for node in range(tiling.tile)]
        most = max(1, tiling.registers // (len(arrays) * vectors))
        pieces = -(-len(rows) // most)
        size = -(-len(rows) // pieces)
        made = []
        for at in range(0, len(rows), size):
            own = rows[at : at + size]
            made += self._sums(group, own, which, tile, panel, vectors, table, terms, sums, numbers)
        return made

    def _sums(
        self,
        group: _Group,
        rows: Sequence[tuple[int, int]],
        which: int,
        tile: Any,
        panel: Any,
        vectors: int,
        table: Any,
        terms: int,
        sums: Scratch,
        numbers: dict[int, int],
    ) -> list[Any]:
        lanes, weights = self.tiling.lanes, len(group.weights)
        own = {
            (row, q, n): scratch("sum", lanes, "float32")
            for row in range(len(rows))
            for q in range(weights)
            for n in range(vectors)
        }
        zero = every(0.0, "float32", lanes)
        begin = [one for memory in own.values() for one in (*memory.made(), memory.store(zero, 0, lanes))]
        unroll = max(n for n in range(1, self.tiling.unroll + 1) if terms % n == 0)

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
                number = self._stored(group.operands[operand], which, place, 1)
                made.append(tirx.Bind(x, broadcast(number, lanes)))
                for q in range(weights):
                    for n in range(vectors):
                        memory = own[i, q, n]
                        value = memory.load(0, lanes) + x * loaded[q, n]
                        made.append(memory.store(value, 0, lanes))
            return made

        k = tirx.Var("k", "int64")
        body = [one for u in range(unroll) for one in term(k * unroll + u)]
        loop = _serial(k, tirx.const(terms // unroll, "int64"), body)
        end = []
        for i, (operand, node) in enumerate(rows):
            for q in range(weights):
                number = numbers[group.products[operand][q]]
                for n in range(vectors):
                    at = ((number * self.tiling.tile + node) * vectors + n) * lanes
                    end.append(sums.store(own[i, q, n].load(0, lanes), at, lanes))
        return [*begin, loop, *end]

    def _values(self, which: int, place: Place, product: Callable[[int], Any]) -> list[Any]:
        """Compute and store all values of a nest at one place."""
        nest = self.facts.nests.nests[which]

        def load(number: int, where: Place, lanes: int = self.tiling.lanes) -> Any:
            found = product(number) if where is place else None
            return self._stored(number, which, where, lanes) if found is None else found

        vectors = Vectors(self.facts, self.parameters, place, self.tiling.lanes, load)
        for number in nest.stored:
            value = vectors.of(number)
            vectors.statements.append(self._store(number, place, value))
        for start, number in nest.states.items():
            index = [place.tile, place.node, span(place.at + start, self.tiling.lanes)]
            vectors.statements.append(tirx.BufferStore(self.parameters.out, vectors.of(number), index))
        return vectors.statements

    def _stored(self, number: int, which: int, place: Place, lanes: int) -> Any:
        """A stored value of an earlier nest, from memory; None if it is none."""
        home = self.facts.nests.home(number)
        if home is None or home >= which:
            return None
        width = padded_width(self.facts, number)
        if self.fused:
            return self._memory(number).load(place.node * width + place.at, lanes)
        buffer = self.parameters.scratch(self.facts.nests.scratch[number], width)
        return tirx.BufferLoad(buffer, [place.tile, place.node, span(place.at, lanes)])

    def _store(self, number: int, place: Place, value: Any) -> Any:
        width, lanes = padded_width(self.facts, number), self.tiling.lanes
        if self.fused:
            return self._memory(number).store(value, place.node * width + place.at, lanes)
        buffer = self.parameters.scratch(self.facts.nests.scratch[number], width)
        return tirx.BufferStore(buffer, value, [place.tile, place.node, span(place.at, lanes)])

    def _memory(self, number: int) -> Scratch:
        if number not in self._own:
            width = padded_width(self.facts, number)
            self._own[number] = scratch("stored", self.tiling.tile * width, "float32")
            self.made += self._own[number].made()
        return self._own[number]


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


def _serial(variable: Any, extent: Any, body: Sequence[Any]) -> Any:
    return tirx.For(variable, tirx.const(0, "int64"), extent, tirx.ForKind.SERIAL, sequence(list(body)))
