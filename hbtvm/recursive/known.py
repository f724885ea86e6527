"""Known cells by name, with the equations of the papers that introduced them.

H is the hidden size, x an input row, s the sum of the children's states h. Weights have PyTorch's layout,
(outputs, inputs); gates are concatenated in the order of the docstrings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.builder import CellFunction, cell, embedding
from hbtvm.recursive.cell import Cell
from hbtvm.recursive.expressions import concat, relu, sigmoid, split, tanh, total

Maker = Callable[[int, int | None], CellFunction]


def tree_fc(hidden: int, children: int | None = 2) -> CellFunction:
    """h = relu(W [h_1; h_2] + b); h = x at leaves (Looks et al., 2017). Weights: words, W (H, 2H), b."""

    @cell(children=children or 2, state={"h": hidden}, inputs={"word": embedding("words", optional=True)})
    def tree_fc(node: Any, w: Any) -> Any:
        return {"h": relu(w.W @ concat([child.h for child in node.children]) + w.b)}

    @tree_fc.leaf
    def _leaf(node: Any, w: Any) -> Any:
        return {"h": node.word}

    return tree_fc


def dag_rnn(hidden: int, children: int | None = 2) -> CellFunction:
    """h = tanh(Wx x + U s + b) (Shuai et al., 2015, the recursive part). Weights: words, Wx, U (H, H), b."""

    @cell(children=children, state={"h": hidden}, inputs={"word": embedding("words", optional=True)})
    def dag_rnn(node: Any, w: Any) -> Any:
        return {"h": tanh(w.Wx @ node.word + w.U @ total(node.children.h) + w.b)}

    return dag_rnn


def tree_rnn(hidden: int, children: int | None = 2) -> CellFunction:
    """h = tanh(W s + x). Weights: words, W (H, H)."""

    @cell(children=children, state={"h": hidden}, inputs={"word": embedding("words", optional=True)})
    def tree_rnn(node: Any, w: Any) -> Any:
        return {"h": tanh(w.W @ total(node.children.h) + node.word)}

    return tree_rnn


def _gru(node: Any, w: Any, keeps: bool, words: bool) -> Any:
    s = total(node.children.h)
    x = split(w.Wx @ node.word + w.b if words else w.b, 3)
    u = split(w.U @ s, 2)
    r, z = sigmoid(x[0] + u[0]), sigmoid(x[1] + u[1])
    new = (1.0 - z) * tanh(x[2] + w.Uh @ (r * s))
    return {"h": new + z * s if keeps else new}


def tree_gru(hidden: int, children: int | None = 2, inner_words: bool = True) -> CellFunction:
    """r, z = σ(U s + Wx x + b); h = (1 - z) tanh(Uh (r s) + Wx x + b) + z s, child-sum.

    Weights: words, Wx (3H, X) and b (3H) for r, z and the new state, U (2H, H) for r and z, Uh (H, H).
    """

    @cell(children=children, state={"h": hidden}, inputs={"word": embedding("words", optional=True)})
    def tree_gru(node: Any, w: Any) -> Any:
        return _gru(node, w, True, inner_words)

    if not inner_words:
        tree_gru.leaf(lambda node, w: _gru(node, w, True, True))
    return tree_gru


def simple_tree_gru(hidden: int, children: int | None = 2, inner_words: bool = True) -> CellFunction:
    """As `tree_gru` without the term z s (Cortex, section 7.4)."""

    @cell(children=children, state={"h": hidden}, inputs={"word": embedding("words", optional=True)})
    def simple_tree_gru(node: Any, w: Any) -> Any:
        return _gru(node, w, False, inner_words)

    if not inner_words:
        simple_tree_gru.leaf(lambda node, w: _gru(node, w, False, True))
    return simple_tree_gru


def tree_lstm(hidden: int, children: int | None = 2, inner_words: bool = True) -> CellFunction:
    """Child-sum TreeLSTM (Tai et al., 2015, equations 2 to 8).

    i, o, u from U s + Wx x + b; f_k = σ(Uf h_k + Wx x + b) for each child; c = i u + Σ f_k c_k; h = o tanh c.
    Weights: words, Wx (4H, X) and b (4H) for i, o, u and f, U (3H, H), Uf (H, H).
    """

    def computed(node: Any, w: Any, words: bool) -> Any:
        x = split(w.Wx @ node.word + w.b if words else w.b, 4)
        i, o, u = split(w.U @ total(node.children.h), 3)
        f = sigmoid(w.Uf @ node.children.h + x[3])
        c = sigmoid(i + x[0]) * tanh(u + x[2]) + total(f * node.children.c)
        return {"h": sigmoid(o + x[1]) * tanh(c), "c": c}

    @cell(
        children=children,
        state={"h": hidden, "c": hidden},
        inputs={"word": embedding("words", optional=True)},
    )
    def tree_lstm(node: Any, w: Any) -> Any:
        return computed(node, w, inner_words)

    if not inner_words:
        tree_lstm.leaf(lambda node, w: computed(node, w, True))
    return tree_lstm


def nary_tree_lstm(hidden: int, children: int | None = 2) -> CellFunction:
    """N-ary TreeLSTM (Tai et al., 2015, equations 9 to 14): separate constants for each place.

    Weights: words, Wx (4H, X) and b (4H) for i, o, u and f; U (3H, N H); Uf (N H, N H), rows by f's place.
    """
    places = children or 2

    @cell(
        children=places,
        state={"h": hidden, "c": hidden},
        inputs={"word": embedding("words", optional=True)},
    )
    def nary_tree_lstm(node: Any, w: Any) -> Any:
        x = split(w.Wx @ node.word + w.b, 4)
        h = concat([child.h for child in node.children])
        i, o, u = split(w.U @ h, 3)
        f = split(w.Uf @ h, places)
        c = sigmoid(i + x[0]) * tanh(u + x[2])
        for gate, child in zip(f, node.children, strict=True):
            c = c + sigmoid(gate + x[3]) * child.c
        return {"h": sigmoid(o + x[1]) * tanh(c), "c": c}

    return nary_tree_lstm


def mv_rnn(hidden: int, children: int | None = 2) -> CellFunction:
    """p = tanh(W [B a; A b] + b), P = WM [A; B] (Socher et al., 2012); words have a vector and a matrix.

    Weights: words (V, H), matrices (V, H * H), W and WM (H, 2H), b.
    """

    @cell(
        children=2,
        state={"p": hidden, "P": (hidden, hidden)},
        inputs={"word": embedding("words"), "matrix": embedding("matrices")},
    )
    def mv_rnn(node: Any, w: Any) -> Any:
        a, b = node.children
        p = tanh(w.W @ concat([b.P @ a.p, a.P @ b.p]) + w.b)
        return {"p": p, "P": w.WM @ concat([a.P, b.P])}

    @mv_rnn.leaf
    def _leaf(node: Any, w: Any) -> Any:
        return {"p": node.word, "P": node.matrix.reshape((hidden, hidden))}

    return mv_rnn


def rnn(hidden: int, children: int | None = 1) -> CellFunction:
    """`torch.nn.RNN` of one layer: h = tanh(weight_ih x + bias_ih + weight_hh h' + bias_hh)."""

    @cell(children=1, state={"h": hidden}, inputs={"word": embedding("words")})
    def rnn(node: Any, w: Any) -> Any:
        (last,) = node.children
        return {"h": tanh(w.weight_ih @ node.word + w.bias_ih + w.weight_hh @ last.h + w.bias_hh)}

    return rnn


def lstm(hidden: int, children: int | None = 1) -> CellFunction:
    """`torch.nn.LSTM` of one layer, gates i, f, g, o; weights as there: weight_ih, weight_hh and biases."""

    @cell(children=1, state={"h": hidden, "c": hidden}, inputs={"word": embedding("words")})
    def lstm(node: Any, w: Any) -> Any:
        (last,) = node.children
        i, f, g, o = split(w.weight_ih @ node.word + w.bias_ih + w.weight_hh @ last.h + w.bias_hh, 4)
        c = sigmoid(f) * last.c + sigmoid(i) * tanh(g)
        return {"h": sigmoid(o) * tanh(c), "c": c}

    return lstm


def gru(hidden: int, children: int | None = 1) -> CellFunction:
    """`torch.nn.GRU` of one layer, gates r, z, n; weights as there."""

    @cell(children=1, state={"h": hidden}, inputs={"word": embedding("words")})
    def gru(node: Any, w: Any) -> Any:
        (last,) = node.children
        x = split(w.weight_ih @ node.word + w.bias_ih, 3)
        u = split(w.weight_hh @ last.h + w.bias_hh, 3)
        r, z = sigmoid(x[0] + u[0]), sigmoid(x[1] + u[1])
        return {"h": (1.0 - z) * tanh(x[2] + r * u[2]) + z * last.h}

    return gru


CELLS: Mapping[str, Maker] = {
    "tree_fc": tree_fc,
    "dag_rnn": dag_rnn,
    "tree_rnn": tree_rnn,
    "tree_gru": tree_gru,
    "simple_tree_gru": simple_tree_gru,
    "tree_lstm": tree_lstm,
    "nary_tree_lstm": nary_tree_lstm,
    "mv_rnn": mv_rnn,
    "rnn": rnn,
    "lstm": lstm,
    "gru": gru,
}
"""Functions by name, from the hidden size and the number of places for children to the cell."""


def example_weights(
    name: str, hidden: int, vocabulary: int = 1000, children: int = 2, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return random initial weights of a known cell: uniform within 1 / sqrt(inputs).

    Raises `ModelError` if there is no such cell.
    """
    if name not in CELLS:
        raise ModelError(f"there is no cell {name!r}; expected one of {', '.join(CELLS)}")
    h, n = hidden, children
    shapes: dict[str, tuple[int, ...]] = {"words": (vocabulary, h)}
    if name in ("rnn", "lstm", "gru"):
        gates = {"rnn": 1, "lstm": 4, "gru": 3}[name] * h
        shapes |= {"weight_ih": (gates, h), "weight_hh": (gates, h), "bias_ih": (gates,), "bias_hh": (gates,)}
    else:
        weights_of: dict[str, dict[str, tuple[int, ...]]] = {
            "tree_fc": {"W": (h, n * h), "b": (h,)},
            "dag_rnn": {"Wx": (h, h), "U": (h, h), "b": (h,)},
            "tree_rnn": {"W": (h, h)},
            "tree_gru": {"Wx": (3 * h, h), "U": (2 * h, h), "Uh": (h, h), "b": (3 * h,)},
            "simple_tree_gru": {"Wx": (3 * h, h), "U": (2 * h, h), "Uh": (h, h), "b": (3 * h,)},
            "tree_lstm": {"Wx": (4 * h, h), "U": (3 * h, h), "Uf": (h, h), "b": (4 * h,)},
            "nary_tree_lstm": {
                "Wx": (4 * h, h),
                "U": (3 * h, n * h),
                "Uf": (n * h, n * h),
                "b": (4 * h,),
            },
            "mv_rnn": {"matrices": (vocabulary, h * h), "W": (h, 2 * h), "WM": (h, 2 * h), "b": (h,)},
        }
        shapes |= weights_of[name]
    rng = np.random.default_rng(seed)
    return {
        key: (rng.uniform(-1, 1, shape) / np.sqrt(h if key == "matrices" else shape[-1])).astype(np.float32)
        for key, shape in shapes.items()
    }


def example(name: str, hidden: int, vocabulary: int = 1000, seed: int = 0, children: int | None = 2) -> Cell:
    """Return a known cell with random weights; see `example_weights`.

    `children`: places for children, if the cell leaves it open; None for any number, if the cell only sums.
    """
    weights = example_weights(name, hidden, vocabulary, children or 2, seed)
    return CELLS[name](hidden, children).bind(weights)
