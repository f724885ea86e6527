"""Kernels for any number of children, and of random recursive models, against node by node in float64."""

from __future__ import annotations

import pytest

from hbtvm.errors import UnsupportedModel
from tests.recursive.random_cells import random_cell, random_structures
from tests.recursive_kernels import cell_of, compare, configured, drawn, opened

pytestmark = pytest.mark.usefixtures("unchecked_kernels")


@pytest.mark.parametrize("name", ["dag_rnn", "tree_gru", "tree_rnn", "tree_lstm"])
def test_any_number_of_children(name: str) -> None:
    cell = cell_of(name, 24, None)
    for order, refactor in (("nodes", 0), ("panels", 1)):
        config = configured(order=order, refactor=refactor, first=not refactor)
        compare(cell, opened(cell, config), drawn(None, True))
    compare(cell, opened(cell, configured(fusion=0, order="panels", first=0)), drawn(None, True))


def test_random_cells() -> None:
    kinds = [
        configured(leaf="compute", first=0),
        configured(order="panels", leaf="compute", first=0),
        configured(leaf="compute", first=0, refactor=1),
        configured(order="panels", leaf="inner", first=0, fusion=0),
    ]
    for seed in range(8):
        cell = random_cell(seed, children=1 + seed % 3)
        compare(cell, opened(cell, kinds[seed % 4]), random_structures(cell, seed))


def test_random_cells_of_any_number_of_children() -> None:
    compiled = 0
    for seed in range(6):
        cell = random_cell(seed, children=None)
        structures = random_structures(cell, seed)
        try:
            hosts = opened(cell, configured(order="panels" if seed % 2 else "nodes", leaf="compute", first=0))
        except UnsupportedModel:
            continue
        compiled += 1
        compare(cell, hosts, structures)
    assert compiled >= 2
