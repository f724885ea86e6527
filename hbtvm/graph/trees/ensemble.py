"""`TreeEnsemble`: a model's trees, independent of the library.

A row walks a tree from its root; at a split node on feature ``f`` with value ``x``:

1. numeric split: if the node treats zeros as missing and ``|x| <= ZERO_THRESHOLD``, or if ``x`` is NaN, take
   the node's default direction; else go left if ``x <= threshold``, compared in `TreeEnsemble.compare_dtype`;
2. categorical split: if ``x`` is NaN take the default direction; else cut ``x`` to an integer ``c`` and go
   left if ``c`` is in the node's `CategorySet`.

Front ends turn strict comparisons into ``<=`` (``x < t`` in float32 is ``x <= nextafter(t, -inf)``), so one
comparison serves every library.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

LEAF = -1  # value of `left`, `right` and `feature` at leaf nodes

ZERO_THRESHOLD = float(np.float32(1e-35))
"""LightGBM's bound of values that count as zero, if zeros count as missing."""

CompareDtype = Literal["float32", "float64"]

PER_NODE = (
    "feature", "threshold", "left", "right", "default_left", "zero_as_missing", "category_set",
)  # fmt: skip
"""Fields of `TreeEnsemble` of shape (N,) that every ensemble has."""

PER_NODE_FACTS = ("cover", "leaf_id")
"""Optional fields of `TreeEnsemble` that predictions do not need, each of a value for each node."""


@dataclass(frozen=True)
class CategorySet:
    """The categories that go left at a categorical node."""

    member: np.ndarray  # bool array of shape (size,): whether category c goes left, for 0 <= c < size
    outside_left: bool = False  # whether values below 0, or not below size, go left


