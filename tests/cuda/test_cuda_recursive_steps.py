"""Steps of recursive models on GPUs: values that are whole, and products whose constants stay on chip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.compiler.recursion.samples import sample, taken
from hbtvm.errors import PackageError, UnsupportedModel
from hbtvm.recursive.cell import Cell
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.strategies.recursive.levels import Levels, classes_of
from tests import emulated
from tests.cuda.test_cuda_recursive import ALL_LEVELS, BY_LEVEL, GPU, WORDS, agrees, cell_of, drawn, opened
from tests.emulated import RESIDENT, Machine
from tests.recursive.random_cells import random_cell, random_structures

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


def many_wholes() -> Cell:
    """A cell of values that take several panels and warps, and lie otherwise than what they are made from."""
    m, n = 70, 20

    @rec.cell(children=2, state={"h": n, "M": (m, n)}, inputs={"word": rec.embedding("words")})
    def wholes(node: Any, w: Any) -> Any:
        a, b = node.children
        v = a.M @ b.h
        parts = rec.concat([v, a.h, b.h - a.h, rec.tanh(v), b.h])
        s = rec.softmax(parts)
        square = rec.concat([w.squares, s[3 : 3 + n * n - 390]]).reshape((n, n))
        placed = rec.outer(v, s[-n:])
        # Read as its parts are, and whole.
        tall = rec.concat([a.M[:2], b.M[:2], a.M[2:4], b.M[4:6], a.M[7:9]])
        product = placed @ square + w.W @ rec.concat([a.M, b.M[:9]])
        flat = rec.concat(
            [(w.T @ tall).reshape((3 * n,)), tall.reshape((10 * n,)), product.reshape((m * n,))]
        )
        return {
            "h": rec.tanh(w.U @ s + node.word + flat[5 : 5 + n] + flat[95 : 95 + n] + flat[-n:]),
            "M": rec.tanh(product + b.M),
        }

    @wholes.leaf
    def _leaf(node: Any, w: Any) -> Any:
        return {"h": node.word, "M": rec.outer(w.column, node.word)}

    rng = np.random.default_rng(0)
    shapes = {
        "words": (WORDS, n),
        "U": (n, 2 * m + 3 * n),
        "W": (m, m + 9),
        "T": (3, 10),
        "squares": (390,),
        "column": (m,),
    }
    return wholes.bind({name: rng.normal(size=shape) / 9 for name, shape in shapes.items()})


@pytest.mark.parametrize("knobs", [{**BY_LEVEL, "tile": 2}, {**ALL_LEVELS, "threads": 256}])
def test_whole_values(machine: Machine, knobs: dict[str, Any]) -> None:
    machine.set(RESIDENT, 3)
    cell = many_wholes()
    for state in cell.states:
        agrees(opened(cell, state=state, **knobs), cell, sample(cell, 2, seed=3), state, "nodes")


def test_the_last_term_of_a_product_of_states_may_be_infinite(machine: Machine) -> None:
    @rec.cell(children=1, state={"h": 3}, inputs={"x": rec.vector(3)})
    def products(node: Any, w: Any) -> Any:
        return {"h": rec.outer(node.x, rec.relu(node.x)) @ rec.relu(node.x) + node.children[0].h}

    cell = products.bind({})
    x = np.array([[1, 2, np.inf], [1, 2, 3]], np.float32)
    structures = Structures(np.array([0, 2]), np.array([0, 0, 1], np.int32), np.zeros(1, np.int32), {"x": x})
    found = opened(cell).run(structures)
    assert np.all(found == np.inf)


KEPT: list[tuple[str, int, int | None, dict[str, Any]]] = [
    ("tree_lstm", 20, 2, {"kept": 8, "tile": 4}),
    ("tree_lstm", 36, None, {"kept": 16, "threads": 128, "leaf": "compute", "unroll": 2}),
    ("tree_gru", 40, 2, {"kept": 8, "tile": 2, "unroll": 1}),
    ("dag_rnn", 70, None, {"kept": 32, "tile": 4, "leaf": "inner"}),
    ("mv_rnn", 20, 2, {"kept": 16, "tile": 1}),
]
"""Kernels for all levels whose blocks keep constants."""


@pytest.mark.parametrize(("name", "hidden", "children", "knobs"), KEPT)
@pytest.mark.parametrize("resident", [7, 17])
def test_constants_that_stay(
    machine: Machine, name: str, hidden: int, children: int | None, knobs: dict[str, Any], resident: int
) -> None:
    # Of 7 blocks, some have no panel: there are 3 to 6 of these. Of 17, several own the same.
    machine.set(RESIDENT, resident)
    cell, structures = cell_of(name, hidden, children), drawn(children, matrices=name == "mv_rnn")
    state = next(iter(cell.states))
    device = opened(cell, state=state, **{**ALL_LEVELS, "tile": 1, **knobs})
    for one in (structures, taken(structures, 1), structures):
        agrees(device, cell, one, state, "nodes")


def test_constants_that_do_not_fit(machine: Machine) -> None:
    cell = cell_of("dag_rnn", 70)
    machine.set(RESIDENT, 8)
    with pytest.raises(PackageError, match="constants are kept by 10 blocks, and it runs 8 at once"):
        opened(cell, **{**ALL_LEVELS, "kept": 8})
    classes, levels = classes_of(cell_of("tree_lstm", 512)), Levels()
    workload = levels.workload(classes, 1, 32, 8, 1)
    config = {**levels.default(workload, GPU), "levels": "persistent", "kept": 32, "tile": 1}
    assert not levels.space(workload, GPU).contains(config)
    assert levels.space(workload, GPU).contains({**config, "kept": 16})
    assert not levels.space(workload, GPU).contains({**config, "kept": 16, "levels": "launches"})
    with pytest.raises(UnsupportedModel, match=r"constants of a block's outputs take 263,\d+ bytes"):
        levels.kernels(classes, config, GPU)


@pytest.mark.parametrize("seed", [0, 5, 10])
def test_random_cells_whose_constants_stay(machine: Machine, seed: int) -> None:
    machine.set(RESIDENT, 9)
    cell = random_cell(seed)
    device = opened(cell, **{**ALL_LEVELS, "kept": (8, 16, 32)[seed % 3], "refactor": seed % 2})
    for one in range(2):
        agrees(device, cell, random_structures(cell, 10 * seed + one), "h", "nodes")
