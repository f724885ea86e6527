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
        for level in paths.levels[1:]:
            above = paths.parent[level]
            before = paths.earlier[above]
            at = np.broadcast_to(above[:, None], (len(level), n))
            goes = goes_left(ensemble, at, X.T[ensemble.feature[above]])
            goes ^= (_first(ensemble, above) != level)[:, None]
            was = np.where((before >= 0)[:, None], taken[before], True)
            taken[level] = goes & was
            old = np.where(before >= 0, paths.weight[before], 1.0)
            q_old = np.where((before >= 0)[:, None, None], _q(was, old, points), 1.0)
            ratio[level] = _q(taken[level], paths.weight[level], points) / q_old
            down[level] = down[above] * ratio[level]
        up = np.zeros((ensemble.n_nodes, n, len(points), ensemble.value_width))
        leaf = ensemble.is_leaf()
        up[leaf] = (ensemble.value[leaf] * paths.share[leaf, None])[:, None, None, :]
        out = np.zeros((n, ensemble.n_outputs, self.n_players + 1))
        tree_of = np.repeat(np.arange(ensemble.n_trees), np.diff(ensemble.offset))
        for level in reversed(paths.levels[1:]):
            above = paths.parent[level]
            before = paths.earlier[above]
            was = np.where((before >= 0)[:, None], taken[before], True)
            old = np.where(before >= 0, paths.weight[before], 1.0)
            q_old = np.where((before >= 0)[:, None, None], _q(was, old, points), 1.0)
            q_new = _q(taken[level], paths.weight[level], points)
            new_term = (taken[level] * paths.weight[level, None] - 1)[:, :, None] / q_new
            old_term = np.where(
                (before >= 0)[:, None, None], (was * old[:, None] - 1)[:, :, None] / q_old, 0.0
            )
            values = np.einsum("enkv,enk->env", up[level], down[level] * (new_term - old_term))
            for output in range(ensemble.value_width):
                place = ensemble.tree_output[tree_of[level]] + output
                index: Any = (slice(None), place, paths.player[above])
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
