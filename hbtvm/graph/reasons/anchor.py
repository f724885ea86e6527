"""`TreeReasons`: the Shapley values of a forest's players, as the anchor of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hbtvm.graph.reasons.paths import Paths, expectation, paths_of, quadrature
from hbtvm.graph.trees.ensemble import CompareDtype, TreeEnsemble
from hbtvm.graph.trees.reference import goes_left

_AT_ONCE = 1 << 22  # numbers of a level that the reference computes at once, for memory


@dataclass(frozen=True, eq=False)
class TreeReasons:
    """Path-dependent Shapley values (see `hbtvm.graph.reasons.paths`).

    Scores are, for each output of the forest, a value for each player, P, and the mean over covers, which the
    values add to.
    """

    ensemble: TreeEnsemble  # keeps covers
    player: np.ndarray  # int32, shape (n_features,): the player of each feature
    n_players: int  # P

    @property
    def n_features(self) -> int:
        """Columns of the input."""
        return self.ensemble.n_features

    @property
    def n_outputs(self) -> int:
        """Scores of a row: outputs of the forest times P + 1."""
        return self.ensemble.n_outputs * (self.n_players + 1)

    @property
    def compare_dtype(self) -> CompareDtype:
        """As of the forest."""
        return self.ensemble.compare_dtype

    @property
    def divisor(self) -> float:
        """As of the forest."""
        return self.ensemble.divisor

    @property
    def base_score(self) -> np.ndarray:
        """float64, shape (n_outputs,): the means, and zeros for players."""
        base = np.zeros((self.ensemble.n_outputs, self.n_players + 1))
        base[:, -1] = expectation(self.ensemble, self.paths)
        return base.reshape(-1)

    @cached_property
    def paths(self) -> Paths:
        """Facts about the forest's paths."""
        return paths_of(self.ensemble, self.player)

    def reference(self, X: np.ndarray) -> np.ndarray:
        """Return the scores of rows, float64, shape (n, n_outputs)."""
        widest = max(map(len, self.paths.levels)) * len(quadrature(self.paths.most)[0])
        step = max(1, _AT_ONCE // max(1, widest * self.ensemble.value_width))
        blocks = [self._block(X[at : at + step]) for at in range(0, len(X), step)]
        return np.concatenate(blocks) if blocks else np.zeros((0, self.n_outputs))

    def _block(self, X: np.ndarray) -> np.ndarray:
        ensemble, paths, n = self.ensemble, self.paths, len(X)
        points, weights = quadrature(paths.most)
        taken = np.zeros((ensemble.n_nodes, n), bool)  # o of the parent's player behind the branch to a node
        down = np.zeros((ensemble.n_nodes, n, len(points)))  # product of q over the players above a node
        down[paths.levels[0]] = weights
        ratio = np.ones_like(down)
        terms = []  # by level, what a player's branches add: (o * w - 1) / q, less the earlier branch's
        for level in paths.levels[1:]:
            above = paths.parent[level]
            at = np.broadcast_to(above[:, None], (len(level), n))
            goes = goes_left(ensemble, at, X.T[ensemble.feature[above]])
            goes ^= (_first(ensemble, above) != level)[:, None]
            earlier = paths.earlier[above]
            again = earlier >= 0
            was = np.where(again[:, None], taken[earlier], True)
            taken[level] = goes & was
            old = np.where(again, paths.weight[earlier], 1.0)  # without an earlier branch, q is 1
            q_old, q_new = _q(was, old, points), _q(taken[level], paths.weight[level], points)
            ratio[level] = q_new / q_old
            down[level] = down[above] * ratio[level]
            new_term = (taken[level] * paths.weight[level, None] - 1)[:, :, None] / q_new
            terms.append(new_term - (was * old[:, None] - 1)[:, :, None] / q_old)
        up = np.zeros((ensemble.n_nodes, n, len(points), ensemble.value_width))
        leaf = ensemble.is_leaf()
        up[leaf] = (ensemble.value[leaf] * paths.share[leaf, None])[:, None, None, :]
        out = np.zeros((n, ensemble.n_outputs, self.n_players + 1))
        first = np.repeat(ensemble.tree_output, np.diff(ensemble.offset))
        for level, term in zip(reversed(paths.levels[1:]), reversed(terms), strict=True):
            above = paths.parent[level]
            values = np.einsum("enkv,enk->env", up[level], down[level] * term)
            for output in range(ensemble.value_width):
                index: Any = (slice(None), first[level] + output, paths.player[above])
                np.add.at(out, index, values[:, :, output].T)
            np.add.at(up, above, up[level] * ratio[level][..., None])
        scores: np.ndarray = out.reshape(n, -1) / self.divisor + self.base_score
        return scores


def _q(taken: np.ndarray, weight: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return q of players: shape (nodes, rows, points)."""
    q: np.ndarray = (1 - points) + points * (taken * weight[:, None])[:, :, None]
    return q


def _first(ensemble: TreeEnsemble, node: np.ndarray) -> np.ndarray:
    """Return the left children of splits."""
    base = ensemble.offset[np.searchsorted(ensemble.offset, node, "right") - 1]
    left: np.ndarray = base + ensemble.left[node]
    return left
