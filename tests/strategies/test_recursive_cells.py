"""Kernels of known recursive models, as the executor runs them, against node by node in float64."""

from __future__ import annotations

import pytest

from hbtvm.recursive import known
from tests.recursive_kernels import cell_of, compare, configured, drawn, opened

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

CONFIGS = {
    "table": configured(),
    "panels": configured(order="panels", vectors=2, tile=3, tail=1, unroll=2, first=0),
    "wide": configured(tile=8, tail=0, vectors=4, leaf="compute", first=0, unroll=4),
    "single": configured(order="panels", tile=1, tail=0, leaf="compute", first=0, leaf_tile=1),
    "refactored": configured(refactor=1, first=0, tile=3, tail=0),
    "apart": configured(fusion=0, order="panels", first=0),
    "plain": configured(fusion=0, order="panels", first=0, leaf="inner", refactor=1),
}
USUAL = ("table", "panels", "wide", "single")
ALL = ("tree_gru", "tree_lstm", "mv_rnn")
CASES = [
    *((cell, kind) for cell in ALL for kind in CONFIGS),
    *(
        (cell, kind)
        for i, cell in enumerate(cell for cell in known.CELLS if cell not in ALL)
        for kind in (USUAL[i % 4], USUAL[(i + 1) % 4])
    ),
]
"""Some cells with all configurations; others, which are made of the same steps, with two each."""


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_known_cells(name: str, kind: str) -> None:
    config = CONFIGS[kind]
    children = 1 if name in ("rnn", "lstm", "gru") else 2
    for hidden in (1, 30) if kind in ("table", "wide") and name in ("tree_fc", "tree_lstm") else (30,):
        cell = cell_of(name, hidden, children)
        compare(cell, opened(cell, config), drawn(children, cell.inputs["word"].optional))
