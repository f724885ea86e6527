"""Nodes all of whose children are leaves: products of constants with states in a table are in it, too.

Where states of leaves are looked up, so is any product of a constant with one of them: a column of the table
beside the states. What is linear in the children's states needs no product then: constants propagate through
a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hbtvm.recursive.cell import Value
from hbtvm.strategies.recursive.nests import flat
from hbtvm.strategies.recursive.normalise import Values
from hbtvm.strategies.recursive.plan import Facts, with_values

_PRODUCT = "{} of {}"
"""Name of a state that is a product of a constant, by its name, with a state."""


def with_products(inner: Facts, leaf: Facts) -> tuple[Facts, Facts] | None:
    """Return the facts of nodes whose children are leaves, and of leaves that have products for them.

    Both have wider rows of states than they had. None if no product of `inner` is linear in its children's
    states.
    """
    made = _First(inner)
    states = {place: made.value(number) for place, number in inner.states.items()}
    if not made.products:
        return None
    offsets, width = dict(inner.offsets), inner.width
    leaf_values = _copied(leaf)
    leaf_states = dict(leaf.states)
    for (weight, state), name in made.products.items():
        array = inner.weights[weight]
        source = leaf.states[leaf.offsets[state]]
        constant = leaf_values.weight(array)
        product = leaf_values.add("matmul", (constant, source), (len(array),))
        leaf_states[width] = product
        offsets[name] = width
        width += flat((len(array),))
    wide = {"offsets": offsets, "width": width}
    return with_values(inner, made.made, states, **wide), with_values(leaf, leaf_values, leaf_states, **wide)


def widened(facts: Facts, other: Facts) -> Facts:
    """Return facts whose rows of states are those of others."""
    values = _copied(facts)
    return with_values(facts, values, facts.states, offsets=other.offsets, width=other.width)


def _copied(facts: Facts) -> Values:
    values = Values()
    for value in facts.values:
        if value.op in ("weight", "embed"):
            value = replace(value, name=values.named(facts.weights[value.name]))
        values.list.append(value)
    return values


class _First:
    """Rewrites values so that products linear in children's states are read from the children."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
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
        if value.op == "matmul" and facts.values[value.of[0]].op == "weight":
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
            name = self.products.setdefault(key, _PRODUCT.format(*key))
            per_child = source.op == "children"
            number = made.add(source.op, (), shape, per_child=per_child, name=name, start=source.start)
            if over:
                number = made.add("total", (number,), shape)
            result = number if result is None else made.add("add", (result, number), shape,
                                                            per_child=value.per_child)  # fmt: skip
        assert result is not None
        return result
