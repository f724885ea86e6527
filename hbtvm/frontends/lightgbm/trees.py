"""Trees of a LightGBM model text."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.build import Tree
from hbtvm.graph.trees.covers import cover_of
from hbtvm.graph.trees.ensemble import LEAF, ZERO_THRESHOLD, CategorySet
from hbtvm.words.printable import shown

_CATEGORICAL = 1
_DEFAULT_LEFT = 2
_MISSING_NONE, _MISSING_ZERO = 0, 1


def read_tree(fields: dict[str, str]) -> Tree:
    """Return a tree from the keys and values of its part of the text.

    Raises `ModelError`, `ValueError`, `IndexError`, `OverflowError` if it is damaged.
    """
    leaves = count_of(fields, "num_leaves")
    splits = leaves - 1
    leaf_value = numbers(fields, "leaf_value", leaves, np.float64)
    value = np.concatenate([np.zeros(splits), leaf_value])[:, None]
    cover = _cover(fields, splits)
    if not splits:
        node, leaf = np.full(1, LEAF), np.zeros(1, np.int64)
        return Tree(node, np.zeros(1), node, node, np.zeros(1, bool), value, cover=cover, leaf_id=leaf)
    kind = numbers(fields, "decision_type", splits, np.int64)
    threshold = numbers(fields, "threshold", splits, np.float64)
    missing = (kind >> 2) & 3
    categorical = (kind & _CATEGORICAL) != 0
    # Without missing values in training, LightGBM reads NaN as 0.
    default_left = np.where(missing == _MISSING_NONE, threshold >= 0, (kind & _DEFAULT_LEFT) != 0)
    # NaN is in no category, and values in no category go right.
    default_left &= ~categorical
    return Tree(
        feature=_with_leaves(numbers(fields, "split_feature", splits, np.int64), leaves),
        threshold=_with_leaves(_for_tiny_values(threshold), leaves),
        left=_with_leaves(_children(fields, "left_child", splits), leaves),
        right=_with_leaves(_children(fields, "right_child", splits), leaves),
        default_left=_with_leaves(default_left, leaves),
        value=value,
        zero_as_missing=_with_leaves((missing == _MISSING_ZERO) & ~categorical, leaves),
        categories=_categories(fields, threshold, np.nonzero(categorical)[0]),
        cover=cover,
        leaf_id=np.arange(-splits, leaves),
    )


def _cover(fields: dict[str, str], splits: int) -> np.ndarray | None:
    """Return the numbers of rows that LightGBM's own contributions use; None if the text has none."""
    words = [*fields.get("internal_count", "").split(), *fields.get("leaf_count", "").split()]
    try:
        return cover_of(list(map(float, words)), 2 * splits + 1)
    except ValueError:
        return None


def _for_tiny_values(threshold: np.ndarray) -> np.ndarray:
    """Return thresholds that decide as LightGBM, which reads tiny values as 0 first."""
    below = np.nextafter(-ZERO_THRESHOLD, -np.inf)
    tiny = (threshold >= -ZERO_THRESHOLD) & (threshold < ZERO_THRESHOLD)
    return np.where(tiny, np.where(threshold >= 0, ZERO_THRESHOLD, below), threshold)


def _with_leaves(array: np.ndarray, leaves: int) -> np.ndarray:
    """Append values for the leaves, which follow the splits."""
    fill = 0 if array.dtype == bool else LEAF
    return np.concatenate([array, np.full(leaves, fill, array.dtype)])


def _children(fields: dict[str, str], name: str, splits: int) -> np.ndarray:
    child = numbers(fields, name, splits, np.int64)
    # LightGBM writes leaf i as -i - 1.
    return np.where(child < 0, splits - child - 1, child)


def _categories(fields: dict[str, str], threshold: np.ndarray, nodes: np.ndarray) -> dict[int, CategorySet]:
    if not len(nodes):
        return {}
    count = count_of(fields, "num_cat")
    bounds = numbers(fields, "cat_boundaries", count + 1, np.int64)
    words = numbers(fields, "cat_threshold", int(bounds[-1]), np.uint32)
    if bounds[0] != 0 or np.any(np.diff(bounds) < 0):
        raise ValueError("the category sets overlap")
    sets: dict[int, CategorySet] = {}
    result = {}
    for node in nodes:
        index = int(threshold[node])
        if not 0 <= index < count:
            raise ValueError(f"a node has the category set {index} of {count}")
        if index not in sets:
            chosen = words[bounds[index] : bounds[index + 1]]
            member = (chosen[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool).ravel()
            sets[index] = CategorySet(member[: int(member.nonzero()[0].max(initial=-1)) + 1])
        result[int(node)] = sets[index]
    return result


def numbers(fields: dict[str, str], name: str, count: int, dtype: Any) -> np.ndarray:
    """Return the numbers of a line; raise `ValueError` if there are others than `count`, or one is NaN."""
    words = required(fields, name).split()
    if len(words) != count:
        raise ValueError(f"{name} has {len(words)} numbers, expected {count}")
    # Python reads numbers faster than numpy.
    result = np.array(list(map(float if dtype == np.float64 else int, words)), dtype)
    if np.isnan(result).any():
        raise ValueError("a number is NaN")
    return result


def required(fields: dict[str, str], name: str) -> str:
    """Return a value; raise `ModelError` if it is missing."""
    if name not in fields:
        raise ModelError(f"the LightGBM model text is damaged: {name!r} is missing.")
    return fields[name]


def count_of(fields: dict[str, str], name: str, least: int = 1) -> int:
    """Return a count; raise `ModelError` if it is not a whole number of at least `least`."""
    word = required(fields, name)
    # Longer numbers overflow, and Python bounds the digits that it parses.
    if not (word.isascii() and word.isdecimal() and len(word) < 16) or int(word) < least:
        raise ModelError(f"the LightGBM model text is damaged: {name} is '{shown(word)}'.")
    return int(word)
