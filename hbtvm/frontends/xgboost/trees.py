"""Trees and categories of an XGBoost document."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.build import Tree
from hbtvm.graph.trees.covers import cover_of
from hbtvm.graph.trees.ensemble import LEAF, CategorySet
from hbtvm.graph.trees.rounding import float32_below

_MOST_CATEGORIES = 1 << 24  # XGBoost reads categories from here on as invalid

_MOST_MEMBERS = 1 << 27
"""Bytes that the categorical splits of a model may take here, before deduplication."""

_OF_CATEGORIES = ("categories_nodes", "categories_segments", "categories_sizes", "categories")


def read_trees(stored: Any, weights: Any) -> list[Tree]:
    """All trees of a document.

    `stored`: the document's trees.
    `weights`: what each tree's leaves are multiplied by; empty for nothing.
    Raises `UnsupportedModel` if its categorical splits need more memory than is sane. Raises
    `AttributeError`, `KeyError`, `TypeError`, `IndexError`, `ValueError`, `OverflowError` if they are
    damaged.
    """
    trees, held = [], 0
    for i, tree_record in enumerate(stored):
        # What is too large for float32 becomes infinite, and is refused if it is a leaf's.
        with np.errstate(over="ignore"):
            trees.append(tree := _tree(tree_record, weights[i] if weights else 1.0))
        held += sum(len(chosen.member) for chosen in (tree.categories or {}).values())
        if held > _MOST_MEMBERS:
            raise UnsupportedModel(
                f"the XGBoost model's categorical splits list more than {_MOST_MEMBERS:,} categories in all."
            )
    return trees


def _tree(tree: Any, weight: float) -> Tree:
    left = np.array(tree["left_children"], np.int64)
    width = max(int(tree["tree_param"].get("size_leaf_vector", 1)), 1)
    condition = np.array(tree["split_conditions"], np.float64).astype(np.float32)
    value = _leaf_vectors(tree, left, width) if width > 1 else condition.astype(np.float64)[:, None]
    return Tree(
        feature=np.array(tree["split_indices"], np.int64),
        threshold=float32_below(condition).astype(np.float64),
        left=left,
        right=np.array(tree["right_children"], np.int64),
        default_left=np.array(tree["default_left"]).astype(bool),
        # The product of two float32 numbers is exact in float64.
        value=value * float(np.float32(weight)),
        categories=_category_sets(tree),
        cover=cover_of(tree.get("sum_hessian"), len(left), np.float32),
        leaf_id=np.arange(len(left)),
    )


def _leaf_vectors(tree: Any, left: np.ndarray, width: int) -> np.ndarray:
    """Leaf values of a tree with vector leaves, shape (M, width)."""
    leaf = left == LEAF
    if "leaf_weights" in tree:
        # Leaves name their row of the table in place of a right child.
        table = np.array(tree["leaf_weights"], np.float64).reshape(-1, width)
        row = np.array(tree["right_children"])[leaf]
        # One row for each leaf, so that no memory is asked for beyond a few times the table's.
        if len(row) > len(table) or len(left) > 4 * len(table) or np.any((row < 0) | (row >= len(table))):
            raise ValueError(f"{len(row)} leaves have {len(table)} rows of weights")
        value = np.zeros((len(left), width))
        value[leaf] = table[row]
    else:
        value = np.array(tree["base_weights"], np.float64).reshape(len(left), width)
    return value.astype(np.float32).astype(np.float64)


def _category_sets(tree: Any) -> dict[int, CategorySet]:
    """XGBoost lists the categories that go right; all others, even impossible categories, go left."""
    # XGBoost knows categories since 1.3, and reads documents that say nothing of them.
    if not any(field in tree for field in _OF_CATEGORIES):
        if np.any(tree.get("split_type", 0)):
            raise ValueError("a tree has categorical splits, but no categories")
        return {}
    result = {}
    nodes, starts, sizes, listed = (tree[field] for field in _OF_CATEGORIES)
    if sum(sizes) > len(listed) or min(sizes, default=0) < 0:
        raise ValueError("a tree's categorical splits overlap")
    for node, start, size in zip(nodes, starts, sizes, strict=True):
        chosen = np.array(listed[start : start + size], np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < _MOST_CATEGORIES:
            raise ValueError(f"a category is outside 0..{_MOST_CATEGORIES - 1}")
        member = np.ones(int(chosen.max(initial=-1)) + 1, bool)
        member[chosen] = False
        result[int(node)] = CategorySet(member, outside_left=True)
    return result


def read_categories(stored: Any) -> dict[int, tuple[Any, ...]]:
    """Return the categories of data frames as XGBoost 3 stores them: strings in a buffer, or numbers."""
    result: dict[int, tuple[Any, ...]] = {}
    for column, values in enumerate((stored or {}).get("enc", [])):
        if not values.get("values"):
            continue
        if "offsets" in values:
            text = bytes(byte & 0xFF for byte in values["values"])
            # XGBoost counts characters but stores bytes, so beyond ASCII the strings are cut
            # wrongly; such a column has to come as codes.
            if not text.isascii():
                continue
            pairs = list(itertools.pairwise(values["offsets"]))
            if any(not 0 <= a <= b <= len(text) for a, b in pairs):
                raise ValueError("the categories' strings overlap")
            result[column] = tuple(text[a:b].decode() for a, b in pairs)
        else:
            result[column] = tuple(values["values"])
    return result
