"""Modules of one node in several styles, and their states by torch, node by node."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hbtvm.recursive import reference
from hbtvm.recursive.cell import Cell
from hbtvm.runtime.recursive.structures import Structures
from tests.recursive.random_cells import random_structures

HIDDEN, WIDTH, WORDS = 6, 5, 11


class ChildSumLSTM(nn.Module):
    """Tai'15, equations 2 to 8; all gates in one product, parted by ``chunk``."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.W = nn.Linear(WIDTH, 3 * HIDDEN)
        self.U = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.Wf = nn.Linear(WIDTH, HIDDEN)
        self.Uf = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, h: torch.Tensor, c: torch.Tensor, word: torch.Tensor) -> Any:
        x = self.words(word)
        i, o, u = (self.W(x) + self.U(h.sum(1))).chunk(3, dim=1)
        f = torch.sigmoid(self.Uf(h) + self.Wf(x).unsqueeze(1))
        c = torch.sigmoid(i) * torch.tanh(u) + (f * c).sum(dim=1)
        return torch.sigmoid(o) * torch.tanh(c), c


class ChildSumLSTMBias(ChildSumLSTM):
    """A bias for each child that is added up, also where there is no child and its state is zero."""

    def forward(self, h: torch.Tensor, c: torch.Tensor, word: torch.Tensor) -> Any:
        x = self.words(word)
        i, o, u = torch.split(self.W(x) + self.U(h.sum(1)), HIDDEN, dim=-1)
        f = torch.sigmoid(self.Uf(h) + self.Wf(x)[:, None])
        s = (torch.relu(self.Uf(h) + 0.25) * f).sum(1)
        c = i.sigmoid() * u.tanh() + torch.sum(f * c, 1) + 0.5 * s
        return {"c": c, "h": o.sigmoid() * c.tanh()}


