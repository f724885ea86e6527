"""Loop nests of a cell: groups of values that are computed together, panel by panel of a level's vectors.

A product needs all of its operand, so its operand is stored first. Values between products form nests: a nest
computes the products of one depth and width, and from them, in registers, all stored values of that depth:
operands of further products, values that later nests read, and states. A nest without products gathers
operands from the children's states. A matrix counts as a vector of its padded rows.

Values that are neither pointwise nor products of a constant and a vector are *whole*: products of states,
softmax, concatenations, slices. Each has a separate nest, and is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hbtvm.recursive.cell import Shape, Value
from hbtvm.runtime.recursive.entry import LANES
from hbtvm.strategies.recursive.values import THERE

_CHEAP = ("add", "sub", "mul", "neg", "relu", "max", "min", "abs")
"""Functions to recompute rather than store."""

DIRECT = ("weight", "constant", "child", "children", "input", "embed", THERE)
"""Operators whose results whole values can read from memory."""


def padded(width: int) -> int:
    """Return a vector's size in memory, in numbers."""
    return -(-width // LANES) * LANES


def flat(shape: Shape) -> int:
    """Return a value's size in memory, in numbers; each row of a matrix is padded."""
    rows = 1
    for extent in shape[:-1]:
        rows *= extent
    return rows * padded(shape[-1]) if shape else LANES


def row_starts(shape: Shape) -> int:
    """Return the stride of the first axis in memory."""
    return padded(shape[-1]) if len(shape) > 1 else 1


@dataclass
class Nest:
    """Values of one depth and width."""

    # `depth`, `width`: length of the chain of products that leads to its values, and their padded size
    depth: int
    width: int
    products: list[int] = field(default_factory=list)  # numbers of the products that it computes
    stored: list[int] = field(default_factory=list)  # numbers of the values that are stored for other nests
    states: dict[int, int] = field(default_factory=dict)  # numbers of values by place in the row of states
    whole: int | None = None  # number of the nest's whole value, if it has one


@dataclass
class Nests:
    """All nests of a cell, in the order of computation."""

    values: Sequence[Value]  # in normal form
    nests: list[Nest]
    scratch: dict[int, int]  # number of each stored value's memory

    def home(self, number: int) -> int | None:
        """Return the number of the nest that stores a value, or None."""
        return next((i for i, nest in enumerate(self.nests) if number in nest.stored), None)


def nests_of(values: Sequence[Value], states: Mapping[int, int], fused: bool = True) -> Nests:
    """Return the nests of values in normal form.

    `states`: by place in the row of states: the number of the value stored there.
    `fused`: whether nests join values; else each value has a nest, except per-child values with any number of
        children.
    """
    depths = _depths(values, fused)
    stored: set[int] = set()
    while True:
        builder = _Made(values, depths, stored, fused)
        for place, number in states.items():
            builder.nest(number).states[place] = number
            builder.require(number, builder.nest(number))
        for number in sorted(stored, reverse=True):
            builder.store(number)
        if builder.stored <= stored:
            break
        stored = builder.stored
    nests = sorted(builder.nests.values(), key=lambda nest: (nest.depth, nest.whole is None, nest.width))
    for nest in nests:
        nest.products.sort()
        nest.stored.sort()
    order = [number for nest in nests for number in nest.stored]
    return Nests(values, nests, {number: i for i, number in enumerate(order)})


def is_whole(values: Sequence[Value], number: int) -> bool:
    """Return whether a value is computed separately, from operands in memory."""
    value = values[number]
    if value.op in ("softmax", "outer", "concat"):
        return True
    if value.op not in ("matmul", "reshape", "slice"):
        return False
    source = values[value.of[0]]
    if value.op == "matmul":
        return source.op != "weight" or len(value.shape) > 1
    if value.op == "reshape":
        return not _same_places(source.shape, value.shape)
    if source.op in ("child", "children", "input"):
        return False
    # A vector read from within another must not end beyond it.
    return value.start * row_starts(source.shape) + flat(value.shape) > flat(source.shape)


def _same_places(a: Shape, b: Shape) -> bool:
    """Whether two shapes have the same layout in memory."""
    return a == b or all(shape and shape[-1] % LANES == 0 for shape in (a, b))


def operands(values: Sequence[Value], number: int) -> tuple[int, ...]:
    """Return a value's operands; a product with a concatenation reads the concatenation's operands."""
    value = values[number]
    if value.op == "matmul" and len(value.shape) > 1 and values[value.of[1]].op == "concat":
        return (value.of[0], *values[value.of[1]].of)
    return value.of


def _is_full(values: Sequence[Value], number: int) -> bool:
    """Whether a value needs all numbers of its operands, not only those at its place."""
    return values[number].op == "matmul" or is_whole(values, number)


def _depths(values: Sequence[Value], fused: bool) -> list[int]:
    depths: list[int] = []
    for number, value in enumerate(values):
        if not fused:
            depths.append(
                max((depths[operand] for operand in value.of), default=0) + (value.op not in DIRECT)
            )
            continue
        below = max((depths[operand] for operand in operands(values, number)), default=0)
        unaligned = value.op == "slice" and values[value.of[0]].op not in ("child", "children", "input")
        depths.append(below + (_is_full(values, number) or unaligned))
    return depths


class _Made:
    def __init__(self, values: Sequence[Value], depths: Sequence[int], known: set[int], fused: bool) -> None:
        self.values, self.depths, self.known, self.fused = values, depths, known, fused
        self.nests: dict[tuple[int, int, int | None], Nest] = {}
        self.stored: set[int] = set(known)
        self._seen: set[tuple[int, int]] = set()

    def nest(self, number: int) -> Nest:
        """Return the nest that computes a value."""
        whole = number if is_whole(self.values, number) else None
        alone = whole if self.fused else number
        key = (self.depths[number], flat(self.values[number].shape), alone)
        if key not in self.nests:
            self.nests[key] = Nest(*key[:2], whole=whole)
        return self.nests[key]

    def store(self, number: int) -> None:
        """Store a value for other nests."""
        nest = self.nest(number)
        self.stored.add(number)
        if number not in nest.stored:
            nest.stored.append(number)
            self.require(number, nest, top=True)

    def require(self, number: int, nest: Nest, top: bool = True) -> None:
        """Make all operands of a value available to a nest."""
        key = (number, id(nest))
        if key in self._seen:
            return
        self._seen.add(key)
        value, depth = self.values[number], self.depths[number]
        if not top and number in self.known and self.nest(number) is not nest:
            self.store(number)
            return
        if _is_full(self.values, number) or (value.op == "slice" and depth):
            if self.nest(number) is not nest:
                self.store(number)
                return
            if value.op == "matmul" and nest.whole is None and number not in nest.products:
                nest.products.append(number)
            in_memory = ("weight",) if nest.whole is None else DIRECT
            for operand in operands(self.values, number):
                if self.values[operand].op not in in_memory:
                    self.store(operand)
            return
        alone = not (self.fused or top or value.op in DIRECT or value.per_child) and value.shape
        if alone or (depth < nest.depth and depth and not self._again(number)):
            self.store(number)
            return
        for operand in value.of:
            self.require(operand, nest, top=False)

    def _again(self, number: int) -> bool:
        """Whether a nest recomputes a value of an earlier nest from a single value stored there."""
        value = self.values[number]
        if not self.fused:
            return value.per_child or not value.shape
        if value.op not in _CHEAP:
            return False
        deep = [operand for operand in value.of if self.depths[operand] == self.depths[number]]
        return len(deep) == 1
