"""scikit-learn's IsolationForest."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.build import assemble
from hbtvm.frontends.sklearn_common import input_spec, nodes_of, tree_of
from hbtvm.pipeline.ensemble import LEAF
from hbtvm.pipeline.output import OutputSpec
from hbtvm.pipeline.pipeline import Pipeline


def read(model: Any) -> Pipeline:
    """Read an ``IsolationForest``: its raw score is the summed depth of a row's leaves."""
    from sklearn.ensemble._iforest import _average_path_length

    n_features = int(model.n_features_in_)
    # scikit-learn draws columns for each tree, but uses them only where it draws fewer than all.
    some = int(model._max_features) != n_features
    trees = []
    for estimator, columns in zip(model.estimators_, model.estimators_features_, strict=True):
        nodes = nodes_of(estimator.tree_)
        # A leaf of several samples stands for the tree that would have told them apart. The order
        # of the sum is scikit-learn's, as the last bit decides about rows on the threshold.
        depth = _nodes_above(nodes) + _average_path_length(nodes["n_node_samples"]) - 1.0
        trees.append(tree_of(nodes, depth[:, None], np.asarray(columns) if some else None))
    ensemble = assemble(
        trees,
        n_features=n_features,
        compare_dtype="float32",
        tree_output=np.zeros(len(trees)),
        base_score=np.zeros(1),
    )
    output = OutputSpec(
        kind="anomaly",
        n_outputs=1,
        transform="isolation",
        scale=float(len(trees) * _average_path_length([model._max_samples])[0]),
        outputs=("label", "decision", "score"),
        label_rule="side",
        offset=float(model.offset_),
    )
    return Pipeline(
        "scikit-learn", "IsolationForest", input_spec(model, allow_nan=True, allow_inf=True), ensemble, output
    )


def _nodes_above(nodes: np.ndarray) -> np.ndarray:
    """float64, shape (M,): nodes on the path to each node, itself included.

    The nodes may come from a damaged file, so links that are no tree's must end the walk;
    `assemble` refuses them later.
    """
    count = np.zeros(len(nodes))
    frontier = np.zeros(1, np.int64)
    level = 0
    while len(frontier) and level < len(nodes):
        level += 1
        count[frontier] = level
        children = np.concatenate([nodes["left_child"][frontier], nodes["right_child"][frontier]])
        frontier = np.unique(children[(children != LEAF) & (children >= 0) & (children < len(nodes))])
    return count
