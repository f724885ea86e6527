"""Normal form of a cell for kernels: every product has a constant on its left and one vector on its right.

- Each of a fixed number of children has separate values; a term of a sum over children that does not vanish
  for an absent child is multiplied by `THERE`.
- A slice of a product becomes a product of a slice: gates of one product become products of one operand,
  which kernels compute side by side.
- A product with an embedding becomes an embedding of products.
- A product with a concatenation becomes a sum of products.
- A sum over children of products with one constant becomes a product of a sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hbtvm.recursive.cell import BINARY, UNARY, Cell, Shape, Value
from hbtvm.strategies.recursive.values import THERE, Specialised, Values, vanishes

POINTWISE = (*UNARY, *BINARY)

PRODUCT_BYTES = 1 << 24
"""Largest table that replaces a product of a constant and an embedding."""


def normalised(
    cell: Cell, outputs: Mapping[str, int], childless: bool = False
) -> tuple[Values, dict[str, int]]:
    """Return a cell's values in normal form, and the number of each output among them.

    `childless`: whether they are for nodes without children, and omit zeros (Cortex's specialisation).
    """
    normal = _Normal(cell, childless)
    numbers = {name: normal.value(number) for name, number in outputs.items()}
    return _only(normal.result, numbers)


def _only(values: Values, outputs: dict[str, int]) -> tuple[Values, dict[str, int]]:
    """Remove values that no output needs."""
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
        kept.list.append(replace(value, of=tuple(new[operand] for operand in value.of)))
    return kept, {name: new[number] for name, number in outputs.items()}


class _Normal:
    def __init__(self, cell: Cell, childless: bool) -> None:
        self.cell, self.childless = cell, childless
        self.result = Specialised() if childless else Values()
        self._memo: dict[tuple[int, int | None], int] = {}

    def value(self, number: int, place: int | None = None) -> int:
        """Return the normal form of a cell's value; of a per-child value, that of the child in a place."""
        value = self.cell.values[number]
        key = (number, place if value.per_child else None)
        if key not in self._memo:
            self._memo[key] = self._normal(value, key[1])
        return self._memo[key]

    def _normal(self, value: Value, place: int | None) -> int:
        values, cell = self.result, self.cell
        if value.op == "weight":
            return values.weight(cell.weights[value.name])
        if value.op == "embed":
            source = value.name
            number = next(iter(value.of), None)
            assert number is None
            name = values.named(cell.weights[source])
            return values.add("embed", shape=value.shape, name=name, start=value.start)
        if self.childless and value.op in ("child", "children", "total", "most"):
            return values.add("constant", shape=value.shape)
        if value.op == "children" and place is not None:
            return values.add("child", shape=value.shape, name=value.name, start=place)
        if value.op in ("total", "most") and cell.children is not None:
            return self._over_children(value, cell.children)
        of = [self.value(operand, place) for operand in value.of]
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
        return values.add(
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
        """Replace a child's divisor by 1 if the child is absent: it may be zero for zero states."""
        values, divisor = self.result, self.result.list[number]
        if divisor.op == "constant" and divisor.constant != 0:
            return number
        exists, one = values.add(THERE, start=place), values.add("constant", constant=1.0)
        kept = values.add("mul", (exists, number), divisor.shape)
        return values.add("add", (kept, values.add("sub", (one, exists))), divisor.shape)

    def _total(self, term: int, shape: Shape) -> int:
        """Return a sum over any number of children."""
        values = self.result
        product = values.list[term]
        if product.op == "matmul" and values.list[product.of[0]].op == "weight" and product.per_child:
            weight, factor = product.of
            return values.add("matmul", (weight, self._total(factor, values.list[factor].shape)), shape)
        return values.add("total", (term,), shape)

    def _over_children(self, value: Value, places: int) -> int:
        """Return a sum or maximum over a fixed number of children."""
        values, shape = self.result, value.shape
        terms = [self.value(value.of[0], place) for place in range(places)]
        if not self.cell.values[value.of[0]].per_child:
            terms = [terms[0]] * places
        exists = [values.add(THERE, start=place) for place in range(places)]
        if value.op == "total":
            return self._sum(terms, exists, shape)
        # Absent children count as -3e38; no child gives 0.
        low = values.add("constant", constant=-3.0e38)
        one = values.add("constant", constant=1.0)
        lowered = [
            values.add(
                "add",
                (
                    values.add("mul", (a, b), shape),
                    values.add("mul", (values.add("sub", (one, a)), low)),
                ),
                shape,
            )
            for a, b in zip(exists, terms, strict=True)
        ]
        most = self._chain("max", lowered, shape)
        return values.add("mul", (self._chain("max", exists, ()), most), shape)

    def _sum(self, terms: Sequence[int], exists: Sequence[int], shape: Shape) -> int:
        """Return the sum of the terms of all children that exist."""
        result = self.result
        values = [result.list[value] for value in terms]
        products = all(value.op == "matmul" and result.list[value.of[0]].op == "weight" for value in values)
        if products and len({value.of[0] for value in values}) == 1:
            (weight, first), *_ = (value.of for value in values)
            of = self._sum([value.of[1] for value in values], exists, result.list[first].shape)
            return result.add("matmul", (weight, of), shape)
        if not self._vanishes(terms):
            terms = [result.add("mul", (a, b), shape) for a, b in zip(exists, terms, strict=True)]
        return self._chain("add", terms, shape)

    def _chain(self, op: str, terms: Sequence[int], shape: Shape) -> int:
        result = terms[0]
        for term in terms[1:]:
            result = self.result.add(op, (result, term), shape)
        return result

    def _vanishes(self, terms: Sequence[int]) -> bool:
        """Whether each place's term is zero for an absent child."""
        return all(vanishes(self.result.list, term, place) for place, term in enumerate(terms))

    def _product(self, of: Sequence[int], shape: Shape, per_child: bool) -> int:
        values = self.result
        left, right = (values.list[operand] for operand in of)
        if left.op == "weight" and right.op == "concat" and len(shape) == 1:
            array, at, terms = values.weights[left.name], 0, []
            for part in right.of:
                width = values.list[part].shape[0]
                weight = values.weight(array[:, at : at + width])
                terms.append(values.add("matmul", (weight, part), shape, per_child=per_child))
                at += width
            result = terms[0]
            for term in terms[1:]:
                result = values.add("add", (result, term), shape, per_child=per_child)
            return result
        if left.op == "weight" and right.op == "embed" and len(shape) == 1:
            table, constants = values.weights[right.name], values.weights[left.name]
            if 4 * len(table) * len(constants) <= PRODUCT_BYTES:
                products = table.astype(np.float64) @ constants.astype(np.float64).T
                name = values.named(products.astype(np.float32))
                return values.add("embed", shape=shape, name=name, start=right.start)
        return values.add("matmul", of, shape, per_child=per_child)

    def _concat(self, of: Sequence[int], shape: Shape, per_child: bool) -> int:
        values = self.result
        parts: list[int] = []
        for operand in of:
            parts += values.list[operand].of if values.list[operand].op == "concat" else [operand]
        if len(parts) == 1:
            return parts[0]
        return values.add("concat", parts, shape, per_child=per_child)

    def _slice(self, number: int, start: int, stop: int) -> int:
        values = self.result
        value = values.list[number]
        if (start, stop) == (0, value.shape[0]):
            return number
        shape = (stop - start, *value.shape[1:])
        if value.op == "constant":
            return values.add("constant", shape=shape, constant=value.constant)
        if value.op == "weight":
            return values.weight(values.weights[value.name][start:stop])
        if value.op == "embed":
            name = values.named(values.weights[value.name][:, start:stop])
            return values.add("embed", shape=shape, name=name, start=value.start)
        if value.op == "matmul" and values.list[value.of[0]].op == "weight":
            weight = self._slice(value.of[0], start, stop)
            return values.add("matmul", (weight, value.of[1]), shape, per_child=value.per_child)
        if value.op == "slice":
            return self._slice(value.of[0], value.start + start, value.start + stop)
        if value.op in POINTWISE or value.op in ("total", "most"):
            of = [
                self._slice(operand, start, stop) if values.list[operand].shape else operand
                for operand in value.of
            ]
            return values.add(value.op, of, shape, per_child=value.per_child)
        if value.op == "concat":
            at, parts = 0, []
            for part in value.of:
                width = values.list[part].shape[0]
                first, last = max(start - at, 0), min(stop - at, width)
                if first < last:
                    parts.append(self._slice(part, first, last))
                at += width
            return self._concat(parts, shape, value.per_child)
        return values.add("slice", (number,), shape, per_child=value.per_child, start=start, stop=stop)
