"""The cells in torch, as a user would write them: of one node (vectors) or of many side by side (matrices).

Products with the nodes' own inputs are one product for all nodes, before the recursion; leaves skip what
zeros make of their children. Imported where torch is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import linear

State = tuple[torch.Tensor, ...]
"""A node's states, or as many nodes' in rows."""


class TorchCell:
    """A cell; here with what most have.

    Parameters
    ----------
    w
        Weights by name.

    Attributes
    ----------
    everywhere
        Whether every node has an input, not only leaves.
    """

    everywhere = False

    def __init__(self, w: dict[str, torch.Tensor]) -> None:
        self.w = w
        self.hidden = w["words"].shape[1]

    def inputs(self, words: torch.Tensor) -> torch.Tensor:
        """What leaves (all nodes, where `everywhere`) get: a row for each word."""
        return self.w["words"][words]

    def leaf(self, x: torch.Tensor, words: Any) -> State:
        """States of nodes without children, from their rows of `inputs` (and their words)."""
        return (x,)

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        """States of nodes with children."""
        raise NotImplementedError


class TreeFC(TorchCell):
    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        (a,), (b,) = children
        return (torch.relu(linear(torch.cat((a, b), -1), self.w["W"], self.w["b"])),)


class DagRNN(TorchCell):
    everywhere = True

    def inputs(self, words: torch.Tensor) -> torch.Tensor:
        return linear(self.w["words"][words], self.w["Wx"], self.w["b"])

    def leaf(self, x: torch.Tensor, words: Any) -> State:
        return (torch.tanh(x),)

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        s = children[0][0] if len(children) == 1 else children[0][0] + children[1][0]
        return (torch.tanh(x + linear(s, self.w["U"])),)


class TreeGRU(TorchCell):
    def __init__(self, w: dict[str, torch.Tensor]) -> None:
        super().__init__(w)
        h = self.hidden
        # Leaves have nothing to reset.
        self.leaf_weight, self.leaf_bias = w["Wx"][h:].clone(), w["b"][h:].clone()
        self.gate_bias, self.new_bias = w["b"][: 2 * h].clone(), w["b"][2 * h :].clone()

    def inputs(self, words: torch.Tensor) -> torch.Tensor:
        return linear(self.w["words"][words], self.leaf_weight, self.leaf_bias)

    def leaf(self, x: torch.Tensor, words: Any) -> State:
        z, new = x.split(self.hidden, -1)
        return ((1 - torch.sigmoid(z)) * torch.tanh(new),)

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        (a,), (b,) = children
        s = a + b
        r, z = torch.sigmoid(linear(s, self.w["U"], self.gate_bias)).split(self.hidden, -1)
        new = torch.tanh(linear(r * s, self.w["Uh"], self.new_bias))
        return ((1 - z) * new + z * s,)


class TreeLSTM(TorchCell):
    def __init__(self, w: dict[str, torch.Tensor]) -> None:
        super().__init__(w)
        h = self.hidden
        # Leaves have nothing to forget.
        self.leaf_weight, self.leaf_bias = w["Wx"][: 3 * h].clone(), w["b"][: 3 * h].clone()
        self.forget_bias = w["b"][3 * h :].clone()

    def inputs(self, words: torch.Tensor) -> torch.Tensor:
        return linear(self.w["words"][words], self.leaf_weight, self.leaf_bias)

    def leaf(self, x: torch.Tensor, words: Any) -> State:
        i, o, u = x.split(self.hidden, -1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        (ha, ca), (hb, cb) = children
        i, o, u = linear(ha + hb, self.w["U"], self.leaf_bias).split(self.hidden, -1)
        f = torch.sigmoid(linear(torch.stack((ha, hb)), self.w["Uf"], self.forget_bias))
        c = torch.sigmoid(i) * torch.tanh(u) + f[0] * ca + f[1] * cb
        return torch.sigmoid(o) * torch.tanh(c), c


class TreeRNN(TorchCell):
    def leaf(self, x: torch.Tensor, words: Any) -> State:
        return (torch.tanh(x),)

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        (a,), (b,) = children
        return (torch.tanh(linear(a + b, self.w["W"])),)


class MVRNN(TorchCell):
    def __init__(self, w: dict[str, torch.Tensor]) -> None:
        super().__init__(w)
        self.matrices = w["matrices"].view(-1, self.hidden, self.hidden)

    def leaf(self, x: torch.Tensor, words: Any) -> State:
        return x, self.matrices[words]

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        (a, A), (b, B) = children
        both = torch.cat((_times(B, a), _times(A, b)), -1)
        p = torch.tanh(linear(both, self.w["W"], self.w["b"]))
        return p, torch.matmul(self.w["WM"], torch.cat((A, B), -2))


def _times(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """The product of a node, or of each of many."""
    return matrix @ vector if vector.dim() == 1 else torch.bmm(matrix, vector[:, :, None])[:, :, 0]


class RNN(TorchCell):
    everywhere = True

    def __init__(self, w: dict[str, torch.Tensor]) -> None:
        super().__init__(w)
        self.bias = w["bias_ih"] + w["bias_hh"]

    def inputs(self, words: torch.Tensor) -> torch.Tensor:
        return linear(self.w["words"][words], self.w["weight_ih"], self.bias)

    def leaf(self, x: torch.Tensor, words: Any) -> State:
        return (torch.tanh(x),)

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        return (torch.tanh(x + linear(children[0][0], self.w["weight_hh"])),)


class LSTM(RNN):
    def leaf(self, x: torch.Tensor, words: Any) -> State:
        i, _, g, o = x.split(self.hidden, -1)
        c = torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        ((before, kept),) = children
        i, f, g, o = (x + linear(before, self.w["weight_hh"])).split(self.hidden, -1)
        c = torch.sigmoid(f) * kept + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class GRU(TorchCell):
    everywhere = True

    def inputs(self, words: torch.Tensor) -> torch.Tensor:
        return linear(self.w["words"][words], self.w["weight_ih"], self.w["bias_ih"])

    def leaf(self, x: torch.Tensor, words: Any) -> State:
        return self._computed(None, x, self.w["bias_hh"])

    def inner(self, children: Sequence[State], x: torch.Tensor | None) -> State:
        assert x is not None
        before = children[0][0]
        return self._computed(before, x, linear(before, self.w["weight_hh"], self.w["bias_hh"]))

    def _computed(self, before: torch.Tensor | None, x: torch.Tensor, u: torch.Tensor) -> State:
        h = self.hidden
        r, z = torch.sigmoid(x[..., : 2 * h] + u[..., : 2 * h]).split(h, -1)
        new = (1 - z) * torch.tanh(x[..., 2 * h :] + r * u[..., 2 * h :])
        return (new if before is None else new + z * before,)


CELLS: dict[str, Callable[[dict[str, torch.Tensor]], TorchCell]] = {
    "treefc": TreeFC,
    "dagrnn": DagRNN,
    "treegru": TreeGRU,
    "treelstm": TreeLSTM,
    "treernn": TreeRNN,
    "mvrnn": MVRNN,
    "rnn": RNN,
    "lstm": LSTM,
    "gru": GRU,
}
"""By the models' names."""
