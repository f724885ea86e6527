"""LightGBM's linear trees: leaves with a constant, and coefficients of raw columns.

The sum over trees of ``constant + coefficients · x`` is the sum of the constants plus the sums of the
coefficients times x. So the trees' outputs are the constant and a coefficient for each column, and a product
follows. A leaf whose columns have a missing value adds a plain number instead: splits below test each of
its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.build import Tree, assemble
from hbtvm.frontends.lightgbm.trees import numbers, read_tree
from hbtvm.graph.networks.network import Trees
from hbtvm.graph.trees.ensemble import LEAF
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce, select

_MOST_VALUES = 1 << 25  # numbers of all leaves, including the coefficients that are 0


@dataclass(frozen=True)
class _Leaf:
    constant: float
    columns: tuple[int, ...]  # columns of the rows
    coefficients: tuple[float, ...]


def is_linear(tree: dict[str, str]) -> bool:
    """Return whether a tree's leaves are linear models."""
    return tree.get("is_linear", "0") != "0"


def linear_scores(
    texts: Sequence[dict[str, str]], n_features: int, n_outputs: int, divisor: float
) -> Callable[[Node], Node]:
    """Return the function from rows to the scores of linear (and other) trees.

    `texts`: keys and values of the trees.
    Raises `UnsupportedModel` if leaves and columns are too many; else errors as `read_tree`.
    """
    trees, leaves = [read_tree(text) for text in texts], [_leaves(text, n_features) for text in texts]
    used = sorted({column for tree in leaves for leaf in tree for column in leaf.columns})
    place = {column: at for at, column in enumerate(used, 1)}
    width = len(used) + 1
    count = sum(
        len(tree.left) + sum(2 * len(leaf.columns) for leaf in of_tree)
        for tree, of_tree in zip(trees, leaves, strict=True)
    )
    if count * width > _MOST_VALUES:
        raise UnsupportedModel(
            f"the LightGBM model has linear trees of {count:,} nodes over {len(used):,} columns, which are "
            "too many; train with fewer leaves or columns."
        )
    ensemble = assemble(
        [_extended(tree, of_tree, place) for tree, of_tree in zip(trees, leaves, strict=True)],
        n_features=n_features,
        compare_dtype="float64",
        tree_output=np.arange(len(trees)) % n_outputs * width,
        base_score=np.zeros(n_outputs * width),
        divisor=divisor,
        negative_fraction_is_zero=True,
    )
    # Products with large columns cancel.
    ensemble = replace(ensemble, precise=True)

    def scores(rows: Node) -> Node:
        sums = Trees(rows, ensemble)
        if not used:
            return sums
        values = select(rows, used)
        values = apply("where", apply("isnan", values), 0.0, values)
        parts: list[Node] = []
        for start in range(0, n_outputs * width, width):
            products = apply("multiply", select(sums, range(start + 1, start + width)), values)
            parts.append(apply("add", select(sums, [start]), reduce("sum", products)))
        return concat(parts)

    return scores


def _leaves(fields: dict[str, str], n_features: int) -> list[_Leaf]:
    """Return the linear models of a tree's leaves; raises `ValueError` if they are damaged."""
    count = int(fields["num_leaves"])
    if not is_linear(fields):
        return [_Leaf(value, (), ()) for value in numbers(fields, "leaf_value", count, np.float64).tolist()]
    constants = numbers(fields, "leaf_const", count, np.float64).tolist()
    sizes = numbers(fields, "num_features", count, np.int64)
    if sizes.min() < 0 or sizes.max() > n_features:
        raise ValueError("a leaf has more columns than the model")
    total = int(sizes.sum())
    columns = numbers(fields, "leaf_features", total, np.int64)
    coefficients = numbers(fields, "leaf_coeff", total, np.float64)
    if total and not 0 <= columns.min() <= columns.max() < n_features:
        raise ValueError("a leaf has an unknown column")
    ends = np.cumsum(sizes).tolist()
    return [
        _Leaf(
            constant,
            tuple(columns[end - size : end].tolist()),
            tuple(coefficients[end - size : end].tolist()),
        )
        for constant, size, end in zip(constants, sizes.tolist(), ends, strict=True)
    ]


def _extended(tree: Tree, leaves: Sequence[_Leaf], place: dict[int, int]) -> Tree:
    """Return a tree whose leaves hold constants and coefficients, with splits on missing values above."""
    splits, width = len(tree.left) - len(leaves), len(place) + 1
    more = sum(2 * len(leaf.columns) for leaf in leaves)
    size = len(tree.left) + more

    def grown(array: np.ndarray, fill: float) -> np.ndarray:
        return np.concatenate([array, np.full(more, fill, array.dtype)])

    feature, left, right = grown(tree.feature, LEAF), grown(tree.left, LEAF), grown(tree.right, LEAF)
    threshold, value, free = grown(tree.threshold, 0.0), np.zeros((size, width)), len(tree.left)
    # LightGBM does not count the rows with missing values.
    cover = np.full(len(tree.left), np.nan) if tree.cover is None else tree.cover
    cover, leaf_id = grown(cover, 0.0), np.zeros(size, np.int64)
    for at, leaf in enumerate(leaves, splits):
        node, plain = at, tree.value[at, 0]
        leaf_id[at] = at - splits
        for column in leaf.columns:
            # Numbers go left, and missing values right.
            feature[node], threshold[node] = column, np.inf
            left[node], right[node] = free, free + 1
            value[free + 1, 0] = plain
            cover[free], leaf_id[free : free + 2] = cover[node], at - splits
            node, free = free, free + 2
        value[node, 0] = leaf.constant
        for column, coefficient in zip(leaf.columns, leaf.coefficients, strict=True):
            value[node, place[column]] += coefficient
    zeros = tree.zero_as_missing
    return Tree(
        feature,
        threshold,
        left,
        right,
        grown(tree.default_left, False),
        value,
        None if zeros is None else grown(zeros, False),
        tree.categories,
        cover,
        leaf_id,
    )
