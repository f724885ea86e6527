"""A recurrent network on the loop tree (AutoTVM, section 4 and figure 3d), by PyTorch.

Each loop is encoded by its context vector. A GRU runs from the bodies of the statements
outwards: a loop's state comes from its context and the sum of its children's states
(child-sum, as in TreeLSTM). Each state h is scattered into m slots by

    out_i = softmax(W^T h)_i h

and the slots, summed over all loops, are mapped to a score by a linear layer.

PyTorch is an extra. It fits the network; a caller may supply a kernel for predictions, which computes each
distinct loop once (see `hbtvm.cost_model.encoding.loop_trees`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.nn import functional

from hbtvm.cost_model import rank_loss
from hbtvm.cost_model.base import CostModel, Prediction, Vector, check, clean, slope, table_of
from hbtvm.cost_model.encoding.flat import CONTEXT, FLAT_NAMES, LEVELS, STATEMENTS
from hbtvm.cost_model.encoding.loop_trees import MakeScorer, Scorer, Weights, loop_trees

_PRESENT, _SHARED = CONTEXT.index("present"), CONTEXT.index("shared")

_CHUNK = 1024  # programs scored at a time


class _Network(nn.Module):  # type: ignore[misc]
    """Scores programs of shape (n, STATEMENTS, LEVELS, len(CONTEXT))."""

    def __init__(self, hidden: int, slots: int) -> None:
        super().__init__()
        self.read = nn.Linear(len(CONTEXT), hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.scatter = nn.Linear(hidden, slots, bias=False)
        self.score = nn.Linear(slots * hidden, 1)
        self.hidden, self.slots = hidden, slots

    def forward(self, trees: Any) -> Any:
        # Skip statements and levels that no program has.
        there = (trees[..., _PRESENT] > 0).any(dim=0)
        trees = trees[:, there.any(dim=1)][:, :, there.any(dim=0)]
        n, statements, levels, _ = trees.shape
        state = trees.new_zeros(n, statements, self.hidden)
        total = trees.new_zeros(n, self.slots, self.hidden)
        counted = trees.new_ones(n, statements)  # 0 for a child that another statement has added
        for level in reversed(range(levels)):
            rows = trees[:, :, level]
            present, shared = rows[..., _PRESENT], rows[..., _SHARED]
            # Statements of the same number share this loop, and their states are its children.
            number = (1 - shared).cumsum(dim=1)
            siblings = (number[:, :, None] == number[:, None, :]).to(trees.dtype)
            children = siblings @ (state * counted[..., None])
            step = self.cell(
                torch.relu(self.read(rows)).reshape(n * statements, -1),
                children.reshape(n * statements, -1),
            ).reshape(n, statements, -1)
            state = torch.where(present[..., None] > 0, step, state)
            # A shared loop counts once.
            counted = 1 - shared
            weight = torch.softmax(self.scatter(step), dim=-1) * (present * counted)[..., None]
            total = total + weight.transpose(1, 2) @ step
        return self.score(total.reshape(n, -1))[:, 0]


class TreeGRU(CostModel):
    """Learns the order of costs from loop trees (the loss is equation 2).

    Its features are `hbtvm.cost_model.encoding.flat.flat_features`.

    `epochs`: passes over the data in one fit.
    `hidden`, `slots`: size of a loop's state, and the number of slots that states are scattered into.
    `rate`: learning rate of Adam.
    `batch`: rows of one step; pairs are compared within it.
    `seed`: with the same seed the same data give the same model.
    `make_scorer`: creates a scorer from the weights of each fit. PyTorch scores if it is missing or returns
        None.
    """

    def __init__(
        self,
        *,
        epochs: int = 30,
        hidden: int = 32,
        slots: int = 4,
        rate: float = 0.01,
        batch: int = 128,
        seed: int = 0,
        make_scorer: MakeScorer | None = None,
    ) -> None:
        self.epochs, self.hidden, self.slots = epochs, hidden, slots
        self.rate, self.batch, self.seed = rate, batch, seed
        self._make_scorer = make_scorer
        self._scorer: Scorer | None = None
        self._network: _Network | None = None
        self._slope = 1.0
        self._mean: Any = None
        self._deviation: Any = None

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Learn the order of costs within each group (see `CostModel.fit`).

        Raises `ValueError` if the features are not loop trees.
        """
        table, times, labels, base = check(features, costs, groups, margin)
        trees = _trees(table)
        self._network = self._scorer = None
        if not any(len(set(times[labels == group])) > 1 for group in np.unique(labels)):
            return
        known = trees[trees[..., _PRESENT] > 0]
        self._mean, self._deviation = known.mean(dim=0), known.std(dim=0, unbiased=False) + 1e-3
        for flag in (_PRESENT, _SHARED):
            self._mean[flag], self._deviation[flag] = 0.0, 1.0
        trees = self._scaled(trees)
        rng = np.random.default_rng(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = _Network(self.hidden, self.slots)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.rate)
        shift = torch.as_tensor(rank_loss.STEEPNESS * base, dtype=torch.float32)
        with _one_thread():
            for _ in range(self.epochs):
                for block in rank_loss.blocks(times, labels, self.batch, rng):
                    loss = _rank_loss(network(trees[block]) + shift[block], times[block])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
        self._network = network.eval()
        if self._make_scorer is not None:
            self._scorer = self._make_scorer(_weights(self._network, self._mean, self._deviation))
        self._slope = slope(self._scores(table), times, labels, base)

    @property
    def is_compiled(self) -> bool:
        """Whether the supplied scorer predicts, rather than PyTorch."""
        return self._scorer is not None

    def predict(self, features: ArrayLike) -> Prediction:
        """Predict speeds without uncertainty (see `CostModel.predict`)."""
        return Prediction.certain(self._slope * self._scores(table_of(features)))

    def _scores(self, table: NDArray[np.float32]) -> Vector:
        """Return the network's scores, (n,)."""
        if self._network is None or len(table) == 0:
            return np.zeros(len(table))
        score = self._by_torch if self._scorer is None else self._by_scorer
        parts = [score(chunk) for chunk in np.array_split(table, len(table) // _CHUNK + 1)]
        return np.concatenate(parts).astype(np.float64)

    def _by_scorer(self, table: NDArray[np.float32]) -> NDArray[Any]:
        assert self._scorer is not None
        return self._scorer(loop_trees(table))

    def _by_torch(self, table: NDArray[np.float32]) -> NDArray[Any]:
        assert self._network is not None
        with torch.no_grad(), _one_thread():
            scores: NDArray[Any] = self._network(self._scaled(_trees(clean(table)))).numpy()
        return scores

    def _scaled(self, trees: Any) -> Any:
        """Scale each context to mean 0 and deviation 1; missing levels stay zeros."""
        return (trees - self._mean) / self._deviation * trees[..., _PRESENT : _PRESENT + 1]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit PyTorch to one thread: more threads are slower for such small matrices."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _trees(table: NDArray[np.float32]) -> Any:
    if table.shape[1] != len(FLAT_NAMES):
        raise ValueError(f"expected {len(FLAT_NAMES)} flattened loop features, got {table.shape[1]}")
    shape = (len(table), STATEMENTS, LEVELS, len(CONTEXT))
    return torch.from_numpy(np.nan_to_num(table)).reshape(shape)


def _weights(network: _Network, mean: Any, deviation: Any) -> Weights:
    """Return the network's weights for unscaled contexts."""
    parameters = {
        name: value.detach().numpy().astype(np.float64) for name, value in network.named_parameters()
    }
    mean, deviation = (value.numpy().astype(np.float64) for value in (mean, deviation))
    read, hidden = parameters["read.weight"] / deviation, network.hidden
    # GRUCell has a bias for each product; only the new state keeps them separate.
    bias = parameters["cell.bias_ih"] + np.append(parameters["cell.bias_hh"][: 2 * hidden], np.zeros(hidden))
    return {
        "read": read,
        "read_bias": parameters["read.bias"] - read @ mean,
        "input": parameters["cell.weight_ih"],
        "input_bias": bias,
        "state": parameters["cell.weight_hh"],
        "state_bias": parameters["cell.bias_hh"][2 * hidden :],
        "scatter": parameters["scatter.weight"],
        "score": parameters["score.weight"].reshape(network.slots, hidden),
        "bias": parameters["score.bias"],
    }


def _rank_loss(scores: Any, costs: NDArray[np.float64]) -> Any:
    """AutoTVM, equation 2, over the pairs of one group, divided by its size."""
    better = torch.from_numpy((costs[:, None] < costs[None, :]).astype(np.float32))
    return (functional.softplus(scores[None, :] - scores[:, None]) * better).sum() / len(costs)
