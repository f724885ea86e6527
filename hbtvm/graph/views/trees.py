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

_TILE = 16  # trees that kernels compute side by side (`hbtvm.strategies.trees.forest.APART`)

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
    in_turn = count % outputs == 0 and np.array_equal(trees.tree_output, np.arange(count) % outputs)
    if outputs == 1 or (trees.value_width == 1 and in_turn):
        shape = (count,) if outputs == 1 else (count // outputs, outputs)
        return view_of(graph, lambda ensemble: _apart(ensemble, ensemble.value), shape, None)

    def spread(ensemble: TreeEnsemble) -> TreeEnsemble:
        value = np.zeros((ensemble.n_nodes, outputs))
        first = np.repeat(ensemble.tree_output, np.diff(ensemble.offset))
        columns = first[:, None] + np.arange(ensemble.value_width)
        np.put_along_axis(value, columns, ensemble.value, axis=1)
        return _apart(ensemble, value)

    return view_of(graph, spread, (count, outputs), None)


def _leaves(ensemble: TreeEnsemble) -> TreeEnsemble:
    assert ensemble.leaf_id is not None
    number = np.where(ensemble.is_leaf(), ensemble.leaf_id, 0).astype(np.float64)
    return _apart(ensemble, number[:, None])


def _apart(ensemble: TreeEnsemble, value: np.ndarray) -> TreeEnsemble:
    """Return trees with other values, float64, shape (N, width), each of which adds to outputs of its own.

    Outputs without a tree follow, as kernels compute whole tiles of trees.
    """
    count, width = ensemble.n_trees, value.shape[1]
    tiled = -(-count // _TILE) * _TILE if count > 1 else 1
    return replace(
        ensemble,
        n_outputs=tiled * width,
        value=value,
        tree_output=(np.arange(count) * width).astype(np.int32),
        base_score=np.zeros(tiled * width),
        divisor=1.0,
        precise=bool(np.any(value != value.astype(np.float32))),
    ).validate()
