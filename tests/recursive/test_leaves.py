"""Nodes without children: zeros propagated, unread gates left out, and the same states as before."""

from __future__ import annotations

import numpy as np
import pytest

from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Cell
from hbtvm.recursive.passes.leaves import leaf_cell
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
    for rewritten in (without_dead(cell), leaf_cell(cell), leaf_cell(leaf_cell(cell))):
        check(rewritten)
        same_states(cell, rewritten, seed)
    values = leaf_cell(cell)
    assert values.leaf is not None
    for number in needed(values.values, values.leaf.values()):
        assert values.values[number].op not in ("child", "children", "total", "most")


@pytest.mark.parametrize("name", known.CELLS)
def test_known_cells_compute_the_same(name: str) -> None:
    cell = known.example(name, 6, vocabulary=9)
    after = leaf_cell(cell)
    check(after)
    same_states(cell, after, 0)


def leaf_products(cell: Cell) -> set[tuple[int, ...]]:
    """Shapes of the weights that leaves multiply with."""
    assert cell.leaf is not None
    own = (cell.values[number] for number in needed(cell.values, cell.leaf.values()))
    return {cell.values[value.of[0]].shape for value in own if value.op == "matmul"}


def test_tree_lstm_leaves_have_no_forget_gate() -> None:
    done = leaf_cell(known.example("tree_lstm", 8))
    assert leaf_products(done) == {(24, 8)}  # i, o, u of four gates, one product, no U


def test_tree_gru_leaves_have_no_reset_gate() -> None:
    assert leaf_products(leaf_cell(known.example("tree_gru", 8))) == {(16, 8)}


def test_tree_fc_leaves_have_no_product() -> None:
    done = leaf_cell(known.example("tree_fc", 8))
    assert leaf_products(done) == set()
