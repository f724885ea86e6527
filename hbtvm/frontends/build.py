"""From a library's list of trees to a `TreeEnsemble`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.graph.trees.covers import checked
from hbtvm.graph.trees.ensemble import LEAF, CategorySet, CompareDtype, TreeEnsemble

MOST_FEATURES = 1 << 24
"""Bound of a model's columns, as files may claim any number: a row of so many takes 64 MiB."""


def feature_count(claimed: int) -> int:
    """Return the number of features that a file claims.

    Raises `ModelError` if there are none. Raises `UnsupportedModel` if there are more than `MOST_FEATURES`.
    """
    if claimed < 1:
        raise ModelError(f"the model has {claimed} features; expected at least one.")
    if claimed > MOST_FEATURES:
        raise UnsupportedModel(
            f"the model has {claimed:,} features; at most {MOST_FEATURES:,} are supported."
        )
    return claimed


@dataclass(frozen=True)
class Tree:
    """A tree of M nodes with the root first; arrays as in `TreeEnsemble`."""

    # `feature`, `left`, `right`: int arrays, shape (M,); `left` is -1 at leaves, the others are ignored there
    feature: np.ndarray
    threshold: np.ndarray  # float64, shape (M,); ignored at leaves and categorical splits
    left: np.ndarray
    right: np.ndarray
    default_left: np.ndarray  # bool, shape (M,)
    value: np.ndarray  # float64, shape (M, V); ignored at splits
    zero_as_missing: np.ndarray | None = None  # bool, shape (M,); None for False
    categories: dict[int, CategorySet] | None = None  # by node, the sets of categorical splits
    # Float64, shape (M,), as the file has it; NaN at splits for the sum of the children; None if unknown
    cover: np.ndarray | None = None
    leaf_id: np.ndarray | None = None  # int, shape (M,); ignored at splits; None if unknown


def assemble(
    trees: Sequence[Tree],
    *,
    n_features: int,
    compare_dtype: CompareDtype,
    tree_output: Sequence[int] | np.ndarray,
    base_score: Sequence[float] | np.ndarray,
    divisor: float = 1.0,
    negative_fraction_is_zero: bool = False,
) -> TreeEnsemble:
    """Join trees to an ensemble, without nodes that no row can reach; equal category sets are stored once.

    `n_features`, `compare_dtype`, `tree_output`, `base_score`, `divisor`, `negative_fraction_is_zero`: as in
        `TreeEnsemble`; there are as many outputs as base scores.
    Raises `UnsupportedModel` if there is no tree. Raises `ModelError` if the arrays are not trees (as in a
    damaged file).
    """
    if not trees:
        raise UnsupportedModel("the model has no trees, so it is not fitted; hbtvm compiles trained models.")
    try:
        trees = [_only_reachable(tree, number) for number, tree in enumerate(trees)]
        sets = _CategoryTable()
        category_set = np.concatenate([sets.indices(tree) for tree in trees])
        left = np.concatenate([tree.left for tree in trees]).astype(np.int32)
        leaf = left == LEAF
        right = np.where(leaf, LEAF, np.concatenate([tree.right for tree in trees])).astype(np.int32)
        offset = np.cumsum([0] + [len(tree.left) for tree in trees], dtype=np.int64)
        categorical = category_set >= 0
        cover, leaf_id = _joined([t.cover for t in trees]), _joined([t.leaf_id for t in trees])
        return TreeEnsemble(
            n_features=n_features,
            n_outputs=len(base_score),
            compare_dtype=compare_dtype,
            offset=offset,
            feature=np.where(leaf, LEAF, np.concatenate([tree.feature for tree in trees])).astype(np.int32),
            threshold=np.where(leaf | categorical, 0.0, np.concatenate([tree.threshold for tree in trees])),
            left=left,
            right=right,
            default_left=~leaf & np.concatenate([tree.default_left for tree in trees]),
            zero_as_missing=~leaf & np.concatenate([_zeros_missing(tree) for tree in trees]),
            category_set=np.where(leaf, -1, category_set).astype(np.int32),
            value=np.where(leaf[:, None], np.concatenate([tree.value for tree in trees]), 0.0),
            tree_output=np.asarray(tree_output, np.int32),
            base_score=np.asarray(base_score, np.float64),
            divisor=float(divisor),
            category_sets=tuple(sets.sets),
            negative_fraction_is_zero=negative_fraction_is_zero,
            cover=None if cover is None else checked(cover, left, right, offset),
            leaf_id=None if leaf_id is None else np.where(leaf, leaf_id, 0).astype(np.int32),
        ).validate()
    except ModelError:
        raise
    except (ValueError, IndexError) as error:
        raise ModelError(f"the model's trees don't fit together: {error}.") from error


