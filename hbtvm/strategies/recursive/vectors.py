"""Expressions of a node's values: a vector of neighbouring numbers at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.recursive.cell import BINARY, UNARY, Shape, Value
from hbtvm.schedules.statements import Scratch, broadcast, const, scratch, sequence, span
from hbtvm.strategies.recursive.functions import Functions
from hbtvm.strategies.recursive.nests import flat, padded, row_starts
from hbtvm.strategies.recursive.parameters import Parameters
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.values import THERE, vanishes


@dataclass(frozen=True)
class Place:
    """The place of an expression's numbers."""

    # `tile`, `node`: the tile, and the node in it
    tile: Any
    node: Any
    at: Any  # the first of the numbers


class Vectors:
    """Expressions at one place, cached.

    `parameters`: the function's.
    `place`: the place.
    `load`: returns results of products and stored values from memory or registers, by the value's number, the
        place and the number of lanes; None for other values.
    """

    _functions: type[Functions] = Functions

    def __init__(
        self,
        facts: Facts,
        parameters: Parameters,
        place: Place,
        lanes: int,
        load: Callable[[int, Place, int], Any],
    ) -> None:
        self.facts, self.parameters, self.place, self.lanes = facts, parameters, place, lanes
        self.statements: list[Any] = []
        self.functions = self._functions(self.statements, lanes)
        self._load = load
        self._memo: dict[Any, Any] = {}

    def _array(self, name: str) -> Scratch:
        """Return a small array of a vector's numbers."""
        return scratch(name, self.lanes, "float32")

    def moved(self, at: Any, lanes: int) -> Vectors:
        """Return expressions at another place of the same node, which reuse these rows' addresses."""
        place = Place(self.place.tile, self.place.node, at)
        vectors = type(self)(self.facts, self.parameters, place, lanes, self._load)
        vectors._memo = {key: address for key, address in self._memo.items() if key[0] in _ADDRESSES}
        return vectors

    def find(self, number: int) -> None:
        """Compute a value's address, for expressions of `moved`."""
        value = self.facts.values[number]
        if value.op in ("child", THERE):
            self._child(value.start)
        elif value.op == "embed":
            self._embedding(value)

    def of(self, number: int, child: Any = None) -> Any:
        """Return the vector of a value; of a per-child value, that of the child in row `child`."""
        key = (number, None if child is None else id(child))
        if key not in self._memo:
            loaded = self._load(number, self.place, self.lanes)
            vector = self._computed(number, child) if loaded is None else loaded
            constant = self.facts.values[number].op == "constant"
            self._memo[key] = vector if constant else self.functions.shared(vector)
        return self._memo[key]

    def _computed(self, number: int, child: Any) -> Any:
        value, place, lanes = self.facts.values[number], self.place, self.lanes
        op = value.op
        if op == "constant":
            return self.functions.number(value.constant)
        if op in UNARY:
            return self.functions.of(op, self.of(value.of[0], child))
        if op in BINARY:
            a, b = (self.of(operand, child) for operand in value.of)
            return _BINARY[op](a, b)
        if op == "child":
            return self._state(value.name, self._child(value.start), place.at)
        if op == "children":
            return self._state(value.name, child, place.at)
        if op == THERE:
            exists = tirx.Cast("float32", self._child(value.start) > tirx.const(0, "int64"))
            return broadcast(exists, lanes)
        if op == "weight":
            return tirx.BufferLoad(self._padded(value.name), [span(place.at, lanes)])
        if op == "embed":
            table, row = self._embedding(value)
            return tirx.BufferLoad(table, [row, span(place.at, lanes)])
        if op == "input":
            return self._vector_input(value.name, value.shape)
        if op == "slice":
            return self._slice(value, child)
        if op == "reshape":  # the layout is the same, else it would be stored
            return self.of(value.of[0], child)
        if op in ("total", "most"):
            return self._over_children(op, value.of[0])
        raise NotImplementedError(op)

    def _state(self, name: str, row: Any, at: Any) -> Any:
        """Return a state's numbers at a place."""
        start = at + self.facts.offsets[name]
        return tirx.BufferLoad(self.parameters.state, [row, span(start, self.lanes)])

    def _child(self, place: int) -> Any:
        """Return the row of the child in a place."""
        key = ("row", place)
        if key not in self._memo:
            index = [self.place.tile, self.place.node, tirx.const(place, "int64")]
            load = tirx.BufferLoad(self.parameters.child, index)
            self._memo[key] = self.functions.shared(tirx.Cast("int64", load), "row")
        return self._memo[key]

    def _embedding(self, value: Value) -> tuple[Any, Any]:
        """Return a table ending in a row of zeros, and this node's row; `stop` without a number."""
        name, which = value.name, value.start
        key = ("embedding", name)
        if key not in self._memo:
            array = self.facts.weights[name]
            table = np.zeros((len(array) + 1, padded(array.shape[1])), np.float32)
            table[:-1, : array.shape[1]] = array
            number = tirx.BufferLoad(self.parameters.number(which), [self.place.tile, self.place.node])
            row = self.functions.shared(tirx.Cast("int64", number), "row")
            last = tirx.const(value.stop or len(array), "int64")
            row = self.functions.shared(tirx.Select(row < tirx.const(0, "int64"), last, row), "row")
            self._memo[key] = self.parameters.table(table), row
        embedding: tuple[Any, Any] = self._memo[key]
        return embedding

    def _vector_input(self, name: str, shape: Shape, shift: int = 0) -> Any:
        """Return an input vector from `shift` on, of which `shape` is read; padding is undefined."""
        which, input_ = self.facts.inputs[name]
        size, place = input_.size, self.place
        buffer, start = self.parameters.vector(which, size), place.at + shift

        def entry(at: Any) -> Any:
            inside = at < tirx.const(size, "int64")
            bounded = tirx.min(at, tirx.const(size - 1, "int64"))
            return tirx.Select(
                inside, tirx.BufferLoad(buffer, [place.tile, place.node, bounded]), tirx.const(0.0, "float32")
            )

        if size % self.lanes == 0 and shift % self.lanes == 0:
            if shift + flat(shape) > size:  # the array has no padding: read the last numbers again
                start = tirx.min(start, const(size - self.lanes))
            return tirx.BufferLoad(buffer, [place.tile, place.node, span(start, self.lanes)])
        return self._gathered(lambda lane: entry(start + lane))

    def _gathered(self, entry: Callable[[int], Any]) -> Any:
        """Return a vector of single values."""
        memory = self._array("gathered")
        self.statements.extend(memory.allocation())
        for lane in range(self.lanes):
            self.statements.append(memory.store(entry(lane), lane))
        return memory.load(0, self.lanes)

    def _slice(self, cut: Value, child: Any) -> Any:
        (of,) = cut.of
        value = self.facts.values[of]
        start = cut.start * row_starts(value.shape)
        if value.op in ("child", "children"):
            row = child if value.op == "children" else self._child(value.start)
            at = self.place.at + start
            if self.lanes == 1 and start + flat(cut.shape) > flat(value.shape):
                # Beyond the state are numbers that other threads may write.
                at = tirx.min(at, const(flat(value.shape) - 1))
            return self._state(value.name, row, at)
        if value.op == "input":
            return self._vector_input(value.name, cut.shape, start)
        place = Place(self.place.tile, self.place.node, self.place.at + start)
        moved = self._load(of, place, self.lanes)
        assert moved is not None, "the source of a slice is stored"
        return moved

    def _over_children(self, op: str, term: int) -> Any:
        """Return a sum or maximum over any number of children."""
        low = 0.0 if op == "total" else -3.0e38
        memory = self._array("over")
        child = tirx.Var("c", "int64")
        index = [self.place.tile, self.place.node, child]
        row = tirx.Var("row", "int64")
        inner = type(self)(self.facts, self.parameters, self.place, self.lanes, self._load)
        inner.statements.append(
            tirx.Bind(row, tirx.Cast("int64", tirx.BufferLoad(self.parameters.child, index)))
        )
        value = inner.of(term, row)
        if op == "most" or not vanishes(self.facts.values, term):
            exists = broadcast(row > tirx.const(0, "int64"), self.lanes)
            value = tirx.Select(exists, value, self.functions.number(low))
        so_far = memory.load(0, self.lanes)
        inner.statements.append(
            memory.store(so_far + value if op == "total" else tirx.max(so_far, value), 0, self.lanes)
        )
        loop = tirx.For(
            child,
            tirx.const(0, "int64"),
            self.parameters.arity,
            tirx.ForKind.SERIAL,
            sequence(inner.statements),
        )
        self.statements += [
            *memory.allocation(),
            memory.store(self.functions.number(low), 0, self.lanes),
            loop,
        ]
        result = memory.load(0, self.lanes)
        if op == "most":
            low_half = self.functions.number(-1.0e38)
            result = self.functions.shared(result)
            return tirx.Select(result > low_half, result, self.functions.number(0.0))
        return result

    def _padded(self, name: str) -> Any:
        array = self.facts.weights[name]
        table = np.zeros((*array.shape[:-1], padded(array.shape[-1])), np.float32)
        table[..., : array.shape[-1]] = array
        return self.parameters.table(table.reshape(-1))


_ADDRESSES = ("row", "embedding")  # first parts of the cache's keys of addresses

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": tirx.max,
    "min": tirx.min,
}
