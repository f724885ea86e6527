"""`Paths`: the facts about a forest's paths that Shapley values need, beside its nodes.

The players of the game are columns, or groups of columns. The value of a coalition S is the mean of leaves
over walks that follow the row at nodes of players in S, and take both branches, in proportion to their
covers, at other nodes (Lundberg et al., "Consistent Individualized Feature Attribution for Tree Ensembles",
algorithm 1).

On the path to a leaf, player i has a weight w_i, the inverse of the product of its branches' shares of cover,
and o_i, whether the row takes all of its branches. A leaf with value v and share of cover u contributes to
player i's Shapley value::

    v * u * (o_i * w_i - 1) * integral over t from 0 to 1 of product over j != i of q_j(t)
    q_j(t) = (1 - t) + t * o_j * w_j

because the integral of t**s * (1 - t)**(n - 1 - s) is the weight of a coalition of s among n players. With n
players on a path the integrand is a polynomial of degree n - 1, which Gauss-Legendre quadrature with
ceil(n / 2) points integrates exactly (`hbtvm.graph.reasons.quadrature`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble

_LEAST_SHARE = 1e-9
"""Least share of its parent's cover that a branch counts with: weights stay finite where training rows took
the other branch alone."""


@dataclass(frozen=True)
class Paths:
    """Arrays over the N nodes of a forest; indices count from the forest's first node."""

    levels: tuple[np.ndarray, ...]  # the nodes of each depth
    parent: np.ndarray  # int64, shape (N,): -1 at roots
    player: np.ndarray  # int32, shape (N,): the player that a split belongs to; -1 at leaves
    # Int64, shape (N,): at a split, the node behind the nearest earlier branch of its player on the path; -1
    # if there is none
    earlier: np.ndarray
    # Float64, shape (N,): the weight w of the parent's player behind the branch to a node; 1 at roots
    weight: np.ndarray
    share: np.ndarray  # float64, shape (N,): share of its tree's cover that reaches a node
    most: int  # most players on a path


def paths_of(ensemble: TreeEnsemble, player: np.ndarray) -> Paths:
    """Return the paths of a forest that keeps covers.

    `player`: int32, shape (n_features,): the player of each feature.
    """
    assert ensemble.cover is not None
    count = ensemble.n_nodes
    base = np.repeat(ensemble.offset[:-1], np.diff(ensemble.offset)).astype(np.int64)
    split = np.flatnonzero(~ensemble.is_leaf())
    left, right = base + ensemble.left, base + ensemble.right
    parent = np.full(count, -1, np.int64)
    parent[left[split]] = parent[right[split]] = split
    of_node = np.full(count, LEAF, np.int32)
    of_node[split] = player[ensemble.feature[split]]

    earlier = np.full(count, -1, np.int64)
    here, waiting = split, split  # waiting[i] looks for its player above here[i]
    while len(waiting):
        above = parent[here]
        known = above >= 0
        here, above, waiting = here[known], above[known], waiting[known]
        same = of_node[above] == of_node[waiting]
        earlier[waiting[same]] = here[same]
        here, waiting = above[~same], waiting[~same]

    share, weight = np.ones(count), np.ones(count)
    players = np.zeros(count, np.int64)
    levels = [ensemble.offset[:-1].astype(np.int64)]
    while True:
        inner = levels[-1][ensemble.left[levels[-1]] != LEAF]
        if not len(inner):
            break
        before = np.where(earlier[inner] >= 0, weight[earlier[inner]], 1.0)
        shares = _shares(ensemble.cover[left[inner]], ensemble.cover[right[inner]])
        for child, part in zip((left[inner], right[inner]), shares, strict=True):
            share[child] = share[inner] * part
            weight[child] = before / part
            players[child] = players[inner] + (earlier[inner] < 0)
        levels.append(np.stack([left[inner], right[inner]], 1).reshape(-1))
    most = int(players.max(initial=0))
    return Paths(tuple(levels), parent, of_node, earlier, weight, share, most)


def _shares(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of cover of both branches, which add up to 1."""
    total = left + right
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(total > 0, left / total, 0.5)
    part = np.clip(part, _LEAST_SHARE, 1 - _LEAST_SHARE)
    return part, 1 - part


def quadrature(players: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points and weights that integrate over 0 to 1, exactly for paths of so many players.

    Returns float64, shape (ceil(players / 2),) each.
    """
    points, weights = np.polynomial.legendre.leggauss(max(1, -(-players // 2)))
    return (points + 1) / 2, weights / 2


def expectation(ensemble: TreeEnsemble, paths: Paths) -> np.ndarray:
    """Return the value of the empty coalition: the raw scores' mean over covers, float64, shape (O,)."""
    leaf = ensemble.is_leaf()
    terms = np.where(leaf[:, None], ensemble.value * paths.share[:, None], 0.0)
    sums = np.add.reduceat(terms, ensemble.offset[:-1], axis=0)
    total = np.zeros(ensemble.n_outputs)
    for output in range(ensemble.value_width):
        np.add.at(total, ensemble.tree_output + output, sums[:, output])
    result: np.ndarray = ensemble.base_score + total / ensemble.divisor
    return result
