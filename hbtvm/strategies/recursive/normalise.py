"""Normal form of a cell for kernels: every product has a constant on its left and one vector on its right.

- Each child of a fixed number has its own values; where a term of a sum over children does not vanish for a
  child that is not there, it is multiplied by whether it is (`THERE`).
- A part of a product is a product of a part: gates of one product become products of one operand, which
  kernels compute side by side.
- A product with the row that a number picks is the row of a table of products.
- A product of several vectors behind each other is a sum of products.
- A sum over children of products with one constant is a product of a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hbtvm.recursive.cell import BINARY, UNARY, Cell, Shape, Value
from hbtvm.strategies.recursive.values import THERE, Specialised, Values, vanishes

POINTWISE = (*UNARY, *BINARY)

PRODUCT_BYTES = 1 << 24
"""Largest table that replaces a product of a constant and the row that a number picks of another."""


def normalised(
    cell: Cell, outputs: Mapping[str, int], childless: bool = False
) -> tuple[Values, dict[str, int]]:
    """Return a cell's values in normal form, and the number of each output among them.

    `childless`: whether they are for nodes without children: what is zero there is left out (Cortex's
        specialisation).
    """
    made = _Normal(cell, childless)
    found = {name: made.value(number) for name, number in outputs.items()}
    return _only(made.made, found)


def _only(values: Values, outputs: dict[str, int]) -> tuple[Values, dict[str, int]]:
    """Without what no output needs."""
    needed = set(outputs.values())
    for number in range(len(values.list) - 1, -1, -1):
        if number in needed:
            needed.update(values.list[number].of)
    order = sorted(needed)
    new = {old: i for i, old in enumerate(order)}
    kept = Values()
    for old in order:
        value = values.list[old]
        if value.op in ("weight", "embed"):
            value = replace(value, name=kept.named(values.weights[value.name]))
        kept.list.append(replace(value, of=tuple(new[one] for one in value.of)))
    return kept, {name: new[number] for name, number in outputs.items()}


class _Normal:
    def __init__(self, cell: Cell, childless: bool) -> None:
        self.cell, self.childless = cell, childless
        self.made = Specialised() if childless else Values()
        self._memo: dict[tuple[int, int | None], int] = {}

    def value(self, number: int, place: int | None = None) -> int:
        """The normal form of a cell's value; of one per child, that of the child in a place."""
        value = self.cell.values[number]
        key = (number, place if value.per_child else None)
        if key not in self._memo:
            self._memo[key] = self._made(value, key[1])
        return self._memo[key]

    def _made(self, value: Value, place: int | None) -> int:
        made, cell = self.made, self.cell
        if value.op == "weight":
            return made.weight(cell.weights[value.name])
        if value.op == "embed":
            source = value.name
            number = next(iter(value.of), None)
            assert number is None
            name = made.named(cell.weights[source])
            return made.add("embed", shape=value.shape, name=name, start=value.start)
        if self.childless and value.op in ("child", "children", "total", "most"):
            return made.add("constant", shape=value.shape)
        if value.op == "children" and place is not None:
            return made.add("child", shape=value.shape, name=value.name, start=place)
        if value.op in ("total", "most") and cell.children is not None:
            return self._over_children(value, cell.children)
        of = [self.value(one, place) for one in value.of]
        per_child = value.per_child and place is None
        if value.op == "div" and value.per_child and place is not None:
            of[1] = self._divisor(of[1], place)
        if value.op == "matmul":
            return self._product(of, value.shape, per_child)
        if value.op == "total":
            return self._total(of[0], value.shape)
        if value.op == "slice":
            return self._slice(of[0], value.start, value.stop)
        if value.op == "concat":
            return self._concat(of, value.shape, per_child)
        return made.add(
            value.op,
            of,
            value.shape,
            per_child=per_child,
            name=value.name,
            start=value.start,
            stop=value.stop,
            constant=value.constant,
        )

    def _divisor(self, number: int, place: int) -> int:
        """A divisor of a child's values; 1 where there is no child, since it may be zero for zero states."""
        made, divisor = self.made, self.made.list[number]
        if divisor.op == "constant" and divisor.constant != 0:
            return number
        there, one = made.add(THERE, start=place), made.add("constant", constant=1.0)
        kept = made.add("mul", (there, number), divisor.shape)
        return made.add("add", (kept, made.add("sub", (one, there))), divisor.shape)

    def _total(self, term: int, shape: Shape) -> int:
        """A sum over any number of children."""
        made = self.made
        value = made.list[term]
        if value.op == "matmul" and made.list[value.of[0]].op == "weight" and value.per_child:
            weight, each = value.of
            return made.add("matmul", (weight, self._total(each, made.list[each].shape)), shape)
        return made.add("total", (term,), shape)

    def _over_children(self, value: Value, places: int) -> int:
        """A sum or maximum over a fixed number of children."""
        made, shape = self.made, value.shape
        terms = [self.value(value.of[0], place) for place in range(places)]
        if not self.cell.values[value.of[0]].per_child:
            terms = [terms[0]] * places
        there = [made.add(THERE, start=place) for place in range(places)]
        if value.op == "total":
            return self._sum(terms, there, shape)
        # Those that are not there are as low as none is, and nobody there gives zero.
        low = made.add("constant", constant=-3.0e38)
        one = made.add("constant", constant=1.0)
        lowered = [
            made.add(
                "add",
                (
                    made.add("mul", (a, b), shape),
                    made.add("mul", (made.add("sub", (one, a)), low)),
                ),
                shape,
            )
            for a, b in zip(there, terms, strict=True)
        ]
        most = self._chain("max", lowered, shape)
        return made.add("mul", (self._chain("max", there, ()), most), shape)

    def _sum(self, terms: Sequence[int], there: Sequence[int], shape: Shape) -> int:
        """A sum of a term of each place, where there is a child."""
        made = self.made
        values = [made.list[one] for one in terms]
        products = all(one.op == "matmul" and made.list[one.of[0]].op == "weight" for one in values)
        if products and len({one.of[0] for one in values}) == 1:
            (weight, first), *_ = (one.of for one in values)
            of = self._sum([one.of[1] for one in values], there, made.list[first].shape)
            return made.add("matmul", (weight, of), shape)
        if not self._vanishes(terms):
            terms = [made.add("mul", (a, b), shape) for a, b in zip(there, terms, strict=True)]
        return self._chain("add", terms, shape)

    def _chain(self, op: str, terms: Sequence[int], shape: Shape) -> int:
        result = terms[0]
        for term in terms[1:]:
            result = self.made.add(op, (result, term), shape)
        return result

    def _vanishes(self, terms: Sequence[int]) -> bool:
        """Whether the term of each place is zero where there is no child."""
        return all(vanishes(self.made.list, term, place) for place, term in enumerate(terms))

    def _product(self, of: Sequence[int], shape: Shape, per_child: bool) -> int:
        made = self.made
        left, right = (made.list[one] for one in of)
        if left.op == "weight" and right.op == "concat" and len(shape) == 1:
            array, at, terms = made.weights[left.name], 0, []
            for part in right.of:
                width = made.list[part].shape[0]
                weight = made.weight(array[:, at : at + width])
                terms.append(made.add("matmul", (weight, part), shape, per_child=per_child))
                at += width
            result = terms[0]
            for term in terms[1:]:
                result = made.add("add", (result, term), shape, per_child=per_child)
            return result
        if left.op == "weight" and right.op == "embed" and len(shape) == 1:
            table, constants = made.weights[right.name], made.weights[left.name]
            if 4 * len(table) * len(constants) <= PRODUCT_BYTES:
                products = table.astype(np.float64) @ constants.astype(np.float64).T
                name = made.named(products.astype(np.float32))
                return made.add("embed", shape=shape, name=name, start=right.start)
        return made.add("matmul", of, shape, per_child=per_child)

    def _concat(self, of: Sequence[int], shape: Shape, per_child: bool) -> int:
        made = self.made
        parts: list[int] = []
        for one in of:
            parts += made.list[one].of if made.list[one].op == "concat" else [one]
        if len(parts) == 1:
            return parts[0]
        return made.add("concat", parts, shape, per_child=per_child)

    def _slice(self, number: int, start: int, stop: int) -> int:
        made = self.made
        value = made.list[number]
        if (start, stop) == (0, value.shape[0]):
            return number
        shape = (stop - start, *value.shape[1:])
        if value.op == "constant":
            return made.add("constant", shape=shape, constant=value.constant)
        if value.op == "weight":
            return made.weight(made.weights[value.name][start:stop])
        if value.op == "embed":
            name = made.named(made.weights[value.name][:, start:stop])
            return made.add("embed", shape=shape, name=name, start=value.start)
        if value.op == "matmul" and made.list[value.of[0]].op == "weight":
            weight = self._slice(value.of[0], start, stop)
            return made.add("matmul", (weight, value.of[1]), shape, per_child=value.per_child)
        if value.op == "slice":
            return self._slice(value.of[0], value.start + start, value.start + stop)
        if value.op in POINTWISE or value.op in ("total", "most"):
            of = [self._slice(one, start, stop) if made.list[one].shape else one for one in value.of]
            return made.add(value.op, of, shape, per_child=value.per_child)
        if value.op == "concat":
            at, parts = 0, []
            for part in value.of:
                width = made.list[part].shape[0]
                first, last = max(start - at, 0), min(stop - at, width)
                if first < last:
                    parts.append(self._slice(part, first, last))
                at += width
            return self._concat(parts, shape, value.per_child)
        return made.add("slice", (number,), shape, per_child=value.per_child, start=start, stop=stop)
