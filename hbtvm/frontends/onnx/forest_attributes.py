"""The attributes of ai.onnx.ml's tree operators as a `Forest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from hbtvm.frontends.onnx.call import Call
from hbtvm.frontends.onnx.forests import AGGREGATES, MEMBER, MODES, Forest
from hbtvm.graph.trees.covers import cover_of
from hbtvm.graph.trees.ensemble import LEAF

_MOST_ID = 1 << 31


def of_attributes(call: Call, kind: Literal["target", "class"], outputs: int | None = None) -> Forest:
    """Read ``TreeEnsembleRegressor`` (targets) or ``TreeEnsembleClassifier`` (classes).

    Raises `ModelError` if the attributes don't fit together.
    """
    trees, nodes = call.integers("nodes_treeids"), call.integers("nodes_nodeids")
    count = len(trees)
    names = call.texts("nodes_modes")
    values, double = _numbers(call, "nodes_values")
    feature, yes, no = (
        call.integers(f"nodes_{suffix}ids") for suffix in ("feature", "truenode", "falsenode")
    )
    if not count or not all(len(column) == count for column in (nodes, names, values, feature, yes, no)):
        raise call.damaged("its lists of nodes differ in length.")
    mode = np.array(
        [
            MODES.index(mode_name) if mode_name in MODES[:6] else LEAF if mode_name == "LEAF" else -2
            for mode_name in names
        ]
    )
    if np.any(mode == -2):
        unknown = names[int(np.flatnonzero(mode == -2)[0])]
        raise call.damaged(f"a node has the mode {unknown[:40]!r}.")
    tracks = call.integers("nodes_missing_value_tracks_true")
    ids = f"{kind}_ids"
    holder_trees, holder_nodes = call.integers(f"{kind}_treeids"), call.integers(f"{kind}_nodeids")
    targets = call.integers(ids)
    weights, _ = _numbers(call, f"{kind}_weights")
    if not len(targets) == len(holder_trees) == len(holder_nodes) == len(weights):
        raise call.damaged("its lists of leaves differ in length.")
    for ids_ in (trees, nodes, holder_trees, holder_nodes, yes, no):
        if len(ids_) and not -1 <= ids_.min() <= ids_.max() < _MOST_ID:
            raise call.damaged("the number of a tree or node is out of range.")
    # Trees in order of appearance; within them, nodes in order of appearance.
    distinct, first, which = np.unique(trees, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[which]
    order = np.argsort(rank, kind="stable")
    starts = np.searchsorted(rank[order], np.arange(len(distinct) + 1))
    keys = rank[order] * (_MOST_ID + 1) + nodes[order]
    by_key = np.argsort(keys, kind="stable")
    if np.any(np.diff(keys[by_key]) == 0):
        raise call.damaged("a tree has two nodes of the same number.")

    def place(tree: np.ndarray, node: np.ndarray) -> np.ndarray:
        wanted = tree * (_MOST_ID + 1) + node
        at = np.minimum(np.searchsorted(keys, wanted, sorter=by_key), count - 1)
        if np.any(keys[by_key[at]] != wanted):
            raise call.damaged("a node leads to a missing node.")
        result: np.ndarray = by_key[at]
        return result

    mode, rank = mode[order], rank[order]
    split = mode != LEAF
    children = np.full((2, count), LEAF, np.int64)
    for at, ends in enumerate((yes[order], no[order])):
        children[at, split] = place(rank[split], ends[split]) - starts[rank[split]]
    known = np.searchsorted(distinct, holder_trees)
    if np.any(distinct[np.minimum(known, len(distinct) - 1)] != holder_trees):
        raise call.damaged("a leaf is of a missing tree.")
    holders = place(np.argsort(np.argsort(first))[known], holder_nodes)
    missing_left = np.zeros(count, bool)
    missing_left[: len(tracks)] = tracks[:count] == 1
    base, _ = _numbers(call, "base_values")
    total = outputs if outputs is not None else call.whole("n_targets", 1)
    return Forest(
        starts.astype(np.int64), feature[order], mode, values[order], children[0], children[1],
        missing_left[order],
        holders, targets, weights, total, base, call.text("aggregate_function", "SUM"), double,
        number=nodes[order], rate=_rates(call, order),
    )  # fmt: skip


def _rates(call: Call, order: np.ndarray) -> np.ndarray | None:
    """Return the nodes' hit rates; None if the model has none, or (as converters write) the same for all."""
    stored = [call.operation.attributes.get(f"nodes_hitrates{ending}") for ending in ("", "_as_tensor")]
    for values in stored:
        rates = cover_of(values, len(order))
        if rates is not None and np.any(rates != rates[0]):
            result: np.ndarray = rates[order]
            return result
    return None


def _numbers(call: Call, name: str) -> tuple[np.ndarray, bool]:
    """Return an attribute, a list of float32 or a tensor, as float64, and whether it was float64."""
    values = call.array(name)
    if not len(values):
        values = call.array(f"{name}_as_tensor")
    return values.astype(np.float64), bool(len(values)) and values.dtype == np.float64


