"""States node by node in float64: what every peer's are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.recursive.cases import MODELS, weights
from benchmarks.recursive.structures import Linear

AGREES = 1e-5
"""Largest difference of a state, relative to the largest number among all, with which a peer is raced."""

States = tuple[np.ndarray, ...]


def states(model: str, hidden: int, linear: Linear) -> np.ndarray:
    """The first state of all nodes, float64, shape (nodes, H), in the order of `linear`."""
    w: dict[str, Any] = {
        name: one if name in ("words", "matrices") else one.astype(np.float64)
        for name, one in weights(model, hidden).items()
    }
    found: list[States] = []
    for node in range(linear.nodes):
        children = [found[one] for one in linear.child[node] if one >= 0]
        found.append(_CELLS[MODELS[model].cell](w, int(linear.words[node]), children))
    return np.array([one[0] for one in found])


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the largest number expected."""
    if got.shape != expected.shape:
        return float("inf")
    worst = float(np.max(np.abs(got - expected)) / np.max(np.abs(expected)))
    return worst if np.isfinite(worst) else float("inf")


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5)


def _word(w: Any, word: int) -> np.ndarray:
    return np.asarray(w["words"][word], np.float64)


def _tree_fc(w: Any, word: int, children: list[States]) -> States:
    if not children:
        return (_word(w, word),)
    return (np.maximum(w["W"] @ np.concatenate([h for (h,) in children]) + w["b"], 0),)


def _dag_rnn(w: Any, word: int, children: list[States]) -> States:
    x = w["Wx"] @ _word(w, word) + w["b"]
    return (np.tanh(x + w["U"] @ sum(h for (h,) in children) if children else x),)


def _tree_gru(w: Any, word: int, children: list[States]) -> States:
    s = sum((h for (h,) in children), np.zeros(len(w["Uh"])))
    xr, xz, xh = np.split(w["b"] if children else w["Wx"] @ _word(w, word) + w["b"], 3)
    ur, uz = np.split(w["U"] @ s, 2)
    r, z = _sigmoid(xr + ur), _sigmoid(xz + uz)
    return ((1 - z) * np.tanh(xh + w["Uh"] @ (r * s)) + z * s,)


def _tree_lstm(w: Any, word: int, children: list[States]) -> States:
    s = sum((h for h, _ in children), np.zeros(len(w["Uf"])))
    x = np.split(w["b"] if children else w["Wx"] @ _word(w, word) + w["b"], 4)
    i, o, u = (of_x + of_s for of_x, of_s in zip(x, np.split(w["U"] @ s, 3), strict=False))
    kept = [_sigmoid(w["Uf"] @ h + x[3]) * c for h, c in children]
    c = sum(kept, _sigmoid(i) * np.tanh(u))
    return _sigmoid(o) * np.tanh(c), c


def _tree_rnn(w: Any, word: int, children: list[States]) -> States:
    return (np.tanh(w["W"] @ sum(h for (h,) in children) if children else _word(w, word)),)


def _mv_rnn(w: Any, word: int, children: list[States]) -> States:
    if not children:
        h = w["words"].shape[1]
        return _word(w, word), w["matrices"][word].astype(np.float64).reshape(h, h)
    (a, A), (b, B) = children
    return np.tanh(w["W"] @ np.concatenate([B @ a, A @ b]) + w["b"]), w["WM"] @ np.concatenate([A, B])


def _gates(w: Any, word: int, children: list[States], count: int) -> tuple[Any, Any]:
    """What a sequence's gates get of the input and of the state before."""
    before = children[0][0] if children else np.zeros(w["words"].shape[1])
    x = w["weight_ih"] @ _word(w, word) + w["bias_ih"]
    return np.split(x, count), np.split(w["weight_hh"] @ before + w["bias_hh"], count)


def _rnn(w: Any, word: int, children: list[States]) -> States:
    (x,), (u,) = _gates(w, word, children, 1)
    return (np.tanh(x + u),)


def _lstm(w: Any, word: int, children: list[States]) -> States:
    i, f, g, o = (x + u for x, u in zip(*_gates(w, word, children, 4), strict=True))
    c = _sigmoid(i) * np.tanh(g) + (_sigmoid(f) * children[0][1] if children else 0)
    return _sigmoid(o) * np.tanh(c), c


def _gru(w: Any, word: int, children: list[States]) -> States:
    x, u = _gates(w, word, children, 3)
    r, z = _sigmoid(x[0] + u[0]), _sigmoid(x[1] + u[1])
    return ((1 - z) * np.tanh(x[2] + r * u[2]) + (z * children[0][0] if children else 0),)


_CELLS: dict[str, Callable[[Any, int, list[States]], States]] = {
    "tree_fc": _tree_fc,
    "dag_rnn": _dag_rnn,
    "tree_gru": _tree_gru,
    "tree_lstm": _tree_lstm,
    "tree_rnn": _tree_rnn,
    "mv_rnn": _mv_rnn,
    "rnn": _rnn,
    "lstm": _lstm,
    "gru": _gru,
}