class NaryLSTM(nn.Module):
    """Tai'15, equations 9 to 14: children side by side in one vector."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Linear(WIDTH, 4 * HIDDEN)
        self.iou = nn.Linear(2 * HIDDEN, 3 * HIDDEN, bias=False)
        self.f = nn.Linear(2 * HIDDEN, 2 * HIDDEN)

    def forward(self, h: torch.Tensor, c: torch.Tensor, x: torch.Tensor) -> Any:
        both = h.reshape(h.shape[0], -1)
        xi, xo, xu, xf = self.x(x).split(HIDDEN, 1)
        hi, ho, hu = self.iou(both).tensor_split(3, dim=1)
        f = torch.sigmoid(self.f(both).view(-1, 2, HIDDEN) + xf.unsqueeze(1).expand(-1, 2, -1))
        c = torch.sigmoid(xi + hi) * torch.tanh(xu + hu) + (f * c).sum(1)
        return torch.sigmoid(xo + ho) * torch.tanh(c), c


class TreeGRU(nn.Module):
    """With plain parameters and ``F.linear``."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in {
            "Wx": (3 * HIDDEN, WIDTH), "U": (2 * HIDDEN, HIDDEN), "Uh": (HIDDEN, HIDDEN), "b": (3 * HIDDEN,),
        }.items():  # fmt: skip
            setattr(self, name, nn.Parameter(torch.randn(shape) * 0.5))

    def forward(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        s = torch.sum(h, dim=1)
        a = functional.linear(x, self.Wx, self.b)
        r, z = torch.sigmoid(a[:, : 2 * HIDDEN] + s @ self.U.t()).chunk(2, -1)
        new = torch.tanh(a[:, 2 * HIDDEN :] + (r * s).matmul(self.Uh.T))
        return (1 - z) * new + z * s


class TreeFC(nn.Module):
    """Looks'17: an embedding at leaves, a layer over both children elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, HIDDEN)
        self.layer = nn.Sequential(nn.Linear(2 * HIDDEN, HIDDEN), nn.ReLU())

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.cat([h[:, 0], h[:, 1]], dim=-1))

    def leaf(self, word: torch.Tensor) -> torch.Tensor:
        return self.words(word)


class MVRNN(nn.Module):
    """Socher'12: a vector and a matrix of each node."""

    def __init__(self) -> None:
        super().__init__()
        self.W = nn.Linear(2 * HIDDEN, HIDDEN)
        self.WM = nn.Parameter(torch.randn(HIDDEN, 2 * HIDDEN) * 0.3)
        self.vectors = nn.Embedding(WORDS, HIDDEN)
        self.matrices = nn.Embedding(WORDS, HIDDEN * HIDDEN)

    def forward(self, p: torch.Tensor, P: torch.Tensor) -> Any:
        a, b = p.unbind(1)
        A, B = P[:, 0], P[:, 1]
        ba, ab = torch.bmm(B, a.unsqueeze(2)).squeeze(2), torch.bmm(A, b.unsqueeze(-1)).squeeze(-1)
        return torch.tanh(self.W(torch.cat((ba, ab), 1))), torch.matmul(self.WM, torch.cat((A, B), 1))

    def leaf(self, word: torch.Tensor) -> Any:
        return self.vectors(word), self.matrices(word).view(-1, HIDDEN, HIDDEN)


class Einsum(nn.Module):
    """A matrix for each place, by ``einsum``, and the mean and the maximum over children."""

    def __init__(self) -> None:
        super().__init__()
        self.U = nn.Parameter(torch.randn(2, HIDDEN, HIDDEN) * 0.4)
        self.V = nn.Parameter(torch.randn(HIDDEN, HIDDEN) * 0.4)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, HIDDEN))

    def forward(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        one = torch.einsum("bch,coh->bo", h, self.U)
        two = torch.einsum("bch,oh->bco", h, self.V).mean(1)
        return torch.tanh(one + self.scale * two + h.amax(1) - 2.0 / (3.0 + h.max(dim=1)[0].exp()) + x)


class Attention(nn.Module):
    """Children weighted by a softmax over them."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(HIDDEN, 1)
        self.gate = nn.Linear(HIDDEN, 3)
        self.W = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        weight = torch.softmax(self.score(torch.tanh(self.W(h))), dim=1)
        s = (weight * h).sum(1)
        gated = (s.view(-1, 3, HIDDEN // 3) * self.gate(x).softmax(-1).unsqueeze(-1)).flatten(1)
        return functional.silu(gated) + torch.clamp(x, -1, 1) - functional.leaky_relu(s)


class BesideTheSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.U = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.U(h) + h.sum(1, keepdim=True)).sum(1) + x


class BesideTheSecond(BesideTheSum):
    def forward(self, h: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.U(h) - h[:, 1:2]).sum(1) + x


class Left(nn.Module):
    """An argument for each child."""

    def __init__(self) -> None:
        super().__init__()
        self.U = nn.Linear(HIDDEN, HIDDEN)
        self.V = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, left: torch.Tensor, right: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        stacked = torch.stack([self.U(left), self.V(right), x], dim=1)
        gates = torch.sigmoid(torch.addmm(self.U.bias, right, self.V.weight.T, beta=0.5, alpha=2))
        return torch.tanh(stacked.permute(1, 0, 2).sum(0)) * gates + torch.zeros_like(x)


def states(
    module: nn.Module,
    cell: Cell,
    structures: Structures,
    leaf: str = "",
    reduce: bool = False,
    apart: bool = False,
) -> dict[str, np.ndarray]:
    """States of all nodes, float64, one call of the module in float64 for each node."""
    module = copy.deepcopy(module).double()
    count = len(structures.first) - 1
    found = {name: torch.zeros((count, *shape), dtype=torch.double) for name, shape in cell.states.items()}
    with torch.no_grad():
        for node in reference.order(structures):
            places = structures.child[structures.first[node] : structures.first[node + 1]].tolist()
            inputs = {}
            for name, one in cell.inputs.items():
                value = torch.tensor(structures.inputs[name][node : node + 1])
                inputs[name] = value.long() if one.kind == "number" else value.double()
            there = [one for one in places if one >= 0]
            if leaf and not there:
                results = getattr(module, leaf)(**inputs)
            else:
                padded = there if cell.children is None else [*places, *[-1] * (cell.children - len(places))]
                arguments: list[torch.Tensor] = []
                for name, shape in cell.states.items():
                    rows = [found[name][one] if one >= 0 else torch.zeros(shape).double() for one in padded]
                    whole = torch.stack(rows) if rows else torch.zeros((0, *shape)).double()
                    if apart:
                        arguments += [row[None] for row in rows]
                    else:
                        arguments.append(whole.sum(0)[None] if reduce else whole[None])
                taken = {} if leaf else inputs
                results = module(*arguments, *taken.values())
            if isinstance(results, dict):
                results = [results[name] for name in cell.states]
            results = results if isinstance(results, tuple | list) else [results]
            for name, result in zip(cell.states, results, strict=True):
                found[name][node] = result[0]
    return {name: value.numpy() for name, value in found.items()}


def agree(module: Any, cell: Cell, **how: Any) -> None:
    """The cell computes what the module does, at nodes with all, some and no children."""
    for seed in range(2):
        structures = random_structures(cell, seed, count=4)
        found = reference.states(cell, structures)
        expected = states(module, cell, structures, **how)
        for name, value in expected.items():
            assert np.allclose(found[name], value, atol=1e-6), name


def saved(module: Any, arguments: tuple[Any, ...], varying: tuple[Any, ...], plain: bool = True) -> bytes:
    """A ``.pt2`` file's content; `plain`: not decomposed."""
    symbols = {"b": torch.export.Dim("b", min=1, max=4096), "c": torch.export.Dim("c", min=1, max=64)}
    shapes = tuple({at: symbols[one] for at, one in axes.items()} for axes in varying)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module.eval(), arguments, dynamic_shapes=shapes)
        torch.export.save(exported if plain else exported.run_decompositions(), file)
    return file.getvalue()