@dataclass(frozen=True)
class TreeEnsemble:
    """A forest as flat arrays over its N nodes; tree t has the nodes ``offset[t]:offset[t + 1]``."""

    n_features: int  # columns of the input
    n_outputs: int  # number of raw scores (margins) for each row, O
    # The library's type of comparisons: rows are cast to it first. If ``"float32"``, every threshold must be
    # a float32 value.
    compare_dtype: CompareDtype
    offset: np.ndarray  # int64, shape (T + 1,): the first node of each tree, its root
    feature: np.ndarray  # int32, shape (N,): feature of a split node, `LEAF` at leaves
    threshold: np.ndarray  # float64, shape (N,): numeric splits go left if ``x <= threshold``. 0 elsewhere.
    # `left`, `right`: int32, shape (N,): children, counted from the tree's first node; `LEAF` at leaves
    left: np.ndarray
    right: np.ndarray
    default_left: np.ndarray  # bool, shape (N,): whether a missing value goes left
    zero_as_missing: np.ndarray  # bool, shape (N,): whether values within `ZERO_THRESHOLD` of 0 are missing
    category_set: np.ndarray  # int32, shape (N,): index into `category_sets` at categorical nodes, else -1
    value: np.ndarray  # float64, shape (N, V): a leaf's terms of V neighbouring outputs; 0 at splits
    tree_output: np.ndarray  # int32, shape (T,): the first of the V outputs that a tree adds to
    base_score: np.ndarray  # float64, shape (O,): added to the sum (after `divisor`)
    divisor: float = 1.0  # divides the sum over the trees (number of trees for an averaging forest)
    category_sets: tuple[CategorySet, ...] = field(default=())  # distinct sets of the categorical nodes
    # Whether a value in (-1, 0) at a categorical node is category 0 (cut towards zero) rather than outside
    negative_fraction_is_zero: bool = False
    precise: bool = False  # whether leaf values have to stay float64 even for outputs in float32 precision
    # Float64, shape (N,): the training weight of the rows that reached each node, as the library measures it
    # (rows, weights, sums of Hessians); None if it keeps none
    cover: np.ndarray | None = None
    # Int32, shape (N,): the library's number of each leaf; 0 at splits. None if the library has none
    leaf_id: np.ndarray | None = None

    @property
    def n_trees(self) -> int:
        """Number of trees, T."""
        return len(self.offset) - 1

    @property
    def n_nodes(self) -> int:
        """Number of nodes of all trees, N, leaves included."""
        return int(self.offset[-1])

    @property
    def value_width(self) -> int:
        """Number of outputs that a leaf adds to, V."""
        return int(self.value.shape[1])

    def is_leaf(self) -> np.ndarray:
        """Return the mask of leaves: bool, shape (N,)."""
        leaf: np.ndarray = self.left == LEAF
        return leaf

    def depths(self) -> np.ndarray:
        """Return int32, shape (N,): the number of splits above each node."""
        depth = np.zeros(self.n_nodes, np.int32)
        base = np.repeat(self.offset[:-1], np.diff(self.offset))
        frontier = self.offset[:-1].astype(np.int64)
        frontier = frontier[self.left[frontier] != LEAF]
        level = 0
        while len(frontier):
            level += 1
            start = base[frontier]
            children = np.concatenate([start + self.left[frontier], start + self.right[frontier]])
            depth[children] = level
            frontier = children[self.left[children] != LEAF]
        return depth

    def max_depth(self) -> int:
        """Return the number of splits on the longest path; 0 if every tree is a single leaf."""
        return int(self.depths().max(initial=0))

    def leaves_per_tree(self) -> np.ndarray:
        """Return int64, shape (T,): the number of leaves of each tree."""
        return np.add.reduceat(self.is_leaf().astype(np.int64), self.offset[:-1])

    def over(self, place: np.ndarray, width: int) -> TreeEnsemble:
        """Return the trees over `width` other features.

        `place`: int, shape (n_features,): the new index of each feature that a split reads.
        """
        feature = np.where(self.is_leaf(), LEAF, place[self.feature]).astype(np.int32)
        return replace(self, n_features=width, feature=feature)

    def validate(self) -> TreeEnsemble:
        """Return the ensemble.

        Raises `ValueError` if its arrays do not fit each other.
        """
        nodes, trees = self.n_nodes, self.n_trees
        if trees < 1 or self.offset[0] != 0 or np.any(np.diff(self.offset) < 1):
            raise ValueError("every tree needs at least one node")
        for name in PER_NODE + PER_NODE_FACTS:
            array = getattr(self, name)
            if array is not None and array.shape != (nodes,):
                raise ValueError(f"{name} has shape {array.shape}, expected ({nodes},)")
        if self.value.ndim != 2 or len(self.value) != nodes:
            raise ValueError(f"value has shape {self.value.shape}, expected ({nodes}, outputs per leaf)")
        leaf = self.is_leaf()
        if np.any(leaf != (self.right == LEAF)) or np.any(leaf != (self.feature == LEAF)):
            raise ValueError("left, right and feature disagree about which nodes are leaves")
        split = ~leaf
        sizes = np.repeat(np.diff(self.offset), np.diff(self.offset))
        for name in ("left", "right"):
            child = getattr(self, name)[split]
            if np.any(child < 1) or np.any(child >= sizes[split]):
                raise ValueError(f"{name} points outside its tree")
        if np.any(self.feature[split] < 0) or np.any(self.feature[split] >= self.n_features):
            raise ValueError(f"a split uses a feature outside 0..{self.n_features - 1}")
        if np.any(self.category_set < -1) or np.any(self.category_set >= len(self.category_sets)):
            raise ValueError("category_set points outside category_sets")
        numeric = split & (self.category_set < 0)
        if np.any(np.isnan(self.threshold[numeric])):
            raise ValueError("a threshold is NaN")
        if self.compare_dtype == "float32":
            with np.errstate(over="ignore"):
                cut = self.threshold[numeric].astype(np.float32).astype(np.float64)
            if np.any(cut != self.threshold[numeric]):
                raise ValueError("a threshold is not a float32 value, but the model compares in float32")
        elif self.compare_dtype != "float64":
            raise ValueError(f"compare_dtype is {self.compare_dtype!r}, expected 'float32' or 'float64'")
        if self.tree_output.shape != (trees,):
            raise ValueError(f"tree_output has shape {self.tree_output.shape}, expected ({trees},)")
        if np.any(self.tree_output < 0) or np.any(self.tree_output + self.value_width > self.n_outputs):
            raise ValueError(f"a tree adds to an output outside 0..{self.n_outputs - 1}")
        if self.base_score.shape != (self.n_outputs,):
            raise ValueError(f"base_score has shape {self.base_score.shape}, expected ({self.n_outputs},)")
        if not self.divisor > 0:
            raise ValueError(f"divisor is {self.divisor}, expected a positive number")
        if not np.all(np.isfinite(self.value[leaf])):
            raise ValueError("a leaf value is not finite")
        if self.cover is not None and not np.all(np.isfinite(self.cover) & (self.cover >= 0)):
            raise ValueError("a cover is negative or not finite")
        return self
