"""Known cells against torch: its layers for sequences, and modules written by hand for trees."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hbtvm.recursive as rec
from hbtvm.recursive import known, reference
from hbtvm.runtime.recursive.structures import Structures
from tests.recursive.random_cells import random_structures

torch = pytest.importorskip("torch")

HIDDEN, VOCABULARY = 6, 11


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru"])
def test_sequences(name: str) -> None:
    """The same weights by the same names."""
    torch.manual_seed(0)
    layer = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name](5, HIDDEN).double()
    words = torch.randn(VOCABULARY, 5).double()
    rng = np.random.default_rng(0)
    items = [rng.integers(0, VOCABULARY, length).tolist() for length in (1, 7, 30)]
    weights = {key.removesuffix("_l0"): value for key, value in layer.named_parameters()}
    cell = known.CELLS[name](HIDDEN, 1).bind({"words": words, **weights})
    found = reference.states(cell, rec.sequences(items))["h"]
    with torch.no_grad():
        expected = torch.cat([layer(words[item])[0] for item in items])
    assert np.allclose(found, expected, atol=2e-6)


def _tree_fc(w: dict, x: torch.Tensor, kids: list) -> dict:
    if not kids:
        return {"h": x}
    return {"h": torch.relu(torch.cat([kid["h"] for kid in kids]) @ w["W"].T + w["b"])}


def _sum(kids: list) -> torch.Tensor:
    return sum((kid["h"] for kid in kids), torch.zeros(HIDDEN, dtype=torch.double))


def _dag_rnn(w: dict, x: torch.Tensor, kids: list) -> dict:
    return {"h": torch.tanh(w["Wx"] @ x + w["U"] @ _sum(kids) + w["b"])}


def _tree_rnn(w: dict, x: torch.Tensor, kids: list) -> dict:
    return {"h": torch.tanh(w["W"] @ _sum(kids) + x)}


def _tree_gru(w: dict, x: torch.Tensor, kids: list, keeps: bool = True) -> dict:
    s = _sum(kids)
    xr, xz, xh = (w["Wx"] @ x + w["b"]).chunk(3)
    ur, uz = (w["U"] @ s).chunk(2)
    r, z = torch.sigmoid(xr + ur), torch.sigmoid(xz + uz)
    new = torch.tanh(w["Uh"] @ (r * s) + xh)
    return {"h": torch.lerp(new, s if keeps else torch.zeros_like(s), z)}


def _simple_tree_gru(w: dict, x: torch.Tensor, kids: list) -> dict:
    return _tree_gru(w, x, kids, keeps=False)


def _tree_lstm(w: dict, x: torch.Tensor, kids: list) -> dict:
    xi, xo, xu, xf = (w["Wx"] @ x + w["b"]).chunk(4)
    ui, uo, uu = (w["U"] @ _sum(kids)).chunk(3)
    c = torch.sigmoid(xi + ui) * torch.tanh(xu + uu)
    for kid in kids:
        c = c + torch.sigmoid(xf + w["Uf"] @ kid["h"]) * kid["c"]
    return {"h": torch.sigmoid(xo + uo) * torch.tanh(c), "c": c}


def _nary_tree_lstm(w: dict, x: torch.Tensor, kids: list) -> dict:
    xi, xo, xu, xf = (w["Wx"] @ x + w["b"]).chunk(4)
    none = {name: torch.zeros(HIDDEN, dtype=torch.double) for name in ("h", "c")}
    kids = kids or [none, none]
    h = torch.cat([kid["h"] for kid in kids])
    i, o, u = (w["U"] @ h).chunk(3)
    c = torch.sigmoid(xi + i) * torch.tanh(xu + u)
    for kid, gate in zip(kids, (w["Uf"] @ h).chunk(2), strict=True):
        c = c + torch.sigmoid(xf + gate) * kid["c"]
    return {"h": torch.sigmoid(xo + o) * torch.tanh(c), "c": c}


BY_HAND: dict[str, Callable[..., dict]] = {
    "tree_fc": _tree_fc, "dag_rnn": _dag_rnn, "tree_rnn": _tree_rnn, "tree_gru": _tree_gru,
    "simple_tree_gru": _simple_tree_gru, "tree_lstm": _tree_lstm, "nary_tree_lstm": _nary_tree_lstm,
}  # fmt: skip


def _expected(name: str, w: dict, structures: Structures, numbers: list[int]) -> list[dict]:
    found: list[dict] = []
    for node, number in enumerate(numbers):
        own = structures.child[structures.first[node] : structures.first[node + 1]].tolist()
        x = w["words"][number] if number >= 0 else torch.zeros(HIDDEN, dtype=torch.double)
        found.append(BY_HAND[name](w, x, [found[one] for one in own]))
    return found


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("everywhere", [False, True])
def test_binary_trees(name: str, everywhere: bool) -> None:
    """Words at leaves, or at all nodes."""
    cell = known.example(name, HIDDEN, VOCABULARY, seed=3)
    structures = rec.trees([[[1, 2], [[3, 4], 5]], 7, [0, 10]])
    if everywhere:
        rng = np.random.default_rng(0)
        structures.inputs["word"][:] = rng.integers(-1, VOCABULARY, len(structures.first) - 1)
    w = {key: torch.from_numpy(array).double() for key, array in cell.weights.items()}
    expected = _expected(name, w, structures, structures.inputs["word"].tolist())
    for state, found in reference.states(cell, structures).items():
        assert np.allclose(found, torch.stack([one[state] for one in expected]), atol=1e-12)


@pytest.mark.parametrize("name", ["dag_rnn", "tree_rnn", "tree_gru", "simple_tree_gru", "tree_lstm"])
def test_any_number_of_children(name: str) -> None:
    cell = known.example(name, HIDDEN, VOCABULARY, children=None)
    structures = rec.trees([[1, 2, [3], [4, 5, 6, 7, 8]]])
    w = {key: torch.from_numpy(array).double() for key, array in cell.weights.items()}
    expected = _expected(name, w, structures, structures.inputs["word"].tolist())
    found = reference.states(cell, structures)["h"]
    assert np.allclose(found, torch.stack([one["h"] for one in expected]), atol=1e-12)


def test_mv_rnn() -> None:
    cell = known.example("mv_rnn", HIDDEN, VOCABULARY)
    structures = rec.child_arrays([[[-1, -1], [-1, -1], [0, 1]]], {"word": [3, 4, 0], "matrix": [5, 6, 0]})
    w = {key: torch.from_numpy(array).double() for key, array in cell.weights.items()}
    a, b = w["words"][3], w["words"][4]
    A, B = (w["matrices"][number].reshape(HIDDEN, HIDDEN) for number in (5, 6))
    found = reference.states(cell, structures)
    assert np.allclose(found["p"][2], torch.tanh(w["W"] @ torch.cat([B @ a, A @ b]) + w["b"]))
    assert np.allclose(found["P"][2], w["WM"] @ torch.cat([A, B]))


def test_words_at_leaves_only() -> None:
    """Cells made without words at inner nodes compute what others do where there are none."""
    for name in ("tree_gru", "simple_tree_gru", "tree_lstm"):
        cell = known.example(name, HIDDEN, VOCABULARY)
        other = known.CELLS[name](HIDDEN, 2, inner_words=False).bind(cell.weights)
        structures = rec.trees([[[1, 2], [[3, 4], 5]], 7])
        expected = reference.states(cell, structures)["h"]
        assert np.allclose(reference.states(other, structures)["h"], expected, atol=1e-12)


@pytest.mark.parametrize("over", ["roots", "nodes", "total", "mean", "most"])
def test_readouts_and_layers(over: str) -> None:
    cell = known.example("tree_lstm", HIDDEN, VOCABULARY)
    structures = random_structures(cell, 5)
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(3, HIDDEN)), rng.normal(size=3)
    output = getattr(rec, over)("h") | rec.tanh() | rec.linear(weight, bias) | rec.softmax()
    found = reference.scores(rec.Model(cell, output=output), structures)
    h = torch.from_numpy(reference.states(cell, structures)["h"])
    parts = [h[a:b] for a, b in zip(structures.starts[:-1], structures.starts[1:], strict=True)]
    own = sorted(set(range(len(h))) - set(structures.child.tolist()))
    x = {
        "roots": lambda: h[own],
        "nodes": lambda: h,
        "total": lambda: torch.stack([part.sum(0) for part in parts]),
        "mean": lambda: torch.stack([part.mean(0) for part in parts]),
        "most": lambda: torch.stack([part.amax(0) for part in parts]),
    }[over]()
    w, b = (torch.from_numpy(one.astype(np.float32)).double() for one in (weight, bias))
    assert np.allclose(found, torch.softmax(torch.tanh(x) @ w.T + b, 1), atol=1e-12)


def test_structures_without_nodes_give_zeros() -> None:
    cell = known.example("gru", HIDDEN, VOCABULARY)
    model = rec.Model(cell, output=rec.mean("h"))
    found = reference.scores(model, rec.sequences([[], [1]]))
    assert not found[0].any() and found[1].any()
