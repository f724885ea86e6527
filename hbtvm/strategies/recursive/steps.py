"""Steps of a level: functions over tiles of its nodes.

By nodes, everything of a tile is computed in one step::

    for tile: gather operands; for each nest: for panel: products in registers; from them, values

By panels, nests of one depth are a step, and a panel of their constants serves all tiles of a level::

    gather operands of all tiles
    for each nest: for panel (of the thread's `span`): for tile: products in registers; from them, values

If nests of a step have different numbers of panels, the step has as many as the largest, and a span of these
is the same share of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from hbtvm.runtime.recursive.entry import Step
from hbtvm.schedules.statements import Scratch, scratch, sequence, span
from hbtvm.strategies.recursive.matrices import parts_of
from hbtvm.strategies.recursive.nests import Nest, flat, nests_of
from hbtvm.strategies.recursive.parameters import Parameters, Tables
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.products import Products, Tiling, serial_loop
from hbtvm.strategies.recursive.vectors import Place, Vectors
from hbtvm.strategies.recursive.whole import Result, Span
from hbtvm.strategies.recursive.wholes import whole_statements

_OWN_BYTES = 1 << 18  # largest memory on a function's stack; beyond, values go to memory between steps


@dataclass(frozen=True)
class Made:
    """Steps of a program, their functions, and the widths of the memory between them."""

    steps: tuple[Step, ...]
    functions: dict[str, Any]
    scratch: tuple[int, ...]


def steps_of(facts: Facts, tiling: Tiling, tables: Tables, name: str) -> Made:
    """Return the steps that compute a level's nodes; `name` is the prefix of their functions."""
    if not tiling.fused:
        facts = replace(facts, nests=nests_of(facts.values, facts.states, fused=False))
    nests = facts.nests
    widths = [flat(facts.values[number].shape) for number in nests.scratch]
    if tiling.order == "nodes" and tiling.fused and 4 * tiling.tile * sum(widths) <= _OWN_BYTES:
        maker = _Maker(facts, tiling, tables, range(len(nests.nests)), fused=True)
        step, function = maker.by_nodes(name)
        return Made((step,), {name: function}, ())
    steps, functions = [], {}
    for which in _together(facts, tiling):
        function_name = f"{name}_{which[0]}"
        maker = _Maker(facts, tiling, tables, which, fused=False)
        shared = panels_of(facts, tiling, nests.nests[which[0]])  # all nests of a step have panels, or none
        step, functions[function_name] = (
            maker.by_panels(function_name) if shared else maker.by_nodes(function_name)
        )
        steps.append(step)
    return Made(tuple(steps), functions, tuple(widths))


def panels_of(facts: Facts, tiling: Tiling, nest: Nest) -> int:
    """Return the number of a nest's panels that threads may share; 0 if it has none."""
    if nest.whole is not None:
        value = facts.values[nest.whole]
        terms = facts.values[value.of[0]].shape[-1] if value.of else 0
        return parts_of(value, terms, tiling.lanes, tiling.registers)
    return nest.width // (vectors_of(nest, tiling) * tiling.lanes) if nest.products else 0


