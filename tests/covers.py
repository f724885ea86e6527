"""Checks of the covers and numbers of leaves that front ends keep."""

from __future__ import annotations

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble


def assert_sums(trees: TreeEnsemble) -> None:
    """Check that the cover of each split is the sum of its children's."""
    assert trees.cover is not None
    split = np.flatnonzero(trees.left != LEAF)
    base = np.repeat(trees.offset[:-1], np.diff(trees.offset))[split]
    sums = trees.cover[base + trees.left[split]] + trees.cover[base + trees.right[split]]
    np.testing.assert_allclose(sums, trees.cover[split], rtol=1e-12)


def leaf_covers(trees: TreeEnsemble, tree: int) -> np.ndarray:
    """Return the covers of a tree's leaves by their numbers."""
    assert trees.cover is not None and trees.leaf_id is not None
    nodes = np.arange(trees.offset[tree], trees.offset[tree + 1])
    leaves = nodes[trees.is_leaf()[nodes]]
    numbers = trees.leaf_id[leaves]
    assert sorted(numbers.tolist()) == list(range(len(leaves)))
    result: np.ndarray = trees.cover[leaves][np.argsort(numbers)]
    return result
