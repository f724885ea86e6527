"""Shapley values by their definition: the game of a forest, and all of its coalitions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble
from hbtvm.graph.trees.reference import goes_left


def with_covers(ensemble: TreeEnsemble, rng: np.random.Generator) -> TreeEnsemble:
    """Return the ensemble with random covers, each the sum of the children's."""
    from dataclasses import replace

    cover = rng.integers(1, 50, ensemble.n_nodes).astype(np.float64)
    base = np.repeat(ensemble.offset[:-1], np.diff(ensemble.offset))
    for node in reversed(range(ensemble.n_nodes)):  # children follow their parents
        if ensemble.left[node] != LEAF:
            cover[node] = cover[base[node] + ensemble.left[node]] + cover[base[node] + ensemble.right[node]]
    return replace(ensemble, cover=cover).validate()


def game(ensemble: TreeEnsemble, player: np.ndarray, row: np.ndarray, coalition: Sequence[int]) -> np.ndarray:
    """Return the value of a coalition for a row: raw scores, float64, shape (n_outputs,)."""
    assert ensemble.cover is not None
    total = np.zeros(ensemble.n_outputs)
    for tree, start in enumerate(ensemble.offset[:-1].tolist()):
        first = ensemble.tree_output[tree]
        waiting = [(start, 1.0)]
        while waiting:
            node, weight = waiting.pop()
            if ensemble.left[node] == LEAF:
                total[first : first + ensemble.value_width] += weight * ensemble.value[node]
                continue
            left, right = start + int(ensemble.left[node]), start + int(ensemble.right[node])
            feature = ensemble.feature[node]
            if player[feature] in coalition:
                at = np.array([node])
                goes = bool(goes_left(ensemble, at, row[feature : feature + 1])[0])
                waiting.append((left if goes else right, weight))
            else:
                share = ensemble.cover[left] / (ensemble.cover[left] + ensemble.cover[right])
                waiting += [(left, weight * share), (right, weight * (1 - share))]
    result: np.ndarray = ensemble.base_score + total / ensemble.divisor
    return result


def shapley(ensemble: TreeEnsemble, player: np.ndarray, players: int, row: np.ndarray) -> np.ndarray:
    """Return the Shapley values of a row: float64, shape (n_outputs, players)."""
    value = {
        coalition: game(ensemble, player, row, coalition)
        for size in range(players + 1)
        for coalition in itertools.combinations(range(players), size)
    }
    result = np.zeros((ensemble.n_outputs, players))
    for coalition, worth in value.items():
        size = len(coalition)
        for one in range(players):
            if one not in coalition:
                joined = tuple(sorted((*coalition, one)))
                weight = math.factorial(size) * math.factorial(players - size - 1) / math.factorial(players)
                result[:, one] += weight * (value[joined] - worth)
    return result