def vectors_of(nest: Nest, tiling: Tiling) -> int:
    """Return the number of vectors of a panel."""
    most = min(tiling.vectors, nest.width // tiling.lanes)
    return max(n for n in range(1, most + 1) if nest.width % (n * tiling.lanes) == 0)


def _together(facts: Facts, tiling: Tiling) -> list[list[int]]:
    """Return the numbers of each step's nests.

    A step joins consecutive nests without panels, or nests with panels that don't read each other: those of
    one depth, but whole values apart, which products' nests of their depth may read.
    """
    nests, steps = facts.nests.nests, list[list[int]]()
    panels = [panels_of(facts, tiling, nest) > 0 for nest in nests]
    for i, nest in enumerate(nests):
        before = steps[-1][-1] if steps and tiling.fused else None
        if (
            before is not None
            and panels[i] == panels[before]
            and (not panels[i] or _kind(nest) == _kind(nests[before]))
        ):
            steps[-1].append(i)
        else:
            steps.append([i])
    return steps


def _kind(nest: Nest) -> tuple[int, bool]:
    return nest.depth, nest.whole is None


class _Maker:
    """Makes the function of one step."""

    def __init__(
        self, facts: Facts, tiling: Tiling, tables: Tables, nests: Sequence[int], fused: bool
    ) -> None:
        self.facts, self.tiling, self.nests, self.fused = facts, tiling, nests, fused
        self.parameters = Parameters(tiling.tile, facts.width, facts.children, tables)
        self.memory: list[Any] = []  # memory of the whole function
        self._memories: dict[int, Scratch] = {}

    def by_nodes(self, name: str) -> tuple[Step, Any]:
        """Compute all nests of a tile, tile by tile."""
        tile = tirx.Var("tile", "int64")
        self.parameters.out  # noqa: B018 (its shape has the number of tiles)
        body = [statement for which in self.nests for statement in self._nest(which, tile)]
        loop = serial_loop(tile, self.parameters.tiles, body)
        return self._step(name, [*self.memory, loop], 0)

    def by_panels(self, name: str) -> tuple[Step, Any]:
        """Compute nest after nest, panel by panel."""
        nests = self.facts.nests.nests
        counts = {which: panels_of(self.facts, self.tiling, nests[which]) for which in self.nests}
        most = max(counts.values())
        self.parameters.out  # noqa: B018
        bounds = [
            tirx.Cast("int64", tirx.BufferLoad(self.parameters.span, [tirx.const(n, "int64")]))
            for n in (0, 1)
        ]
        body = []
        for which, count in counts.items():
            limits = [bound if count == most else tirx.floordiv(bound * count, most) for bound in bounds]
            first, stop = tirx.Var("first", "int64"), tirx.Var("stop", "int64")
            body += [tirx.Bind(first, limits[0]), tirx.Bind(stop, limits[1])]
            tile, i = tirx.Var("tile", "int64"), tirx.Var("i", "int64")
            if nests[which].whole is None:
                inner = serial_loop(tile, self.parameters.tiles, self._panel(which, tile, first + i))
                body.append(serial_loop(i, stop - first, [inner]))
            else:
                body.append(serial_loop(tile, self.parameters.tiles, self._nest(which, tile, (first, stop))))
        return self._step(name, [*self.memory, *body], most)

    def _step(self, name: str, body: list[Any], panels: int) -> tuple[Step, Any]:
        function = self.parameters.function(name, sequence(body))
        return Step(name, self.tiling.tile, self.parameters.arguments(), panels), function

    def _nest(self, which: int, tile: Any, bounds: Span = None) -> list[Any]:
        nest = self.facts.nests.nests[which]
        if nest.products:
            panel = tirx.Var("panel", "int64")
            panels = panels_of(self.facts, self.tiling, nest)
            return [serial_loop(panel, tirx.const(panels, "int64"), self._panel(which, tile, panel))]
        node, vector = tirx.Var("node", "int64"), tirx.Var("vector", "int64")
        if nest.whole is not None:
            inner = sequence(self._whole(which, Place(tile, node, tirx.const(0, "int64")), bounds))
            return [serial_loop(node, tirx.const(self.tiling.tile, "int64"), [inner])]
        count = nest.width // self.tiling.lanes
        place = Place(tile, node, vector * self.tiling.lanes)
        inner = serial_loop(vector, tirx.const(count, "int64"), self._values(which, place, lambda *_: None))
        return [serial_loop(node, tirx.const(self.tiling.tile, "int64"), [inner])]

    def _panel(self, which: int, tile: Any, panel: Any) -> list[Any]:
        """Compute a panel's products, and from them all its values."""
        nest, tiling = self.facts.nests.nests[which], self.tiling
        vectors = vectors_of(nest, tiling)
        count = len(nest.products) * tiling.tile * vectors
        sums = scratch("sums", count * tiling.lanes, "float32")
        self.memory += sums.allocation()
        numbers = {number: i for i, number in enumerate(nest.products)}
        products = Products(
            self.facts,
            tiling,
            self.parameters,
            lambda number, at, lanes: self._stored(number, which, at, lanes),
        )
        body = [
            statement
            for group in products.groups(nest)
            for statement in products.sums_of(group, tile, panel, vectors, sums, numbers)
        ]
        node, vector = tirx.Var("node", "int64"), tirx.Var("vector", "int64")

        def product(number: int) -> Any:
            if number not in numbers:
                return None
            at = ((numbers[number] * tiling.tile + node) * vectors + vector) * tiling.lanes
            return sums.load(at, tiling.lanes)

        place = Place(tile, node, (panel * vectors + vector) * tiling.lanes)
        inner = serial_loop(vector, tirx.const(vectors, "int64"), self._values(which, place, product))
        return [*body, serial_loop(node, tirx.const(tiling.tile, "int64"), [inner])]

    def _values(self, which: int, place: Place, product: Callable[[int], Any]) -> list[Any]:
        """Compute and store all values of a nest at one place."""
        nest = self.facts.nests.nests[which]

        def load(number: int, where: Place, lanes: int) -> Any:
            loaded = product(number) if where is place else None
            return self._stored(number, which, where, lanes) if loaded is None else loaded

        vectors = Vectors(self.facts, self.parameters, place, self.tiling.lanes, load)
        for number in nest.stored:
            value = vectors.of(number)
            vectors.statements.append(self._store(number, place, value, self.tiling.lanes))
        for start, number in nest.states.items():
            index = [place.tile, place.node, span(place.at + start, self.tiling.lanes)]
            vectors.statements.append(tirx.BufferStore(self.parameters.out, vectors.of(number), index))
        return vectors.statements

    def _whole(self, which: int, place: Place, bounds: Span) -> list[Any]:
        """Compute and store a nest's whole value for one node."""
        nest = self.facts.nests.nests[which]
        number = nest.whole
        assert number is not None

        def load(value_number: int, where: Place, lanes: int) -> Any:
            return self._stored(value_number, which, where, lanes)

        def in_row(start: int, at: Any, lanes: int) -> list[Any]:
            return [place.tile, place.node, span(at + start, lanes)]

        def store(at: Any, value: Any, lanes: int) -> list[Any]:
            out = self.parameters.out
            stores = [tirx.BufferStore(out, value, in_row(start, at, lanes)) for start in nest.states]
            if number in nest.stored:
                stores.append(self._store(number, Place(place.tile, place.node, at), value, lanes))
            return stores

        def load_again(at: Any, lanes: int) -> Any:
            if number in nest.stored:
                return self._stored(number, which + 1, Place(place.tile, place.node, at), lanes)
            return tirx.BufferLoad(self.parameters.out, in_row(next(iter(nest.states)), at, lanes))

        lanes, registers = self.tiling.lanes, self.tiling.registers
        here = Vectors(self.facts, self.parameters, place, lanes, load)
        return whole_statements(number, here, Result(store, load_again), lanes, registers, bounds)

    def _stored(self, number: int, which: int, place: Place, lanes: int) -> Any:
        """Return a value that an earlier nest stored; None for other values."""
        home = self.facts.nests.home(number)
        if home is None or home >= which:
            return None
        width = flat(self.facts.values[number].shape)
        if self.fused:
            return self._memory(number).load(place.node * width + place.at, lanes)
        buffer = self.parameters.scratch(self.facts.nests.scratch[number], width)
        return tirx.BufferLoad(buffer, [place.tile, place.node, span(place.at, lanes)])

    def _store(self, number: int, place: Place, value: Any, lanes: int) -> Any:
        width = flat(self.facts.values[number].shape)
        if self.fused:
            return self._memory(number).store(value, place.node * width + place.at, lanes)
        buffer = self.parameters.scratch(self.facts.nests.scratch[number], width)
        return tirx.BufferStore(buffer, value, [place.tile, place.node, span(place.at, lanes)])

    def _memory(self, number: int) -> Scratch:
        if number not in self._memories:
            width = flat(self.facts.values[number].shape)
            self._memories[number] = scratch("stored", self.tiling.tile * width, "float32")
            self.memory += self._memories[number].allocation()
        return self._memories[number]