class _CategoryTable:
    """Gives equal category sets the same index."""

    def __init__(self) -> None:
        self.sets: list[CategorySet] = []
        self._known: dict[tuple[bytes, int, bool], int] = {}

    def indices(self, tree: Tree) -> np.ndarray:
        result = np.full(len(tree.left), -1, np.int64)
        seen: dict[int, int] = {}
        for node, chosen in (tree.categories or {}).items():
            # Nodes often share a set, which may be large.
            if id(chosen) in seen:
                result[node] = seen[id(chosen)]
                continue
            member = np.asarray(chosen.member, bool)
            key = (np.packbits(member).tobytes(), len(member), chosen.outside_left)
            if key not in self._known:
                self._known[key] = len(self.sets)
                self.sets.append(CategorySet(member, chosen.outside_left))
            result[node] = seen[id(chosen)] = self._known[key]
        return result


def _joined(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return the facts of all trees' nodes; None if a tree lacks them."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _zeros_missing(tree: Tree) -> np.ndarray:
    return np.zeros(len(tree.left), bool) if tree.zero_as_missing is None else tree.zero_as_missing


def _in_order(tree: Tree) -> bool:
    """Return whether each node but the first is a child of one node before it, so all are reachable."""
    splits, count = np.flatnonzero(tree.left != LEAF), len(tree.left)
    children = np.stack([tree.left[splits], tree.right[splits]])
    if children.size != count - 1 or np.any((children <= splits) | (children >= count)):
        return False
    child = np.zeros(count, bool)
    child[children] = True
    return bool(np.count_nonzero(child) == count - 1)


def _only_reachable(tree: Tree, number: int) -> Tree:
    """Drop nodes that no path reaches (XGBoost leaves pruned nodes behind); refuse loops."""
    nodes = len(tree.left)
    if nodes == 0:
        raise ValueError(f"tree {number} has no nodes")
    if _in_order(tree):
        return tree
    seen = np.zeros(nodes, bool)
    seen[0] = True
    frontier = np.zeros(1, np.int64)
    while True:
        frontier = frontier[tree.left[frontier] != LEAF]
        if not len(frontier):
            break
        frontier = np.concatenate([tree.left[frontier], tree.right[frontier]]).astype(np.int64)
        if np.any(frontier < 1) or np.any(frontier >= nodes):
            raise ValueError(f"a child in tree {number} points outside the tree")
        if np.any(seen[frontier]) or len(np.unique(frontier)) < len(frontier):
            raise ValueError(f"tree {number} has a node with two parents")
        seen[frontier] = True
    if seen.all():
        return tree
    number_of = np.cumsum(seen) - 1
    leaf = tree.left == LEAF
    left = np.where(leaf, LEAF, number_of[np.where(leaf, 0, tree.left)])
    right = np.where(leaf, LEAF, number_of[np.where(leaf, 0, tree.right)])
    return Tree(
        feature=tree.feature[seen],
        threshold=tree.threshold[seen],
        left=left[seen],
        right=right[seen],
        default_left=tree.default_left[seen],
        value=tree.value[seen],
        zero_as_missing=_zeros_missing(tree)[seen],
        categories={int(number_of[n]): c for n, c in (tree.categories or {}).items() if seen[n]},
        cover=None if tree.cover is None else tree.cover[seen],
        leaf_id=None if tree.leaf_id is None else tree.leaf_id[seen],
    )
