"""The cells in DyNet: expressions of one node.

Each gate has weights of its own, since a slice of a product would keep DyNet from batching the gates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

State = tuple[Any, ...]


class DynetCell:
    """A cell.

    Parameters
    ----------
    dy
        The module of DyNet.
    w
        Weights by name.
    """

    def __init__(self, dy: Any, w: dict[str, np.ndarray]) -> None:
        self.dy, self.kept, self.hidden = dy, dy.ParameterCollection(), w["words"].shape[1]
        self.words = self.kept.lookup_parameters_from_numpy(w["words"])
        self.prepare(w)

    def prepare(self, w: dict[str, np.ndarray]) -> None:
        """Make the parameters."""
        raise NotImplementedError

    def node(self, word: int, children: Sequence[State]) -> State:
        """Expressions of a node's states."""
        raise NotImplementedError

    def word(self, word: int) -> Any:
        """A word's vector."""
        return self.dy.lookup(self.words, word, update=False)

    def parameter(self, values: np.ndarray) -> Any:
        """A matrix or a vector."""
        made = self.kept.add_parameters(values.shape)
        made.set_value(values)
        return made

    def gates(self, values: np.ndarray) -> list[Any]:
        """The gates of a matrix or a vector."""
        return [self.parameter(one) for one in np.split(values, len(values) // self.hidden)]


class TreeFC(DynetCell):
    def prepare(self, w: dict[str, np.ndarray]) -> None:
        self.w, self.b = self.parameter(w["W"]), self.parameter(w["b"])

    def node(self, word: int, children: Sequence[State]) -> State:
        dy = self.dy
        if not children:
            return (self.word(word),)
        both = dy.concatenate([one[0] for one in children])
        return (dy.rectify(dy.affine_transform([self.b, self.w, both])),)


class DagRNN(DynetCell):
    def prepare(self, w: dict[str, np.ndarray]) -> None:
        self.wx, self.u, self.b = (self.parameter(w[name]) for name in ("Wx", "U", "b"))

    def node(self, word: int, children: Sequence[State]) -> State:
        dy = self.dy
        terms = [self.b, self.wx, self.word(word)]
        if children:
            terms += [self.u, dy.esum([one[0] for one in children])]
        return (dy.tanh(dy.affine_transform(terms)),)


class TreeGRU(DynetCell):
    def prepare(self, w: dict[str, np.ndarray]) -> None:
        self.wx, self.b, self.u = self.gates(w["Wx"]), self.gates(w["b"]), self.gates(w["U"])
        self.uh = self.parameter(w["Uh"])

    def node(self, word: int, children: Sequence[State]) -> State:
        dy = self.dy
        if not children:
            x = self.word(word)
            z, new = (dy.affine_transform([self.b[k], self.wx[k], x]) for k in (1, 2))
            return (dy.cmult((-dy.logistic(z)) + 1.0, dy.tanh(new)),)
        s = children[0][0] + children[1][0]
        r, z = (dy.logistic(dy.affine_transform([self.b[k], self.u[k], s])) for k in (0, 1))
        new = dy.tanh(dy.affine_transform([self.b[2], self.uh, dy.cmult(r, s)]))
        return (dy.cmult((-z) + 1.0, new) + dy.cmult(z, s),)


class TreeLSTM(DynetCell):
    def prepare(self, w: dict[str, np.ndarray]) -> None:
        self.wx, self.b, self.u = self.gates(w["Wx"]), self.gates(w["b"]), self.gates(w["U"])
        self.uf = self.parameter(w["Uf"])

    def node(self, word: int, children: Sequence[State]) -> State:
        dy = self.dy
        used, operand = self.wx, self.word(word) if not children else None
        if children:
            used, operand = self.u, children[0][0] + children[1][0]
        i, o, u = (dy.affine_transform([self.b[k], used[k], operand]) for k in range(3))
        c = dy.cmult(dy.logistic(i), dy.tanh(u))
        for h, kept in children:
            f = dy.logistic(dy.affine_transform([self.b[3], self.uf, h]))
            c = c + dy.cmult(f, kept)
        return dy.cmult(dy.logistic(o), dy.tanh(c)), c


class MVRNN(DynetCell):
    def prepare(self, w: dict[str, np.ndarray]) -> None:
        h = self.hidden
        self.w, self.b, self.wm = (self.parameter(w[name]) for name in ("W", "b", "WM"))
        self.matrices = self.kept.add_lookup_parameters((len(w["matrices"]), h, h))
        for number, values in enumerate(w["matrices"]):
            # Columns lie behind one another.
            self.matrices.init_row(number, values.reshape(h, h).ravel(order="F"))

    def node(self, word: int, children: Sequence[State]) -> State:
        dy = self.dy
        if not children:
            return self.word(word), dy.lookup(self.matrices, word, update=False)
        (a, A), (b, B) = children
        p = dy.tanh(dy.affine_transform([self.b, self.w, dy.concatenate([B * a, A * b])]))
        return p, self.wm * dy.concatenate([A, B])


class RNN(DynetCell):
    def prepare(self, w: dict[str, np.ndarray]) -> None:
        self.wx, self.u = self.gates(w["weight_ih"]), self.gates(w["weight_hh"])
        self.b = self.gates(w["bias_ih"] + w["bias_hh"])

    def sums(self, word: int, children: Sequence[State]) -> list[Any]:
        """What each gate gets."""
        more = [[u, children[0][0]] if children else [] for u in self.u]
        x = self.word(word)
        return [
            self.dy.affine_transform([b, wx, x, *one])
            for b, wx, one in zip(self.b, self.wx, more, strict=True)
        ]

    def node(self, word: int, children: Sequence[State]) -> State:
        return (self.dy.tanh(self.sums(word, children)[0]),)


class LSTM(RNN):
    def node(self, word: int, children: Sequence[State]) -> State:
        dy = self.dy
        i, f, g, o = self.sums(word, children)
        c = dy.cmult(dy.logistic(i), dy.tanh(g))
        if children:
            c = c + dy.cmult(dy.logistic(f), children[0][1])
        return dy.cmult(dy.logistic(o), dy.tanh(c)), c


class GRU(DynetCell):
    def prepare(self, w: dict[str, np.ndarray]) -> None:
        self.wx, self.u = self.gates(w["weight_ih"]), self.gates(w["weight_hh"])
        self.bx, self.bu = self.gates(w["bias_ih"]), self.gates(w["bias_hh"])
        self.b = self.gates(w["bias_ih"] + w["bias_hh"])

    def node(self, word: int, children: Sequence[State]) -> State:
        dy, x = self.dy, self.word(word)
        before = children[0][0] if children else None
        r, z = (
            dy.logistic(
                dy.affine_transform([self.b[k], self.wx[k], x] + ([self.u[k], before] if children else []))
            )
            for k in (0, 1)
        )
        u = dy.affine_transform([self.bu[2], self.u[2], before]) if children else self.bu[2]
        new = dy.tanh(dy.affine_transform([self.bx[2], self.wx[2], x]) + dy.cmult(r, u))
        h = dy.cmult((-z) + 1.0, new)
        return (h + dy.cmult(z, before) if children else h,)


CELLS: dict[str, Callable[[Any, dict[str, np.ndarray]], DynetCell]] = {
    "treefc": TreeFC,
    "dagrnn": DagRNN,
    "treegru": TreeGRU,
    "treelstm": TreeLSTM,
    "mvrnn": MVRNN,
    "rnn": RNN,
    "lstm": LSTM,
    "gru": GRU,
}
"""By the models' names."""
