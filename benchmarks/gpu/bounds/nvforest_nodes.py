"""A model's trees as nvForest's nodes, in any of its three layouts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hbtvm.errors import BuildError
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble

LAYOUTS = ("depth_first", "breadth_first", "layered_children_together")
"""Layouts of nodes, in the order of nvForest's enumeration: a node's near child behind it; levels of a tree,
children together; levels of all trees."""


@dataclass(frozen=True)
class Nodes:
    """Arrays as nvForest's kernel reads them.

    Attributes
    ----------
    data
        Nodes of 8 bytes, or of 16 where they are `large`: value (float32, or the index of a leaf's vector),
        distance of the far child (0 at leaves), and feature with three flags; uint8.
    roots
        uint32, shape (T,): each tree's first node.
    vectors
        float32, shape (leaves, O); None where leaves have one output.
    outputs
        Outputs of a row.
    large
        Whether distance and feature have 32 bits each.
    """

    data: np.ndarray
    roots: np.ndarray
    vectors: np.ndarray | None
    outputs: int
    large: bool


def nodes_of(ensemble: TreeEnsemble, layout: str) -> Nodes:
    """Lay out a model's trees.

    Where a test holds (``x < threshold``) the far child follows, which is the left one.

    Raises
    ------
    BuildError
        If the model has categories, zeros for missing values, or several outputs from trees of one each.
    """
    width = ensemble.value.shape[1]
    if (ensemble.category_set >= 0).any() or ensemble.zero_as_missing.any() or width != ensemble.n_outputs:
        raise BuildError("only numeric trees whose leaves have all outputs are laid out for nvForest")
    trees, count = len(ensemble.offset) - 1, len(ensemble.left)
    tree = np.repeat(np.arange(trees), np.diff(ensemble.offset))
    inner = ensemble.left != LEAF
    near = np.where(inner, ensemble.right + ensemble.offset[tree], LEAF)
    far = np.where(inner, ensemble.left + ensemble.offset[tree], LEAF)
    levels = [ensemble.offset[:-1]]
    while True:
        parents = levels[-1][inner[levels[-1]]]
        if not len(parents):
            break
        levels.append(np.stack([near[parents], far[parents]], axis=1).reshape(-1))
    place = _places(layout, levels, tree, near, far, ensemble.offset)
    distance = np.where(inner, place[far] - place, 0)
    large = bool(distance.max() > 0xFFFF or ensemble.n_features >= 2**13)
    # The largest float32 that goes left, and the next one, since tests are strict.
    threshold = ensemble.threshold.astype(np.float32)
    above = threshold.astype(np.float64) > ensemble.threshold
    threshold = np.where(above, np.nextafter(threshold, np.float32(-np.inf)), threshold)
    value = np.where(
        inner, np.nextafter(threshold, np.float32(np.inf)), ensemble.value[:, 0].astype(np.float32)
    )
    bits = value.astype(np.float32).view(np.uint32)
    vectors = None
    if width > 1:
        vectors = np.ascontiguousarray(ensemble.value[~inner], np.float32)
        bits[~inner] = np.arange(len(vectors), dtype=np.uint32)
    top = 31 if large else 15
    feature = np.where(inner, ensemble.feature, 0).astype(np.int64)
    flags = np.where(inner, ensemble.default_left.astype(np.int64) << (top - 1), 1 << top)
    kind = np.uint32 if large else np.uint16
    made = np.zeros(
        count,
        np.dtype(
            {
                "names": ["value", "distance", "metadata"],
                "formats": [np.uint32, kind, kind],
                "offsets": [0, 4, 8 if large else 6],
                "itemsize": 16 if large else 8,
            }
        ),
    )
    made["value"][place] = bits
    made["distance"][place] = distance
    made["metadata"][place] = feature | flags
    roots = place[ensemble.offset[:-1]].astype(np.uint32)
    return Nodes(made.view(np.uint8), roots, vectors, ensemble.n_outputs, large)


def _places(
    layout: str,
    levels: list[np.ndarray],
    tree: np.ndarray,
    near: np.ndarray,
    far: np.ndarray,
    offset: np.ndarray,
) -> np.ndarray:
    """Return each node's place in a layout: int64, shape (N,)."""
    place = np.zeros(len(tree), np.int64)
    if layout == "layered_children_together":
        place[np.concatenate(levels)] = np.arange(len(tree))
        return place
    if layout == "breadth_first":
        # Levels one behind the other, and among those the trees, by a sort that keeps their order.
        order = np.concatenate(levels)
        place[order[np.argsort(tree[order], kind="stable")]] = np.arange(len(tree))
        return place
    size = np.ones(len(tree), np.int64)
    for level in reversed(levels):
        parents = level[near[level] >= 0]
        size[parents] += size[near[parents]] + size[far[parents]]
    place[levels[0]] = offset[:-1]
    for level in levels:
        parents = level[near[level] >= 0]
        place[near[parents]] = place[parents] + 1
        place[far[parents]] = place[parents] + 1 + size[near[parents]]
    return place
