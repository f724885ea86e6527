"""`Splits`: a draft of an ensemble whose splits move in front of the steps on their columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.graph.trees.cuts import Chain, Cuts
from hbtvm.graph.trees.ensemble import CategorySet, CompareDtype, TreeEnsemble
from hbtvm.graph.trees.ordinals import floats
from hbtvm.graph.trees.prune import LEFT, OPEN, RIGHT, prune
from hbtvm.graph.trees.reference import goes_left
from hbtvm.graph.trees.rounding import float32_at_most

_AT_ONCE = 1 << 20  # bound of splits times codes decided at once, for memory


class Splits:
    """A draft of an ensemble: each method decides some of its splits, `ensemble` returns the result.

    `ensemble`: the original.
    `compare`: the type of the result's comparisons.
    """

    def __init__(self, ensemble: TreeEnsemble, compare: CompareDtype) -> None:
        self._of, self._compare = ensemble, compare
        self._threshold = ensemble.threshold.copy()
        self._default_left = ensemble.default_left.copy()
        self._category_set = ensemble.category_set.copy()
        self._zero_as_missing = ensemble.zero_as_missing.copy()
        self._swap = np.zeros(ensemble.n_nodes, bool)
        self._decided = np.full(ensemble.n_nodes, OPEN, np.int8)
        self._sets = list(ensemble.category_sets)
        self._set_of: dict[bytes, int] = {}

    def keep(self, nodes: np.ndarray) -> None:
        """Keep splits, but round their thresholds to the result's type."""
        if self._compare == "float32":
            self._threshold[nodes] = float32_at_most(self._threshold[nodes])

    def numbers(
        self, nodes: np.ndarray, chain: Chain, cuts: Cuts | None, which: np.ndarray, nan_comes: bool
    ) -> None:
        """Move splits on a number in front of its steps.

        `nodes`: int64, shape (M,): the splits, plain comparisons.
        `cuts`: the thresholds' cuts of raw numbers; None if they need not move.
        `which`: int64, shape (M,): the cut of each split.
        `nan_comes`: whether raw numbers may be NaN.
        """
        threshold, default = self._of.threshold[nodes], self._of.default_left[nodes]
        nan_left = _side(chain.at_nan, threshold, default)
        fixed = np.zeros(len(nodes), bool)
        side, moved, rising = fixed, threshold, True
        if chain.constant is not None:
            fixed, side = ~fixed, _side(chain.constant, threshold, default)
        elif cuts is not None:
            at, rising = cuts.ordinal[which], cuts.rising
            fixed = (at < chain.low) | (at == chain.high)
            side = (at == chain.high) == rising
            moved = floats(np.maximum(at, chain.low), chain.dtype).astype(np.float64)
        decided = fixed & ((nan_left == side) | (not nan_comes))
        self._decided[nodes] = np.where(decided, np.where(side, LEFT, RIGHT), OPEN)
        # If all numbers go one way and only NaN the other, NaN goes right.
        swap = np.where(fixed, ~side, not rising)
        self._swap[nodes] = swap
        self._threshold[nodes] = np.where(fixed, np.inf, moved)
        self._default_left[nodes] = ~fixed & (nan_left ^ swap) & nan_comes

    def codes(self, nodes: np.ndarray, values: np.ndarray, possible: int) -> None:
        """Move splits on the numbers of codes to the codes.

        `nodes`: int64, shape (M,).
        `values`: float64, shape (codes,): the number of each code.
        `possible`: number of codes that occur; later codes may go anywhere.
        """
        keys = np.stack(
            [
                self._of.threshold[nodes],
                self._of.default_left[nodes],
                self._of.zero_as_missing[nodes],
                self._of.category_set[nodes],
            ],
            axis=1,
        )
        _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        which = which.reshape(-1)
        threshold, decided = np.zeros(len(first)), np.full(len(first), OPEN, np.int8)
        swap, category_set = np.zeros(len(first), bool), np.full(len(first), -1, np.int32)
        for u, left in enumerate(self._left(nodes[first], values)):
            count = int(left[:possible].sum())
            if count in (0, possible):
                decided[u] = LEFT if count else RIGHT
            elif left[:count].all():
                threshold[u] = count - 1
            elif left[possible - count : possible].all():
                threshold[u], swap[u] = possible - count - 1, True
            else:
                category_set[u] = self._set(left)
        self._threshold[nodes], self._decided[nodes] = threshold[which], decided[which]
        self._swap[nodes], self._category_set[nodes] = swap[which], category_set[which]
        # Codes are never missing, nor is code 0.
        self._default_left[nodes] = self._zero_as_missing[nodes] = False

    def _left(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return whether each code goes left at each node: bool, shape (nodes, codes)."""
        # One-hot columns have many codes, but two values.
        distinct, of_code = np.unique(values, return_inverse=True)
        left = np.empty((len(nodes), len(distinct)), bool)
        step = max(1, _AT_ONCE // len(distinct))
        for start in range(0, len(nodes), step):
            block = nodes[start : start + step]
            left[start : start + step] = self._goes_left(block[:, None], distinct)
        result: np.ndarray = left[:, of_code.reshape(-1)]
        return result

    def _goes_left(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return whether each value goes left at each node, shape (M, 1): bool, shape (M, values)."""
        original = self._of
        with np.errstate(over="ignore"):
            if np.any(original.zero_as_missing[nodes]) or np.any(original.category_set[nodes] >= 0):
                shape = (len(nodes), len(values))
                return goes_left(original, np.broadcast_to(nodes, shape), np.broadcast_to(values, shape))
            x = values.astype(original.compare_dtype).astype(np.float64)
        default, threshold = original.default_left[nodes], original.threshold[nodes]
        result: np.ndarray = np.where(np.isnan(x), default, x <= threshold)
        return result

    def _set(self, left: np.ndarray) -> int:
        at = self._set_of.setdefault(left.tobytes(), len(self._sets))
        if at == len(self._sets):
            self._sets.append(CategorySet(left.copy()))
        return at

    def ensemble(self) -> TreeEnsemble:
        """Return the result; its features are those of the original."""
        original = self._of
        result = replace(
            original,
            compare_dtype=self._compare,
            threshold=self._threshold,
            left=np.where(self._swap, original.right, original.left),
            right=np.where(self._swap, original.left, original.right),
            default_left=self._default_left,
            zero_as_missing=self._zero_as_missing,
            category_set=self._category_set,
            category_sets=tuple(self._sets),
        )
        decided = np.where(self._swap & (self._decided != OPEN), LEFT + RIGHT - self._decided, self._decided)
        pruned, _ = prune(result, decided)
        return _without_unused_sets(pruned)


def _side(value: float, threshold: np.ndarray, default: np.ndarray) -> np.ndarray:
    """Return whether a value goes left; NaN goes by default."""
    return default if np.isnan(value) else value <= threshold


def _without_unused_sets(ensemble: TreeEnsemble) -> TreeEnsemble:
    used = np.unique(ensemble.category_set[ensemble.category_set >= 0])
    place = np.full(len(ensemble.category_sets) + 1, -1, np.int32)
    place[used] = np.arange(len(used))
    return replace(
        ensemble,
        category_set=place[ensemble.category_set],
        category_sets=tuple(ensemble.category_sets[at] for at in used),
    )
