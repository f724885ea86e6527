"""Products of constants and children's states, made where these states are.

A node then has columns behind its states for such products, which its parents read: what is linear in the
children's states needs no product any more.

- Where states of leaves are looked up in a table, their products are columns of the table, and nodes all of
  whose children are leaves compute none: constants propagate through a level.
- Where all nodes make them, the recursion is refactored (Cortex, MLSys'21, section 5.2): the last products of
  a node and the first of its parent are computed together. Products of each of any number of children are
  possible in this form alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hbtvm.recursive.cell import Value
from hbtvm.strategies.recursive.nests import flat
from hbtvm.strategies.recursive.plan import Facts, with_values
from hbtvm.strategies.recursive.values import Values

_PRODUCT = "{} of {}"  # name of a state that is a product of a constant, by its name, with a state


@dataclass(frozen=True)
class Moved:
    """A cell whose products are made with the states, by class of nodes; rows are wider than before."""

    first: Facts  # nodes that read products and make none, whose parents must not read any
    # `inner`, `leaf`: nodes with and without children, products made
    inner: Facts
    leaf: Facts


def with_products(inner: Facts, leaf: Facts, each_only: bool = False) -> Moved | None:
    """Return the facts of nodes where products are made with the states.

    None if no product of `inner` is linear in its children's states.

    `each_only`: whether only products of each of any number of children are moved.
    """
    made = _Moving(inner, each_only)
    states = {place: made.value(number) for place, number in inner.states.items()}
    if not made.products:
        return None
    offsets, width = dict(inner.offsets), inner.width
    own = (made.made, dict(states)), (_copied(leaf), dict(leaf.states))
    first = _copied(inner, made.made)
    for (weight, state), name in made.products.items():
        array = inner.weights[weight]
        for values, places in own:
            product = values.add(
                "matmul", (values.weight(array), places[inner.offsets[state]]), (len(array),)
            )
            places[width] = product
        offsets[name] = width
        width += flat((len(array),))
    (inner_values, inner_states), (leaf_values, leaf_states) = own
    return Moved(
        with_values(inner, first, states, offsets=offsets, width=width),
        with_values(inner, inner_values, inner_states, offsets=offsets, width=width),
        with_values(leaf, leaf_values, leaf_states, offsets=offsets, width=width),
    )


def widened(facts: Facts, other: Facts) -> Facts:
    """Return facts whose rows of states are those of others."""
    values = _copied(facts)
    return with_values(facts, values, facts.states, offsets=other.offsets, width=other.width)


def _copied(facts: Facts, given: Values | None = None) -> Values:
    """Values of a cell, or others (`given`), anew."""
    known, weights = (facts.values, facts.weights) if given is None else (given.list, given.weights)
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
        self.made = Values()
        self.products: dict[tuple[str, str], str] = {}
        self._memo: dict[int, int] = {}

    def value(self, number: int) -> int:
        """The number of a value among the new ones."""
        if number not in self._memo:
            self._memo[number] = self._value(self.facts.values[number])
        return self._memo[number]

    def _value(self, value: Value) -> int:
        made, facts = self.made, self.facts
        moves = value.per_child or not self._each_only
        if value.op == "matmul" and moves and facts.values[value.of[0]].op == "weight":
            terms = self._terms(value.of[1])
            if terms is not None:
                return self._looked_up(facts.values[value.of[0]].name, terms, value)
        name = value.name
        if value.op in ("weight", "embed"):
            name = made.named(facts.weights[value.name])
        return made.add(
            value.op,
            [self.value(one) for one in value.of],
            value.shape,
            per_child=value.per_child,
            name=name,
            start=value.start,
            stop=value.stop,
            constant=value.constant,
        )

    def _terms(self, number: int) -> list[Value] | None:
        """The children's states whose sum a value is; None if it is another function of them."""
        value = self.facts.values[number]
        if value.op in ("child", "children") and len(value.shape) == 1:
            return [value]
        if value.op == "total":
            below = self._terms(value.of[0])
            return [value] if below is not None and len(below) == 1 and below[0].op == "children" else None
        if value.op == "add":
            terms: list[Value] = []
            for one in value.of:
                found = self._terms(one)
                if found is None:
                    return None
                terms += found
            return terms
        return None

    def _looked_up(self, weight: str, terms: Sequence[Value], value: Value) -> int:
        made, shape = self.made, value.shape
        result: int | None = None
        for term in terms:
            over = term.op == "total"
            source = self.facts.values[term.of[0]] if over else term
            key = weight, source.name
            name = self._named(key)
            each = source.op == "children"
            number = made.add(source.op, (), shape, per_child=each, name=name, start=source.start)
            if over:
                number = made.add("total", (number,), shape)
            if result is not None:
                number = made.add("add", (result, number), shape, per_child=value.per_child)
            result = number
        assert result is not None
        return result

    def _named(self, key: tuple[str, str]) -> str:
        """The name of a product with a state, new or known."""
        if key not in self.products:
            name = _PRODUCT.format(*key)
            while name in self.facts.offsets or name in self.products.values():
                name += "'"
            self.products[key] = name
        return self.products[key]
