"""Tables of leaf states and of products, and products moved to children: the same states as before."""

from __future__ import annotations

import numpy as np
import pytest

from hbtvm.errors import ModelError
from hbtvm.recursive import known, reference
from hbtvm.recursive.passes.refactoring import refactored
from hbtvm.recursive.passes.words import by_word, leaf_table, products_of_inputs
from hbtvm.recursive.validate import check
from hbtvm.runtime.recursive.structures import Structures
from tests.recursive.random_cells import random_cell
from tests.recursive.test_leaves import same_states

NAMES = [name for name in known.CELLS if name != "mv_rnn"]


def leaves(count: int, **inputs: np.ndarray) -> Structures:
    """As many structures of one node."""
    return Structures(np.arange(count + 1), np.zeros(count + 1, np.int32), np.zeros(0, np.int32), inputs)


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_leaf_states(name: str) -> None:
    cell = known.example(name, 5, vocabulary=9)
    assert by_word(cell) == dict.fromkeys(cell.states, "word")
    table = leaf_table(cell)
    numbers = np.arange(len(table["h"]))
    assert len(numbers) == 9 + cell.inputs["word"].optional
    numbers[9:] = -1
    for state, expected in reference.states(cell, leaves(len(numbers), word=numbers)).items():
        assert np.allclose(table[state], expected, atol=1e-12)


def test_tables_of_two_inputs() -> None:
    cell = known.example("mv_rnn", 3, vocabulary=4)
    assert by_word(cell) == {"p": "word", "P": "matrix"}
    assert np.array_equal(leaf_table(cell, ["P"])["P"], cell.weights["matrices"].reshape(4, 3, 3))
    with pytest.raises(ModelError, match="numbers of matrix and word"):
        leaf_table(cell)


@pytest.mark.parametrize("seed", range(100))
def test_tables_of_random_cells(seed: int) -> None:
    cell = random_cell(seed)
    found = by_word(cell)
    for state in cell.states:
        if state not in found:
            with pytest.raises(ModelError, match="more than one"):
                leaf_table(cell, [state])
            continue
        table = leaf_table(cell, [state])[state]
        numbers = np.arange(len(table)) if len(table) <= 7 else np.append(np.arange(7), -1)
        x = np.random.default_rng(seed).normal(size=(len(table), cell.inputs["x"].size)).astype(np.float32)
        expected = reference.states(cell, leaves(len(table), word=numbers, x=x))[state]
        assert np.allclose(table, expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(60))
def test_random_cells_compute_the_same(seed: int) -> None:
    cell = random_cell(seed)
    for rewritten in (products_of_inputs(cell), refactored(cell), refactored(cell, totals=False)):
        check(rewritten.cell)
        assert bool(rewritten.told) == (rewritten.cell is not cell)
        same_states(cell, rewritten.cell, seed, 1e-5)


@pytest.mark.parametrize("name", known.CELLS)
@pytest.mark.parametrize("rewrite", [products_of_inputs, refactored])
def test_known_cells_compute_the_same(name: str, rewrite: object) -> None:
    cell = known.example(name, 6, vocabulary=9)
    after = rewrite(cell).cell
    check(after)
    same_states(cell, after, 0, 1e-5)


def test_products_by_budget() -> None:
    cell = known.example("tree_lstm", 8, vocabulary=100)
    done = products_of_inputs(cell, most_bytes=4 * 32 * 100)
    assert done.told == ("Products of 'Wx' with rows of 'words' are a table of 12,800 bytes.",)
    assert set(done.cell.weights) == {"b", "U", "Uf", "words by Wx"}
    refused = products_of_inputs(cell, most_bytes=4 * 32 * 100 - 1)
    assert "stay" in refused.told[0] and set(refused.cell.weights) == set(cell.weights)


def test_what_is_refactored() -> None:
    cell = known.example("tree_lstm", 8)
    done = refactored(cell, totals=False)
    assert dict(done.cell.states) == {"h": (8,), "c": (8,), "Uf h": (8,)}
    assert dict(refactored(cell).cell.states)["U h"] == (24,)
    assert refactored(known.example("tree_gru", 8)).told == (
        "Products of 'U' with 'h' of children are made by the children, as state 'U h'.",
    )
