"""Trees of CatBoost: its numbered splits on the columns of a matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.build import Tree, assemble
from hbtvm.frontends.catboost.flatbuffers import damaged
from hbtvm.frontends.catboost.parts import Parts, StepTree, SymmetricTree
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble

_DEEPEST = 16  # CatBoost's own bound of symmetric trees


class Splits:
    """The splits of a model by number: a row goes right if a column is above a threshold.

    `feature`: the column: a numeric feature, or behind these a one-hot column or a counter; int64.
    `threshold`: float64.
    `nan_left`: whether NaN goes left.
    """

    def __init__(self, parts: Parts) -> None:
        groups: list[tuple[np.ndarray, str]] = [(feature.borders, feature.nan) for feature in parts.numeric]
        self.widths = [len(borders) for borders, _ in groups]
        hot = [np.array([0.5], np.float32)] * sum(len(hashes) for _, hashes in parts.one_hot)
        groups += [(borders, "AsIs") for borders in (*hot, *(counter.borders for counter in parts.counters))]
        self.feature = np.repeat(np.arange(len(groups)), [len(borders) for borders, _ in groups])
        borders = [np.asarray(borders, np.float32) for borders, _ in groups]
        self.threshold = np.concatenate([*borders, np.zeros(0, np.float32)]).astype(np.float64)
        # CatBoost compares infinity in place of NaN.
        largest = np.repeat([nan == "AsTrue" for _, nan in groups], [len(borders) for borders, _ in groups])
        self.nan_left = ~largest.astype(bool)


def ensemble(parts: Parts, splits: Splits, columns: np.ndarray, width: int) -> TreeEnsemble:
    """Return the trees.

    `columns`: int64, shape (features of `splits`,): the matrix's column of each feature.
    `width`: columns of the matrix.
    Raises `ModelError` if the trees are damaged.
    """
    if np.isnan(splits.threshold).any() or not np.isfinite([parts.scale, *parts.bias]).all():
        raise damaged("a number of it is NaN")
    shapes: dict[int, tuple[np.ndarray, ...]] = {}
    trees = []
    for tree in parts.trees:
        if isinstance(tree, SymmetricTree):
            tree = _expanded(tree, shapes)
        split, left = tree.split, tree.left
        inner = left != LEAF
        if np.any(split[inner] < 0) or np.any(split[inner] >= len(splits.feature)):
            raise damaged("a tree has an unknown split")
        at = np.where(inner, split, 0)
        none = not len(splits.feature)
        trees.append(
            Tree(
                np.zeros(len(at), np.int64) if none else columns[splits.feature[at]],
                np.zeros(len(at)) if none else splits.threshold[at],
                left,
                tree.right,
                np.zeros(len(at), bool) if none else splits.nan_left[at],
                tree.value * parts.scale,
                # CatBoost stores no weights of splits.
                cover=None if tree.weight is None else np.where(inner, np.nan, tree.weight),
                leaf_id=tree.number,
            )
        )
    return assemble(
        trees,
        n_features=width,
        compare_dtype="float32",
        tree_output=np.zeros(len(trees), np.int64),
        base_score=parts.bias,
    )


def _expanded(tree: SymmetricTree, shapes: dict[int, tuple[np.ndarray, ...]]) -> StepTree:
    """Return a symmetric tree's nodes, level by level."""
    depth = len(tree.splits)
    if depth > _DEEPEST:
        raise ModelError(f"the CatBoost model is damaged: a tree has {depth} levels; expected {_DEEPEST}.")
    if depth not in shapes:
        shapes[depth] = _shape(depth)
    level, left, right, number = shapes[depth]
    inner, value = (1 << depth) - 1, np.zeros((len(left), tree.value.shape[1]))
    value[inner:] = tree.value[number[inner:]]
    weight = None if tree.weight is None else tree.weight[number]
    return StepTree(np.append(tree.splits[::-1], -1)[level], left, right, value, number, weight)


def _shape(depth: int) -> tuple[np.ndarray, ...]:
    """Return the level, the children and (of leaves, else 0) the number of each node of a full tree.

    Node i has the children 2i + 1 and 2i + 2. The root is the last split, the highest bit of leaf numbers, as
    in CatBoost's own Shapley values.
    """
    inner = (1 << depth) - 1
    node = np.arange(2 * inner + 1)
    level = np.repeat(np.arange(depth + 1), 1 << np.arange(depth + 1))
    left = np.where(node < inner, 2 * node + 1, LEAF)
    right = np.where(node < inner, 2 * node + 2, LEAF)
    return level, left, right, np.concatenate([np.zeros(inner, np.int64), np.arange(1 << depth)])


def used(parts: Parts, splits: Splits) -> np.ndarray:
    """Return which features of `splits` the trees read, ascending."""
    numbers: Sequence[np.ndarray] = [
        tree.split[tree.left != LEAF] if isinstance(tree, StepTree) else tree.splits for tree in parts.trees
    ]
    split = np.unique(np.concatenate([*numbers, np.zeros(0, np.int64)]))
    if np.any(split < 0) or np.any(split >= len(splits.feature)):
        raise damaged("a tree has an unknown split")
    result: np.ndarray = np.unique(splits.feature[split])
    return result
