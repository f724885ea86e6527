"""Tables of leaf states and of products, and products moved to children: the same states as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.errors import UnsupportedModel
from hbtvm.recursive import known
from hbtvm.recursive.cell import Cell
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.strategies.recursive import normalise
from hbtvm.strategies.recursive.leaf_states import bytes_of, number_of, tabulated
from hbtvm.strategies.recursive.levels import classes_of
from hbtvm.strategies.recursive.moved_products import widened, with_products
from hbtvm.strategies.recursive.plan import facts_of
from tests.normal_forms import compare
from tests.recursive.random_cells import random_cell, random_structures

NAMES = [name for name in known.CELLS if name != "mv_rnn"]


def leaves(count: int, **inputs: np.ndarray) -> Structures:
    """As many structures of one node."""
    return Structures(np.arange(count + 1), np.zeros(count + 1, np.int32), np.zeros(0, np.int32), inputs)


def products(cell: Cell) -> int:
    """How many products with one operand a node with children computes."""
    return sum(value.op == "matmul" for value in facts_of(cell).values)


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_leaf_states(name: str) -> None:
    cell = known.example(name, 5, vocabulary=9)
    inner, leaf = facts_of(cell), facts_of(cell, childless=True)
    table = tabulated(leaf)
    optional = cell.inputs["word"].optional
    assert number_of(leaf) == ("word", cell.inputs["word"])
    assert [len(array) for array in table.weights.values()] == [9 + optional] * len(table.weights)
    assert {table.values[number].op for number in table.states.values()} == {"embed"}
    assert bytes_of(leaf) == (9 + 1) * 16 * len(cell.states) * 4
    numbers = np.append(np.arange(9), [-1] * optional)
    compare(cell, leaves(len(numbers), word=numbers), inner, table)


def test_leaves_of_two_inputs_have_no_table() -> None:
    leaf = facts_of(known.example("mv_rnn", 3, vocabulary=4), childless=True)
    assert number_of(leaf) is None
    assert bytes_of(leaf) == 0


@pytest.mark.parametrize("seed", range(60))
def test_tables_of_random_cells(seed: int) -> None:
    cell = random_cell(seed)
    inner, leaf = facts_of(cell), facts_of(cell, childless=True)
    found, inputs = number_of(leaf), {value.op for value in leaf.values} & {"embed", "input"}
    if found is None:
        assert inputs != {"embed"} or "M" in cell.states
        return
    assert inputs == {"embed"}
    compare(cell, random_structures(cell, seed), inner, tabulated(leaf))


@pytest.mark.parametrize("seed", range(60))
def test_random_cells_compute_the_same(seed: int) -> None:
    cell = random_cell(seed)
    structures = random_structures(cell, seed)
    inner, leaf = facts_of(cell), facts_of(cell, childless=True)
    compare(cell, structures, inner, leaf)
    for each_only in (False, True):
        moved = with_products(inner, leaf, each_only)
        if moved is None:
            continue
        assert each_only <= (cell.children is None)
        compare(cell, structures, moved.inner, moved.leaf)
        first = None if each_only else moved.first
        compare(cell, structures, widened(inner, moved.leaf), moved.leaf, first)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_classes_of_random_cells(seed: int) -> None:
    cell = random_cell(seed)
    try:
        classes = classes_of(cell)
    except UnsupportedModel:
        assert cell.children is None
        return
    structures = random_structures(cell, seed, count=5)
    compare(cell, structures, classes.inner, classes.leaf)
    if classes.table is not None:
        compare(cell, structures, classes.inner, classes.table, classes.first)


@pytest.mark.parametrize("name", known.CELLS)
def test_classes_of_known_cells(name: str) -> None:
    cell = known.example(name, 6, vocabulary=9)
    classes = classes_of(cell)
    structures = random_structures(cell, 0, count=5)
    assert (classes.table is None) == (name == "mv_rnn")
    assert (classes.moved is None) == (name == "mv_rnn")
    compare(cell, structures, classes.inner, classes.leaf)
    if classes.moved is not None:
        compare(cell, structures, classes.moved.inner, classes.moved.leaf)
        compare(cell, structures, classes.inner, classes.table, classes.first)


def test_tables_of_products_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = known.example("tree_lstm", 8, vocabulary=100)
    size = 4 * 32 * 100  # four gates, each of whose products is a part of one with 32 rows
    monkeypatch.setattr(normalise, "PRODUCT_BYTES", size)
    with_tables = products(cell)
    assert with_tables == 3 + 2  # i, o and u of the sum of states; f of each child
    monkeypatch.setattr(normalise, "PRODUCT_BYTES", size - 1)
    assert products(cell) == with_tables + 4


def test_what_is_moved() -> None:
    cell = known.example("tree_lstm", 8)
    inner, leaf = facts_of(cell), facts_of(cell, childless=True)
    moved = with_products(inner, leaf)
    assert moved is not None
    assert len(moved.inner.offsets) == 2 + 4  # i, f, o and u of h
    assert (moved.inner.width, moved.inner.offsets) == (16 * 6, moved.leaf.offsets)
    # Whose children's products are read, need none of their own.
    assert not [value for value in moved.first.values if value.op == "matmul"]
    assert with_products(inner, leaf, each_only=True) is None
    any_number = known.example("tree_lstm", 8, children=None)
    inner, leaf = facts_of(any_number), facts_of(any_number, childless=True)
    each = with_products(inner, leaf, each_only=True)
    assert each is not None and len(each.inner.offsets) == 2 + 1  # f alone


def test_states_of_leaves_that_are_all_alike() -> None:
    @rec.cell(
        children=2, state={"h": 5, "c": 5, "d": 3}, inputs={"word": rec.embedding("words", optional=True)}
    )
    def alike(node: Any, w: Any) -> Any:
        own = rec.tanh(w.U @ rec.total(node.children.c) + node.word)
        return {"h": own, "c": own + w.b, "d": own[1:4] + rec.total(node.children.d)}

    @alike.leaf
    def _leaf(node: Any, w: Any) -> Any:
        return {"h": node.word, "c": w.b, "d": node.word[:3] * 0.0}

    rng = np.random.default_rng(0)
    shapes = {"words": (3000, 5), "U": (5, 5), "b": (5,)}
    cell = alike.bind({name: rng.normal(size=shape) for name, shape in shapes.items()})
    inner, table = facts_of(cell), tabulated(facts_of(cell, childless=True))
    assert {len(array) for array in table.weights.values()} == {3001}
    for seed in range(5):
        compare(cell, random_structures(cell, seed), inner, table)
