"""Index expressions of a lowered kernel at a few points of its iteration space.

A stride is a finite difference: an address is evaluated at every loop's first iteration, and, for each loop,
at its second. Values from memory count as 0 in an address; the loops that they depend on are recorded,
because data-dependent addresses of neighbouring lanes decide between a load and a gather.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tvm_ffi

from hbtvm.strategies.intrinsics.exponential import EXPONENTIAL
from hbtvm.strategies.intrinsics.lookup import METHODS, OPERATOR, REGISTER


class Value(NamedTuple):
    """An integer expression at a few points of the iteration space."""

    first: int  # its value at every loop's first iteration; 0 for values from memory
    # By a loop's number: its change from the loop's first iteration to the second
    steps: Mapping[int, int]
    # Numbers of the loops that change the values it reads from memory; None if it reads nothing
    data: frozenset[int] | None
    code: int = -1  # equal for equal expressions of a statement, which a compiler computes once


class Address(NamedTuple):
    """The address of a load or store."""

    buffer: Any
    element: Value  # index of the element in the flattened buffer; `Value.data` if it depends on data
    span: int  # elements that data choose among; 1 if it does not depend on data
    store: bool  # whether it is written


def _divided(a: int, b: int) -> int:
    return a // b if b else 0


_BINARY: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "Add": ("add", operator.add),
    "Sub": ("add", operator.sub),
    "Mul": ("multiply", operator.mul),
    "FloorDiv": ("other", _divided),
    "Div": ("other", _divided),
    "FloorMod": ("other", lambda a, b: a % b if b else 0),
    "Mod": ("other", lambda a, b: a % b if b else 0),
    "Min": ("select", min),
    "Max": ("select", max),
    "LShift": ("bit", lambda a, b: a << max(b, 0)),
    "RShift": ("bit", lambda a, b: a >> max(b, 0)),
    "BitwiseAnd": ("bit", operator.and_),
    "BitwiseOr": ("bit", operator.or_),
    "BitwiseXor": ("bit", operator.xor),
    "And": ("bit", lambda a, b: bool(a and b)),
    "Or": ("bit", lambda a, b: bool(a or b)),
    "LT": ("compare", operator.lt),
    "LE": ("compare", operator.le),
    "GT": ("compare", operator.gt),
    "GE": ("compare", operator.ge),
    "EQ": ("compare", operator.eq),
    "NE": ("compare", operator.ne),
}
"""Binary expressions: the kind of operation that they count as, and their value."""

_BITS = ("bitwise", "shift", "popcount", "clz", "ctz")
_FREE = ("reinterpret", "likely", "exact")
"""Calls that count as bit operations, by prefix, and calls that do not count."""

_EXPONENTIAL = {"multiply": 7, "add": 8, "bit": 3, "select": 2}
"""Operations of an exponential, besides one multiplication."""

_CONSTANT = Value(0, {}, None)


@dataclass
class Expressions:
    """Evaluates the expressions of statements in order."""

    sizes: Mapping[str, int]  # values of symbolic sizes, by name; others count as 1
    # Values of loop variables and bound variables, by their hash
    variables: dict[int, Value] = field(default_factory=dict)
    vector: bool = False  # whether the statement is in a vectorized loop
    # The statement's operations on values from memory, by kind
    operations: dict[str, float] = field(default_factory=dict)
    # Its accesses; repeated loads occur once
    addresses: list[Address] = field(default_factory=list)
    _known: dict[Any, Value] = field(default_factory=dict)
    _layouts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _codes: int = 0

    def start(self) -> None:
        """Start a new statement."""
        self.operations, self.addresses, self._known = {}, [], {}

    def value(self, node: Any) -> Value:
        """Evaluate an expression; count its operations on data, and record its accesses."""
        kind = type(node).__name__
        if kind == "IntImm":
            return self._coded((kind, int(node.value)), lambda: (int(node.value), {}, None))
        if kind == "Var":
            known = self.variables.get(hash(node))
            if known is not None:
                return known
            return self._coded((kind, hash(node)), lambda: (self.sizes.get(str(node.name), 1), {}, None))
        if kind in _BINARY:
            return self._computed(kind, *_BINARY[kind], node.a, node.b)
        if kind == "TensorLoad":
            return self.access(node.source, node.indices)
        if kind == "Call":
            return self._call(node)
        if kind == "Cast":
            floats = "float" in str(node.ty.dtype) or "float" in str(node.value.ty.dtype)
            return self._computed(f"Cast {node.ty.dtype}", "convert" if floats else "", int, node.value)
        if kind == "Select":
            parts = node.condition, node.true_value, node.false_value
            return self._computed(kind, "select", _select, *parts)
        if kind == "Not":
            return self._computed(kind, "bit", operator.not_, node.a)
        if kind == "BitwiseNot":
            return self._computed(kind, "bit", operator.invert, node.a)
        return _CONSTANT

    def variable(self, node: Any, first: int, loop: int) -> None:
        """Define a variable that counts a loop's iterations from `first`."""
        self._codes += 1
        self.variables[hash(node)] = Value(first, {loop: 1}, None, self._codes)

    def access(
        self,
        buffer: Any,
        indices: Sequence[Any],
        offset: Value = _CONSTANT,
        entries: int = 1,
        store: bool = False,
    ) -> Value:
        """Record an access to the element at some indices.

        `offset`: offset of the accessed element from it, less than `entries`.
        """
        values = [self.value(node) for node in indices]
        key = hash(buffer), offset.code, store, *(value.code for value in values)
        return self._coded(key, lambda: self._accessed(buffer, values, offset, entries, store))

    def _accessed(
        self, buffer: Any, indices: Sequence[Value], offset: Value, entries: int, store: bool
    ) -> tuple[int, dict[int, int], frozenset[int]]:
        layout = self._layout(buffer)
        first, steps, data = offset.first, dict(offset.steps), offset.data
        span = entries if data is not None else 1
        for index, (size, stride) in zip(indices, layout, strict=True):
            first += index.first * stride
            for loop, step in index.steps.items():
                steps[loop] = steps.get(loop, 0) + step * stride
            if index.data is not None:
                span += (size - 1) * stride
                data = index.data | (data or frozenset())
        if layout:
            span = min(span, layout[0][0] * layout[0][1])
        self.addresses.append(Address(buffer, Value(first, steps, data), span, store))
        return 0, {}, frozenset(loop for loop, step in steps.items() if step) | (data or frozenset())

    def _layout(self, buffer: Any) -> list[tuple[int, int]]:
        """Return the size and stride of each dimension of a buffer."""
        key = hash(buffer)
        if key not in self._layouts:
            layout: list[tuple[int, int]] = []
            apart = 1
            for node in reversed(list(buffer.shape)):
                size = max(self.value(node).first, 1)
                layout.insert(0, (size, apart))
                apart *= size
            self._layouts[key] = layout
        return self._layouts[key]

    def _call(self, node: Any) -> Value:
        name = str(getattr(node.op, "name", ""))
        if name == OPERATOR:
            return self._lookup(*node.args)
        base = name.rpartition(".")[2]
        if name == EXPONENTIAL:
            return self._exponential(*node.args)
        if base == "if_then_else":
            return self._computed(base, "select", _select, *node.args)
        counted = "bit" if base.startswith(_BITS) else "" if base in _FREE else "other"
        return self._computed(base, counted, lambda *_: 0, *node.args)

    def _exponential(self, power: Any) -> Value:
        """Count the operations of `hbtvm.compiler.lowering.exponentials`."""
        known = sum(self.operations.values())
        value = self._computed(EXPONENTIAL, "multiply", lambda *_: 0, power)
        if sum(self.operations.values()) > known:  # a new expression
            for kind, count in _EXPONENTIAL.items():
                self._count(kind, count)
        return value

    def _lookup(self, load: Any, index: Any, entries: Any, method: Any) -> Value:
        """Evaluate a lookup by `hbtvm.strategies.intrinsics.lookup.lookup`."""
        offset, count, chosen = self.value(index), int(entries), METHODS[int(method)]
        known = len(self.addresses)
        value = self.access(load.source, load.indices, offset, count)
        if not self.vector or known == len(self.addresses):
            return value
        if chosen == "scalar":  # extract indices from a vector, and insert results
            self._count("convert", 2)
        elif chosen == "gather":
            self._count("other")
        else:
            self._count("select", -(-count * element_bytes(load.source) // REGISTER))
        return value

    def _computed(self, kind: str, counted: str, compute: Callable[..., int], *operands: Any) -> Value:
        """Compute at all points. Expressions of loop variables only are addressing, and not counted."""
        values = [self.value(node) for node in operands]

        def make() -> tuple[int, dict[int, int], frozenset[int] | None]:
            first = int(compute(*(value.first for value in values)))
            loops = {loop for value in values for loop in value.steps}
            steps = {
                loop: int(compute(*(value.first + value.steps.get(loop, 0) for value in values))) - first
                for loop in loops
            }
            read = [value.data for value in values if value.data is not None]
            if read and counted:
                self._count(counted)
            return first, steps, frozenset().union(*read) if read else None

        return self._coded((kind, *(value.code for value in values)), make)

    def _coded(
        self, key: Any, make: Callable[[], tuple[int, dict[int, int], frozenset[int] | None]]
    ) -> Value:
        """Return the statement's value with this key, created if necessary."""
        if key not in self._known:
            self._codes += 1
            self._known[key] = Value(*make(), self._codes)
        return self._known[key]

    def _count(self, kind: str, times: float = 1) -> None:
        self.operations[kind] = self.operations.get(kind, 0) + times


def element_bytes(buffer: Any) -> int:
    """Return the bytes of a buffer's element."""
    return int(tvm_ffi.dtype(str(buffer.dtype)).itemsize)


def _select(condition: int, chosen: int, other: int) -> int:
    return chosen if condition else other