def of_tensors(call: Call) -> Forest:
    """Read ``TreeEnsemble``, whose trees share lists of splits and of leaves.

    Raises `ModelError` if the attributes don't fit together.
    """
    roots, feature = call.integers("tree_roots"), call.integers("nodes_featureids")
    splits, mode = call.array("nodes_splits"), call.integers("nodes_modes")
    yes, no = call.integers("nodes_truenodeids"), call.integers("nodes_falsenodeids")
    yes_leaf, no_leaf = call.integers("nodes_trueleafs") != 0, call.integers("nodes_falseleafs") != 0
    targets, weights = call.integers("leaf_targetids"), call.array("leaf_weights").astype(np.float64)
    count, leaves = len(feature), len(targets)
    if not count or not leaves or len(weights) != leaves or not len(roots):
        raise call.damaged("it has no trees, or other numbers of weights and leaves.")
    if not all(len(column) == count for column in (splits, mode, yes, no, yes_leaf, no_leaf)):
        raise call.damaged("its lists of nodes differ in length.")
    for ends, is_leaf in ((yes, yes_leaf), (no, no_leaf)):
        if np.any(ends < 0) or np.any(ends >= np.where(is_leaf, leaves, count)):
            raise call.damaged("a node leads to a missing node.")
    if np.any(roots < 0) or np.any(roots >= count) or np.any(mode < 0) or np.any(mode > MEMBER):
        raise call.damaged("a root or a mode is out of range.")
    tracks = np.zeros(count, bool)
    values = call.integers("nodes_missing_value_tracks_true")
    tracks[: len(values)] = values[:count] == 1
    aggregate = call.whole("aggregate_function", 1)
    if not 0 <= aggregate < len(AGGREGATES):
        raise call.damaged(f"its aggregate_function is {aggregate}.")
    members = _members(call, mode)
    order, starts, children, holders, leaf = _laid_out(call, roots, (yes, no), (yes_leaf, no_leaf))
    number = np.zeros(len(order), np.int64)
    number[holders] = leaf
    inner = order >= 0
    at = np.where(inner, order, 0)
    return Forest(
        starts, np.where(inner, feature[at], LEAF), np.where(inner, mode[at], LEAF),
        np.where(inner, splits.astype(np.float64)[at], 0.0), children[0], children[1], inner & tracks[at],
        holders, targets[leaf], weights[leaf], call.whole("n_targets", 1), np.zeros(0), AGGREGATES[aggregate],
        splits.dtype == np.float64,
        {int(i): members[int(order[i])] for i in np.flatnonzero(inner & (mode[at] == MEMBER))},
        number=number,
    )  # fmt: skip


def _members(call: Call, mode: np.ndarray) -> dict[int, tuple[float, ...]]:
    """Return the values of sets by node: the attribute lists set after set, separated by NaN."""
    values = call.array("membership_values").astype(np.float64)
    wanted = np.flatnonzero(mode == MEMBER).tolist()
    groups: list[tuple[float, ...]] = []
    group: list[float] = []
    for value in values.tolist():
        if value == value:
            group.append(value)
        else:
            groups.append(tuple(group))
            group = []
    if group:
        groups.append(tuple(group))
    if len(groups) < len(wanted):
        raise call.damaged(f"it has {len(groups)} sets of values for {len(wanted)} nodes.")
    return dict(zip(wanted, groups, strict=False))


def _laid_out(
    call: Call, roots: np.ndarray, ends: Sequence[np.ndarray], is_leaf: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lay out each tree's nodes consecutively, with a separate leaf for each path.

    Returns each node's split, or LEAF; the trees' starts; children (2, N); the nodes that are leaves, and
    their indices in the list of leaves.
    """
    order: list[np.ndarray] = []
    children: list[np.ndarray] = []
    leaf_of: list[np.ndarray] = []
    starts, total, most = [0], 0, 4 * len(ends[0]) + 4 * len(roots)
    for root in roots.tolist():
        level, done = np.array([root]), 1
        tree_order, tree_children, tree_leaf = [level], list[np.ndarray](), [np.array([LEAF])]
        while len(level):
            inner = level >= 0
            at = np.where(inner, level, 0)
            # Two children for each split of the level, numbered behind all nodes so far.
            number = done + np.arange(2 * inner.sum()).reshape(-1, 2)
            next_children = np.full((2, len(level)), LEAF, np.int64)
            next_children[:, inner] = number.T
            tree_children.append(next_children)
            follow = np.stack([ends[0][at], ends[1][at]], 1)[inner].ravel()
            leaf = np.stack([is_leaf[0][at], is_leaf[1][at]], 1)[inner].ravel()
            level = np.where(leaf, LEAF, follow)
            tree_order.append(level)
            tree_leaf.append(np.where(leaf, follow, LEAF))
            done += len(level)
            if total + done > most:
                raise call.damaged("its trees share nodes, or have loops.")
        order += tree_order
        children += tree_children
        leaf_of += tree_leaf
        total += done
        starts.append(total)
    leaves = np.concatenate(leaf_of)
    holders = np.flatnonzero(leaves >= 0)
    return (
        np.concatenate(order), np.array(starts, np.int64), np.concatenate(children, axis=1), holders,
        leaves[holders],
    )  # fmt: skip
