"""Products of constants and children's states, computed by the children.

A node then has columns for such products after its states, which its parents read.

- If a table holds the states of leaves, it also holds their products, and nodes whose children are all leaves
  compute none: constants propagate through a level.
- If all nodes compute them, the recursion is refactored (Cortex, MLSys'21, section 5.2): the last products of
  a node and the first of its parent are computed together. Per-child products with any number of children are
  possible only in this form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hbtvm.recursive.cell import Value
from hbtvm.strategies.recursive.nests import flat
from hbtvm.strategies.recursive.plan import Facts, with_values
from hbtvm.strategies.recursive.values import Values

_PRODUCT = "{} of {}"  # name of a state that is the product of a named constant and a named state


@dataclass(frozen=True)
class Moved:
    """A cell whose nodes compute products with their states, by class of nodes; rows are wider."""

    first: Facts  # nodes that read products and compute none, whose parents must not read any
    # `inner`, `leaf`: nodes with and without children that compute products
    inner: Facts
    leaf: Facts


def with_products(inner: Facts, leaf: Facts, each_only: bool = False) -> Moved | None:
    """Return the facts of nodes that compute products with their states.

    None if no product of `inner` is linear in its children's states.

    `each_only`: whether to move only per-child products with any number of children.
    """
    moving = _Moving(inner, each_only)
    states = {place: moving.value(number) for place, number in inner.states.items()}
    if not moving.products:
        return None
    offsets, width = dict(inner.offsets), inner.width
    classes = (moving.result, dict(states)), (_copied(leaf), dict(leaf.states))
    first = _copied(inner, moving.result)
    for (weight, state), name in moving.products.items():
        array = inner.weights[weight]
        for values, places in classes:
            product = values.add(
                "matmul", (values.weight(array), places[inner.offsets[state]]), (len(array),)
            )
            places[width] = product
        offsets[name] = width
        width += flat((len(array),))
    (inner_values, inner_states), (leaf_values, leaf_states) = classes
    return Moved(
        with_values(inner, first, states, offsets=offsets, width=width),
        with_values(inner, inner_values, inner_states, offsets=offsets, width=width),
        with_values(leaf, leaf_values, leaf_states, offsets=offsets, width=width),
    )


def widened(facts: Facts, other: Facts) -> Facts:
    """Return facts with the row layout of others."""
    values = _copied(facts)
    return with_values(facts, values, facts.states, offsets=other.offsets, width=other.width)


def _copied(facts: Facts, source: Values | None = None) -> Values:
    """Copy the values of a cell, or of `source`."""
    known, weights = (facts.values, facts.weights) if source is None else (source.list, source.weights)
    values = Values()
    for value in known:
        if value.op in ("weight", "embed"):
            value = replace(value, name=values.named(weights[value.name]))
        values.list.append(value)
    return values


class _Moving:
    """Rewrites values so that products linear in children's states are read from the children."""

    def __init__(self, facts: Facts, each_only: bool) -> None:
        self.facts, self._each_only = facts, each_only
        self.result = Values()
        self.products: dict[tuple[str, str], str] = {}
        self._memo: dict[int, int] = {}

    def value(self, number: int) -> int:
        """Return the number of a value among the new values."""
        if number not in self._memo:
            self._memo[number] = self._value(self.facts.values[number])
        return self._memo[number]

    def _value(self, value: Value) -> int:
        values, facts = self.result, self.facts
        moves = value.per_child or not self._each_only
        if value.op == "matmul" and moves and facts.values[value.of[0]].op == "weight":
            terms = self._terms(value.of[1])
            if terms is not None:
                return self._looked_up(facts.values[value.of[0]].name, terms, value)
        name = value.name
        if value.op in ("weight", "embed"):
            name = values.named(facts.weights[value.name])
        return values.add(
            value.op,
            [self.value(operand) for operand in value.of],
            value.shape,
            per_child=value.per_child,
            name=name,
            start=value.start,
            stop=value.stop,
            constant=value.constant,
        )

    def _terms(self, number: int) -> list[Value] | None:
        """Return the children's states whose sum a value is; None for other functions."""
        value = self.facts.values[number]
        if value.op in ("child", "children") and len(value.shape) == 1:
            return [value]
        if value.op == "total":
            below = self._terms(value.of[0])
            return [value] if below is not None and len(below) == 1 and below[0].op == "children" else None
        if value.op == "add":
            terms: list[Value] = []
            for operand in value.of:
                of_operand = self._terms(operand)
                if of_operand is None:
                    return None
                terms += of_operand
            return terms
        return None

    def _looked_up(self, weight: str, terms: Sequence[Value], value: Value) -> int:
        values, shape = self.result, value.shape
        result: int | None = None
        for term in terms:
            over = term.op == "total"
            source = self.facts.values[term.of[0]] if over else term
            key = weight, source.name
            name = self._named(key)
            per_child = source.op == "children"
            number = values.add(source.op, (), shape, per_child=per_child, name=name, start=source.start)
            if over:
                number = values.add("total", (number,), shape)
            if result is not None:
                number = values.add("add", (result, number), shape, per_child=value.per_child)
            result = number
        assert result is not None
        return result

    def _named(self, key: tuple[str, str]) -> str:
        """Return the name of a new or known product with a state."""
        if key not in self.products:
            name = _PRODUCT.format(*key)
            while name in self.facts.offsets or name in self.products.values():
                name += "'"
            self.products[key] = name
        return self.products[key]
