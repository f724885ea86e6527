"""Nodes without children: zeros propagated, unread gates left out, and the same states as before."""

from __future__ import annotations

import numpy as np
import pytest

from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Cell
from hbtvm.recursive.passes.leaves import leaf_cell, vanishes
from hbtvm.recursive.passes.rewriting import without_dead
from hbtvm.recursive.validate import check, needed
from tests.recursive.random_cells import random_cell, random_structures


def same_states(before: Cell, after: Cell, seed: int, tolerance: float = 1e-6) -> None:
    """Compare the states of random structures' nodes, those that `before` has."""
    structures = random_structures(before, seed)
    expected, found = reference.states(before, structures), reference.states(after, structures)
    for name in before.states:
        assert np.allclose(found[name], expected[name], atol=tolerance, rtol=tolerance), name


@pytest.mark.parametrize("seed", range(150))
def test_random_cells_compute_the_same(seed: int) -> None:
    cell = random_cell(seed)
    for rewritten in (without_dead(cell).cell, leaf_cell(cell).cell, leaf_cell(leaf_cell(cell).cell).cell):
        check(rewritten)
        same_states(cell, rewritten, seed)
    values = leaf_cell(cell).cell
    assert values.leaf is not None
    for number in needed(values.values, values.leaf.values()):
        assert values.values[number].op not in ("child", "children", "total", "most")


@pytest.mark.parametrize("name", known.CELLS)
def test_known_cells_compute_the_same(name: str) -> None:
    cell = known.example(name, 6, vocabulary=9)
    after = leaf_cell(cell).cell
    check(after)
    same_states(cell, after, 0)


def leaf_products(cell: Cell) -> set[tuple[int, ...]]:
    """Shapes of the weights that leaves multiply with."""
    assert cell.leaf is not None
    own = (cell.values[number] for number in needed(cell.values, cell.leaf.values()))
    return {cell.values[value.of[0]].shape for value in own if value.op == "matmul"}


def test_tree_lstm_leaves_have_no_forget_gate() -> None:
    done = leaf_cell(known.example("tree_lstm", 8))
    assert leaf_products(done.cell) == {(24, 8)}  # i, o, u of four gates, one product, no U
    (sentence,) = done.told
    assert sentence.startswith("At nodes without children ")


def test_tree_gru_leaves_have_no_reset_gate() -> None:
    assert leaf_products(leaf_cell(known.example("tree_gru", 8)).cell) == {(16, 8)}


def test_tree_fc_leaves_have_no_product() -> None:
    done = leaf_cell(known.example("tree_fc", 8))
    assert leaf_products(done.cell) == set()
    assert done.told == ()


@pytest.mark.parametrize("seed", range(60))
def test_what_vanishes_is_zero(seed: int) -> None:
    """Of a node all of whose children have zero states, computed by the reference."""
    cell = random_cell(seed, children=2, leaf=False)
    structures = random_structures(cell, seed, count=1, most=1)
    names = [number for number, value in enumerate(cell.values) if not value.per_child]
    zero = {name: np.zeros((2, *shape)) for name, shape in cell.states.items()}
    found = reference.values_of(cell, zero, structures.inputs, 0, [0, 0])
    for number in names:
        if vanishes(cell, number):
            assert not np.any(found[number]), (number, cell.values[number])


def test_what_vanishes_of_known_cells() -> None:
    cell = known.example("tree_lstm", 4)
    terms = [value.of[0] for value in cell.values if value.op == "total"]
    assert [vanishes(cell, number) for number in terms] == [True, True]
    gates = [number for number, value in enumerate(cell.values) if value.op == "sigmoid" and value.per_child]
    assert gates and not any(vanishes(cell, number) for number in gates)
