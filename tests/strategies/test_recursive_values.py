"""What vanishes without children, in normal form: left out of sums, and never divided by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.recursive import known
from hbtvm.recursive.cell import Cell
from hbtvm.runtime.recursive.entry import LANES
from hbtvm.schedules.statements import const
from hbtvm.strategies.recursive.parameters import Parameters, Tables
from hbtvm.strategies.recursive.plan import facts_of
from hbtvm.strategies.recursive.values import THERE, vanishes
from hbtvm.strategies.recursive.vectors import Place, Vectors
from tests.normal_forms import compare, evaluated
from tests.recursive.random_cells import random_cell, random_structures


@pytest.mark.parametrize("children", [2, 3, None])
@pytest.mark.parametrize("seed", range(40))
def test_what_vanishes_is_zero(seed: int, children: int | None) -> None:
    """Of a child that is not there, while others are."""
    cell = random_cell(seed, children=children, leaf=False)
    inputs = random_structures(cell, seed, count=1, most=1).inputs
    facts, rng = facts_of(cell), np.random.default_rng(seed)
    found = {name: rng.normal(size=(2, *shape)) for name, shape in cell.states.items()}
    for states in found.values():
        states[0] = 0
    for place in range(children or 1):
        # Of any number of children, the one that is not there is one of zeros.
        places = [0, 1] if children is None else [1] * children
        places[place] = 0 if children is None else -1
        values = evaluated(facts, found, inputs, 0, places)
        for number, value in enumerate(facts.values):
            if vanishes(facts.values, number, None if children is None else place):
                own = values[number][place] if value.per_child else values[number]
                assert not np.any(own), (number, value)


@pytest.mark.parametrize("children", [2, 3])
def test_terms_of_other_children_count_for_children_that_are_there(children: int) -> None:
    @rec.cell(children=children, state={"h": 5}, inputs={"word": rec.embedding("words")})
    def beside(node: Any, w: Any) -> Any:
        h = node.children.h
        terms = rec.total(rec.tanh(h - rec.total(h))) + rec.most(h - node.children[1].h)
        return {"h": rec.tanh(node.word + terms + rec.total(w.U @ h + w.U @ node.children[0].h))}

    rng = np.random.default_rng(0)
    cell = beside.bind({"words": rng.normal(size=(7, 5)), "U": rng.normal(size=(5, 5))})
    for seed in range(5):
        compare(cell, random_structures(cell, seed), facts_of(cell), facts_of(cell, childless=True))


def test_what_vanishes_of_known_cells() -> None:
    cell = known.example("tree_lstm", 4, children=None)
    facts = facts_of(cell)
    terms = [value.of[0] for value in facts.values if value.op == "total"]
    assert terms and all(vanishes(facts.values, number) for number in terms)
    gates = [number for number, value in enumerate(facts.values) if value.op == "sigmoid" and value.per_child]
    assert gates and not any(vanishes(facts.values, number) for number in gates)
    # No sum over places asks whether there is a child.
    assert not [value for value in facts_of(known.example("tree_lstm", 4)).values if value.op == THERE]


def quotients(children: int | None) -> Cell:
    """A cell whose divisors are zero for zero states."""

    @rec.cell(children=children, state={"h": 6}, inputs={"word": rec.embedding("words", optional=True)})
    def quotients(node: Any, w: Any) -> Any:
        h = node.children.h
        shares = rec.total(h / (rec.exp(h) - 1.0) + h / (h + h))
        return {"h": rec.sigmoid(node.word) + 0.1 * shares + 0.1 * rec.most(h / rec.relu(h)) + 0.5}

    words = np.random.default_rng(0).normal(size=(7, 6))
    return quotients.bind({"words": words})


@pytest.mark.parametrize("children", [1, 3])
def test_children_that_are_not_there_divide_nothing(children: int) -> None:
    cell = quotients(children)
    inner, leaf = facts_of(cell), facts_of(cell, childless=True)
    for seed in range(5):
        compare(cell, random_structures(cell, seed), inner, leaf)


def test_divisors_that_may_be_zero_do_not_vanish() -> None:
    values = facts_of(quotients(None)).values
    found = [vanishes(values, number) for number, value in enumerate(values) if value.op == "div"]
    assert found == [False] * 3


def test_long_chains_of_values() -> None:
    @rec.cell(children=2, state={"h": 2}, inputs={"word": rec.embedding("words")})
    def chain(node: Any, w: Any) -> Any:
        h = node.children.h
        for _ in range(60):
            h = rec.tanh(h + h)
        return {"h": node.word + rec.total(h)}

    cell = chain.bind({"words": np.ones((7, 2))})
    compare(cell, random_structures(cell, 0), facts_of(cell), facts_of(cell, childless=True))


@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_padding_is_not_read_beyond_a_vector_s_end(lanes: int) -> None:
    @rec.cell(children=1, state={"h": 8}, inputs={"x": rec.vector(8)})
    def doubled(node: Any, w: Any) -> Any:
        return {"h": node.x + node.x}

    facts = facts_of(doubled.bind({}))
    (number,) = (i for i, value in enumerate(facts.values) if value.op == "input")
    for at in range(0, LANES, lanes):
        place = Place(const(0), const(0), const(at))
        vectors = Vectors(facts, Parameters(1, facts.width, 1, Tables()), place, lanes, lambda *_: None)
        vectors.of(number)
        start = vectors.statements[-1].value.indices[-1]
        assert int(start if lanes == 1 else start.base) == min(at, 8 - lanes)
