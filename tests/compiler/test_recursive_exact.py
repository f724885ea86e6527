"""Every known recursive model on every kind of structure, compiled as it is without a search."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Readout, RecursiveModel
from hbtvm.runtime.recursive.structures import Structures

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

VOCABULARY = 20

SEQUENCES = ("rnn", "lstm", "gru")
IN_PLACES = ("tree_fc", "nary_tree_lstm")

CASES = [
    *((name, 1, hidden) for name in SEQUENCES for hidden in (1, 30)),
    *((name, children, 15 * children) for name in IN_PLACES for children in (2, 3)),
    *(("mv_rnn", 2, hidden) for hidden in (1, 30)),
    *(
        (name, children, (1, 16, 30, 100)[(i + j) % 4])
        for i, name in enumerate(("dag_rnn", "tree_rnn", "tree_gru", "simple_tree_gru", "tree_lstm"))
        for j, children in enumerate((1, 2, 3, None))
    ),
    ("tree_lstm", 2, 256),
]
"""Models, places for children, hidden sizes."""


def kinds(children: int | None) -> dict[str, list[list[int]]]:
    """Children of each node, by kind of structure."""
    places = children or 4
    rng = np.random.default_rng(0)
    made: dict[str, list[list[int]]] = {
        "node": [[]],
        "chain": [[i - 1] if i else [] for i in range(30)],
        "star": [*([] for _ in range(places)), list(range(places))],
    }
    if places > 1:
        perfect: list[list[int]] = [[] for _ in range(places**3)]
        for level in (places**2, places, 1):
            first = len(perfect) - level * places
            perfect += [list(range(first + places * i, first + places * (i + 1))) for i in range(level)]
        parse: list[list[int]] = [[] for _ in range(12)]
        waiting = list(range(12))
        while len(waiting) > 1:
            at = int(rng.integers(len(waiting) - 1))
            parse.append(waiting[at : at + 2])
            waiting[at : at + 2] = [len(parse) - 1]
        grid = [
            [node for node, there in ((6 * i + j - 6, i), (6 * i + j - 1, j)) if there]
            for i in range(6)
            for j in range(6)
        ]
        made |= {"perfect": perfect, "parse": parse, "grid": grid}
    return made


@functools.cache
def structures(children: int | None, all_words: bool) -> Structures:
    """All kinds, each twice, with words at all nodes or at most of them."""
    batch: Sequence[list[list[int]]] = [one for one in kinds(children).values() for _ in range(2)]
    starts = np.cumsum([0, *map(len, batch)])
    every = [
        [start + child for child in own] for start, one in zip(starts, batch, strict=False) for own in one
    ]
    words = np.random.default_rng(1).integers(0 if all_words else -3, VOCABULARY, starts[-1])
    return Structures(
        starts.astype(np.int64),
        np.cumsum([0, *map(len, every)]).astype(np.int32),
        np.array([child for own in every for child in own], np.int32),
        {"word": np.maximum(words, -1).astype(np.int32)},
    )


@pytest.mark.parametrize(("name", "children", "hidden"), CASES)
def test_states_are_the_reference_s(name: str, children: int | None, hidden: int) -> None:
    cell = known.example(name, hidden, VOCABULARY, children=children)
    given = structures(children, not cell.inputs["word"].optional)
    if name == "mv_rnn":
        given = Structures(
            given.starts, given.first, given.child, {**given.inputs, "matrix": given.inputs["word"]}
        )
    state = next(iter(cell.states))
    expected = reference.states(cell, given)[state]
    model = hbtvm.compile(RecursiveModel(cell, Readout(state, "nodes")), batch_sizes=(4,), threads=2)
    np.testing.assert_allclose(model.predict(given), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_torch_s(name: str) -> None:
    torch = pytest.importorskip("torch")
    layer: Any = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name](24, 24)
    words = np.random.default_rng(0).normal(size=(VOCABULARY, 24)).astype(np.float32)
    weights = {key.removesuffix("_l0"): one.detach().numpy() for key, one in layer.named_parameters()}
    cell = known.CELLS[name](24, 1).bind({"words": words, **weights})
    numbers = np.random.default_rng(1).integers(0, VOCABULARY, (3, 17))
    nodes = np.arange(3 * 17)
    first = np.cumsum([0, *(nodes % 17 > 0)])
    given = Structures(
        np.arange(4) * 17,
        first.astype(np.int32),
        (nodes - 1)[nodes % 17 > 0].astype(np.int32),
        {"word": numbers.reshape(-1).astype(np.int32)},
    )
    model = hbtvm.compile(RecursiveModel(cell, Readout("h", "nodes")), batch_sizes=(4,), threads=1)
    with torch.inference_mode():
        expected = layer(torch.from_numpy(words[numbers]).transpose(0, 1))[0].transpose(0, 1)
    np.testing.assert_allclose(model.predict(given), expected.reshape(-1, 24).numpy(), rtol=0, atol=1e-5)
