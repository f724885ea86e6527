"""Views of each tree: the leaf that a row reaches, and the tree's terms of the raw scores.

Both are ensembles over the same splits in which every tree has outputs of its own, so all kernels for trees
compute them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.graph.graph import Graph
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.views.view import NoView, trees_of, view_of

_SMALL = frozenset(("xgboost", "lightgbm", "catboost"))
"""Libraries whose leaf indices have 32 bits; scikit-learn's have 64."""


def leaves(graph: Graph) -> Graph:
    """Return the view of the library's number of each tree's leaf: integers, a column for each tree.

    For scikit-learn's ``GradientBoostingClassifier`` a row's results have shape (iterations, outputs), as its
    ``apply`` returns them.

    Raises `NoView` if there are no trees, or the library does not number leaves.
    """
    trees = trees_of(graph)
    if trees.leaf_id is None:
        raise NoView(f"hbtvm does not read the numbers of leaves of {graph.library}")
    shape: tuple[int, ...] = (trees.n_trees,)
    if graph.model == "GradientBoostingClassifier":
        shape = (trees.n_trees // trees.n_outputs, trees.n_outputs)
    return view_of(graph, _leaves, shape, "int32" if graph.library in _SMALL else "int64")


def tree_scores(graph: Graph) -> Graph:
    """Return the view of each tree's terms of the raw scores, before the divisor.

    A row's results have shape (trees,) for one raw score, or (iterations, raw scores): an iteration is a tree
    that adds to all scores, or, in boosting, one tree for each score. Trees in another order are an iteration
    each.

    Raises `NoView` if there are no trees.
    """
    trees = trees_of(graph)
    count, outputs = trees.n_trees, trees.n_outputs
    rounds = np.arange(count) % outputs
    if trees.value_width == outputs:
        shape, place = (count, outputs), np.arange(count) * outputs
    elif trees.value_width == 1 and count % outputs == 0 and np.array_equal(trees.tree_output, rounds):
        shape, place = (count // outputs, outputs), np.arange(count)
    else:
        shape, place = (count, outputs), np.arange(count) * outputs + trees.tree_output

    def terms(ensemble: TreeEnsemble) -> TreeEnsemble:
        return _apart(ensemble, ensemble.value, place, shape[0] * shape[1])

    return view_of(graph, terms, shape[:1] if outputs == 1 else shape, None)


def _leaves(ensemble: TreeEnsemble) -> TreeEnsemble:
    assert ensemble.leaf_id is not None
    number = np.where(ensemble.is_leaf(), ensemble.leaf_id, 0).astype(np.float64)[:, None]
    return _apart(ensemble, number, np.arange(ensemble.n_trees), ensemble.n_trees)


def _apart(ensemble: TreeEnsemble, value: np.ndarray, place: np.ndarray, outputs: int) -> TreeEnsemble:
    """Return trees with other values that add to outputs of their own.

    `value`: float64, shape (N, width).
    `place`: int, shape (T,): the first output of each tree.
    `outputs`: number of outputs.
    """
    return replace(
        ensemble,
        n_outputs=outputs,
        value=value,
        tree_output=place.astype(np.int32),
        base_score=np.zeros(outputs),
        divisor=1.0,
        precise=bool(np.any(value != value.astype(np.float32))),
    ).validate()
