"""`Forest`: an ensemble prepared for kernels, in which every split is ``column <= threshold``.

Kernels know one kind of split. Missing values, zeros that count as missing, and categories move from the
trees to *columns*: values that a kernel computes from the features once per row, before any walk. A column
holds

- a feature with NaN kept (a comparison with NaN is false, so missing goes right), or
  replaced by -inf (missing goes left) or by a number (LightGBM's "no missing seen", imputers), or
- for a categorical split, 0 where the row goes left and 1 where it goes right.

A feature whose nodes disagree about missing values becomes two columns; a feature that no
tree uses becomes none. Models without missing values or categories pay nothing. In wide models
(`hbtvm.schedules.cpu.steps.is_wide`), the first columns are all features in their order, used or not,
so that no table of features is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF, ZERO_THRESHOLD, TreeEnsemble
from hbtvm.graph.trees.prologue import Prologue
from hbtvm.graph.trees.rounding import float32_at_most
from hbtvm.schedules.cpu.steps import WIDE
from hbtvm.schedules.workload import (
    RANK_GROUP,
    ApartWorkload,
    DigitsWorkload,
    ObliviousWorkload,
    PrologueWorkload,
    WideWorkload,
    Workload,
)

DType = Literal["float32", "float64"]

APART = 16
"""Trees with outputs of their own share tiles if their number is a multiple of this, at least any tile
of trees in registers."""

PARALLEL_WORK = 20_000
"""Rows times trees from which threads may pay."""


@dataclass(frozen=True)
class Forest:
    """Trees over columns. N nodes, T trees, C numeric columns, K categorical columns."""

    dtype: DType  # type of the columns and thresholds, and, without a prologue, of the input
    value_dtype: DType  # type of the leaf values
    n_features: int  # width of an input row
    missing: bool  # whether rows may have missing values
    column_feature: np.ndarray  # int32, shape (C,): the feature behind each numeric column. C >= 1.
    column_fill: np.ndarray  # `dtype`, shape (C,): replaces missing values; NaN keeps them
    # `dtype`, shape (C,): values of at most this magnitude count as missing; -1: none do
    column_zero: np.ndarray
    category_feature: np.ndarray  # int32, shape (K,): the feature behind each categorical column
    # Int32, shape (K, W): bit c of a column's words is set if category c goes right. Bit S (`category_size`)
    # is for values outside the set's range, bit S + 1 for NaN.
    category_bits: np.ndarray
    category_size: int  # S, one more than the largest category of any set
    negative_fraction_is_zero: bool  # see `TreeEnsemble`
    # `offset`, `left`, `right`: as in `TreeEnsemble`
    offset: np.ndarray
    left: np.ndarray
    right: np.ndarray
    column: np.ndarray  # int32, shape (N,): column of each split (categorical ones count from C)
    threshold: np.ndarray  # `dtype`, shape (N,): go left if the column's value is at most this
    value: np.ndarray  # `value_dtype`, shape (N, V)
    # Int64, shape (G, T'): the trees of each group, padded with -1. A group's trees add to the same V
    # outputs; group g to outputs ``g * V .. g * V + V - 1``.
    group_trees: np.ndarray
    # Float64, shape (N,): how many training rows reached each node (`TreeEnsemble.cover`); None if not known
    cover: np.ndarray | None = None
    # Computes the C numeric columns from float64 input, before missing values are replaced; None if the
    # columns are the input's values
    prologue: Prologue | None = None
    # Whether its kernels are for GPUs, where wide workloads have more entries (`WideWorkload`)
    on_gpu: bool = False

    family = "trees"

    def workload(self, rows: int, threads: int = 1) -> Workload:
        nodes = np.diff(self.offset)
        workload: Workload = {
            "rows": rows,
            "threads": threads if rows * (len(self.offset) - 1) >= PARALLEL_WORK else 1,
            "features": self.n_features,
            "numeric": len(self.column_feature),
            "categorical": len(self.category_feature),
            "category_words": int(self.category_bits.shape[1]),
            "category_size": self.category_size,
            "negative_fraction_is_zero": self.negative_fraction_is_zero,
            "fills_missing": self.fills_missing,
            "zeros_missing": self.zeros_missing,
            "groups": int(self.group_trees.shape[0]),
            "trees": int(self.group_trees.shape[1]),
            "width": int(self.value.shape[1]),
            "nodes": int(nodes.max()),
            "leaves": int(nodes.max() + 1) // 2,
            "depth": self.depth,
            "rank_bits": self.rank_bits,
            "dtype": self.dtype,
            "value_dtype": self.value_dtype,
        }
        if self.on_gpu and self.n_columns >= WIDE:
            wide: WideWorkload = {**workload, "rank_groups": self.rank_groups}
            workload = wide
        if self.oblivious:
            level_uniform: ObliviousWorkload = {**workload, "oblivious": True}
            workload = level_uniform
            if not self.on_gpu and self.leaf_digits:
                digits: DigitsWorkload = {**level_uniform, "leaf_digits": True}
                workload = digits
        if self.apart:
            each: ApartWorkload = {**workload, "groups": 1, "trees": self.apart, "apart": self.apart}
            workload = each
        if self.prologue is None:
            return workload
        with_prologue: PrologueWorkload = {**workload, "prologue": " ".join(self.prologue.operations)}
        return with_prologue

    @property
    def apart(self) -> int:
        """The number of groups if kernels compute single trees' groups side by side; else 0."""
        groups, trees = self.group_trees.shape
        return groups if trees == 1 and groups % APART == 0 and not self.on_gpu else 0

    @property
    def tiled_trees(self) -> np.ndarray:
        """The trees that tiles are made of, as `group_trees`; in one group if their outputs are apart."""
        return self.group_trees.T if self.apart else self.group_trees

    @property
    def row_dtype(self) -> DType:
        """Type of the input."""
        return self.dtype if self.prologue is None else "float64"

    @property
    def n_columns(self) -> int:
        """Numeric and categorical columns, C + K."""
        return len(self.column_feature) + len(self.category_feature)

    @property
    def columns_are_features(self) -> bool:
        """Whether the forest is wide and its columns are the features in order."""
        return len(self.column_feature) == self.n_features >= WIDE

    @property
    def fills_missing(self) -> bool:
        """Whether any numeric column replaces NaN."""
        return bool(np.any(~np.isnan(self.column_fill)))

    @property
    def zeros_missing(self) -> bool:
        """Whether any numeric column treats zeros as missing."""
        return bool(np.any(self.column_zero >= 0))

    @cached_property
    def base(self) -> np.ndarray:
        """int64, shape (N,): first node of each node's tree, from which children are counted."""
        return np.repeat(self.offset[:-1], np.diff(self.offset))

    @cached_property
    def depth(self) -> int:
        """Splits on the longest path; 0 if every tree is a single leaf."""
        return len(self.levels()) - 1

    @cached_property
    def thresholds(self) -> list[np.ndarray]:
        """The distinct thresholds of each column, sorted."""
        split = self.left != LEAF
        order = np.argsort(self.column[split], kind="stable")
        column, threshold = self.column[split][order], self.threshold[split][order]
        bounds = np.searchsorted(column, np.arange(self.n_columns + 1))
        return [np.unique(threshold[bounds[c] : bounds[c + 1]]) for c in range(self.n_columns)]

    @cached_property
    def rank_bits(self) -> int:
        """Bits to count the distinct thresholds of any column, and steps of a binary search among them."""
        return max(1, max(map(len, self.thresholds)).bit_length())

    @cached_property
    def oblivious(self) -> bool:
        """Whether there are splits, and the splits of each level of a tree make the same test."""
        for level in self.levels():
            split = level[self.left[level] != LEAF]
            _, first, tree = np.unique(self.base[split], return_index=True, return_inverse=True)
            same = split[first][tree]
            if np.any(self.column[split] != self.column[same]):
                return False
            if np.any(self.threshold[split] != self.threshold[same]):
                return False
        return self.depth > 0

    @cached_property
    def leaf_digits(self) -> bool:
        """Whether the values of each tree are multiples of a step that hardly changes the scores.

        A step is 2**-28 of a range of values (see `hbtvm.strategies.trees.digits`), so the error of a tree is
        below 2**-18 of the median size of the values that are not zero.
        """
        if self.value_dtype != "float32" or self.value.shape[1] != 1 or self.apart:
            return False
        leaves = self.left == LEAF
        values = self.value[leaves, 0].astype(np.float64)
        starts = np.searchsorted(np.flatnonzero(leaves), self.offset[:-1])
        if not np.all(np.isfinite(values)):
            return False
        widest = np.max(np.maximum.reduceat(values, starts) - np.minimum.reduceat(values, starts))
        sizes = np.abs(values[values != 0])
        return bool(len(sizes) and widest <= 2**10 * np.median(sizes))

    @property
    def rank_groups(self) -> int:
        """Number of groups of up to `RANK_GROUP` neighbouring thresholds, over all columns."""
        return sum(-(-len(values) // RANK_GROUP) for values in self.thresholds)

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache of strategies' results that no configuration changes."""
        return {}

    def levels(self) -> list[np.ndarray]:
        """Return node indices (over the whole forest) by depth; each level by tree, then left to right."""
        base = self.base
        frontier = self.offset[:-1].astype(np.int64)
        out = [frontier]
        while True:
            parents = frontier[self.left[frontier] != LEAF]
            if not len(parents):
                return out
            pairs = np.stack([base[parents] + self.left[parents], base[parents] + self.right[parents]], 1)
            frontier = pairs.reshape(-1)
            out.append(frontier)


def make_forest(
    ensemble: TreeEnsemble,
    dtype: DType,
    value_dtype: DType,
    missing: bool = True,
    prologue: Prologue | None = None,
) -> Forest:
    """Return an ensemble's forest: missing values and categories in columns, trees grouped by output.

    `ensemble`: a valid ensemble.
    `dtype`: type of the kernel's input, or of a prologue's result. ``"float32"`` is exact for float32 input,
        even if the library compares in float64: thresholds are rounded down, and no float32 value lies
        between.
    `value_dtype`: type of the leaf values.
    `missing`: whether rows may have missing values. If not, a feature needs no second column.
    `prologue`: arithmetic from float64 features to the float32 values that the trees compare.
    """
    if prologue is not None and dtype != "float32":
        raise ValueError(f"a prologue makes float32 numbers, not {dtype}")
    split = ~ensemble.is_leaf()
    numeric = split & (ensemble.category_set < 0)
    categorical = split & (ensemble.category_set >= 0)
    column = np.zeros(ensemble.n_nodes, np.int32)
    threshold = np.zeros(ensemble.n_nodes, dtype)
    threshold[numeric] = round_down(ensemble.threshold[numeric], dtype)

    feature, fill, zero, column[numeric] = _numeric_columns(ensemble, np.flatnonzero(numeric), dtype, missing)
    cat_feature, bits, size, cat_column = _category_columns(ensemble, np.flatnonzero(categorical))
    column[categorical] = len(feature) + cat_column
    threshold[categorical] = 0.5

    width = ensemble.value_width
    if ensemble.n_outputs % width or np.any(ensemble.tree_output % width):
        raise ValueError(f"{ensemble.n_outputs} outputs do not divide into groups of {width}")
    group = ensemble.tree_output // width
    members = [np.flatnonzero(group == g) for g in range(ensemble.n_outputs // width)]
    group_trees = np.full((len(members), max(map(len, members))), -1, np.int64)
    for g, trees in enumerate(members):
        group_trees[g, : len(trees)] = trees
    return Forest(
        dtype=dtype,
        value_dtype=value_dtype,
        n_features=ensemble.n_features,
        missing=missing,
        column_feature=feature,
        column_fill=fill,
        column_zero=zero,
        category_feature=cat_feature,
        category_bits=bits,
        category_size=size,
        negative_fraction_is_zero=ensemble.negative_fraction_is_zero,
        offset=ensemble.offset.astype(np.int64),
        left=ensemble.left,
        right=ensemble.right,
        column=column,
        threshold=threshold,
        value=ensemble.value.astype(value_dtype),
        group_trees=group_trees,
        cover=ensemble.cover,
        prologue=None if prologue is None else prologue.take(feature),
    )


def round_down(threshold: np.ndarray, dtype: DType) -> np.ndarray:
    """Return the largest values of `dtype` that are not above float64 thresholds.

    ``x <= t`` and ``x <= round_down(t)`` agree for every x of `dtype`.
    """
    return threshold.astype(np.float64) if dtype == "float64" else float32_at_most(threshold)


def _numeric_columns(
    ensemble: TreeEnsemble, nodes: np.ndarray, dtype: DType, missing: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the columns of numeric splits: (feature, fill, zero, each node's column)."""
    if not len(nodes):
        return np.zeros(1, np.int32), np.full(1, np.nan, dtype), np.full(1, -1, dtype), nodes.astype(np.int32)
    feature = ensemble.feature[nodes]
    zeros = ensemble.zero_as_missing[nodes]
    left = ensemble.default_left[nodes] & (missing | zeros)
    number, as_number = _missing_as_numbers(
        feature, round_down(ensemble.threshold[nodes], dtype), left, zeros, ensemble.n_features
    )
    fill = np.where(as_number[feature], number[feature], np.where(left, -np.inf, np.nan))
    fill_kind = np.where(as_number[feature], 2, left.astype(int))
    keys = np.stack([feature, fill_kind, zeros.astype(int)], 1)
    _, first, column = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    # ZERO_THRESHOLD is a float32 value, so both types compare with the same bound.
    zero = np.where(zeros[first], ZERO_THRESHOLD, -1.0)
    of, column = feature[first], column.reshape(-1)
    fill = fill[first]
    if len(first) >= max(WIDE, ensemble.n_features // 2):
        unused = np.setdiff1d(np.arange(ensemble.n_features), of)
        of = np.concatenate([of, unused])
        fill = np.concatenate([fill, np.full(len(unused), np.nan)])
        zero = np.concatenate([zero, np.full(len(unused), -1.0)])
        # All features' first columns precede second columns.
        order = np.argsort(of, kind="stable")
        repeats = np.diff(of[order], prepend=-1) == 0
        order = np.concatenate([order[~repeats], order[repeats]])
        of, fill, zero = of[order], fill[order], zero[order]
        column = np.argsort(order)[column]
    return of.astype(np.int32), fill.astype(dtype), zero.astype(dtype), column.astype(np.int32)


def _missing_as_numbers(
    feature: np.ndarray, threshold: np.ndarray, left: np.ndarray, zeros: np.ndarray, n_features: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each feature, a number that takes NaN's branch at every node, and whether it exists.

    One column with that number in place of NaN then serves nodes with NaN on the left and on the right. It
    exists if the library treats NaN as 0, and after imputers. Features whose NaN always takes the same side
    need none.
    """
    least = np.full(n_features, np.inf)
    most = np.full(n_features, -np.inf)
    np.minimum.at(least, feature[left], threshold[left])
    np.maximum.at(most, feature[~left], threshold[~left])
    both = np.bincount(feature[left], minlength=n_features) > 0
    both &= np.bincount(feature[~left], minlength=n_features) > 0
    both &= np.bincount(feature[zeros], minlength=n_features) == 0
    number = np.where((most < 0) & (least >= 0), 0.0, least)
    return number, both & (most < least)


def _category_columns(
    ensemble: TreeEnsemble, nodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Return the columns of categorical splits: (feature, bits, size, each node's column)."""
    if not len(nodes):
        return np.zeros(0, np.int32), np.zeros((0, 1), np.int32), 0, nodes.astype(np.int32)
    keys = np.stack([ensemble.feature[nodes], ensemble.category_set[nodes], ensemble.default_left[nodes]], 1)
    _, first, column = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    size = max(len(s.member) for s in ensemble.category_sets)
    right = np.zeros((len(first), -(-(size + 2) // 32) * 32), bool)
    for row, node in zip(right, nodes[first], strict=True):
        chosen = ensemble.category_sets[ensemble.category_set[node]]
        row[: size + 1] = not chosen.outside_left
        row[: len(chosen.member)] = ~chosen.member
        row[size + 1] = not ensemble.default_left[node]
    bits = np.packbits(right, axis=1, bitorder="little").view("<i4").astype(np.int32)
    return ensemble.feature[nodes[first]].astype(np.int32), bits, size, column.reshape(-1).astype(np.int32)
