"""scikit-learn's IsolationForest."""

from __future__ import annotations

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.build import assemble
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.arrays import field
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.sklearn.common import column_count, input_spec, nodes_of, require_own_arrays, tree_of
from hbtvm.graph.graph import Graph
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import LEAF
from hbtvm.operators.base import Input, Node
from hbtvm.operators.pointwise import apply

_ANY_VALUE = (1, 6)
"""The first release of scikit-learn that accepts missing and infinite values."""


def read(model: Record) -> Graph:
    """Read an ``IsolationForest``: its raw score is the summed depth of a row's leaves."""
    n_features = column_count(model)
    # scikit-learn draws columns for each tree, but uses them only if they are fewer than all.
    subset = model.whole("_max_features", 1) != n_features
    estimators, drawn = model.records("estimators_"), model.sequence("estimators_features_")
    if len(estimators) != len(drawn):
        raise ModelError("the IsolationForest is damaged: it has columns of a different number of trees.")
    require_own_arrays(nodes_of(estimator) for estimator in estimators)
    trees = []
    for estimator, of_tree in zip(estimators, drawn, strict=True):
        nodes = nodes_of(estimator)
        columns = as_array(of_tree, "a tree's columns", "iu", 1) if subset else None
        if columns is not None and field(nodes, "feature").max() >= len(columns):
            raise ModelError("the IsolationForest is damaged: a tree uses columns that it does not have.")
        # A leaf of several samples stands for the tree that would separate them. The order of the
        # sum is scikit-learn's, as the last bit decides about rows on the threshold.
        depth = _nodes_above(nodes) + _average_path_length(field(nodes, "n_node_samples")) - 1.0
        trees.append(tree_of(nodes, depth[:, None], None if columns is None else columns.astype(np.int64)))
    ensemble = assemble(
        trees,
        n_features=n_features,
        compare_dtype="float32",
        tree_output=np.zeros(len(trees)),
        base_score=np.zeros(1),
    )
    samples = np.array([model.whole("_max_samples", 0)])
    score = _scores(Input(1), float(len(trees) * _average_path_length(samples)[0]))
    offset = model.number("offset_")
    below = apply("less", score, offset)
    outputs: dict[str, Node] = {
        "index": apply("subtract", 1.0, apply("multiply", below, 2.0)),
        "score": score,
        "decision": apply("subtract", score, offset),
    }
    output = OutputSpec("anomaly", 1, outputs)
    free = model.version() >= _ANY_VALUE
    inputs = input_spec(model, allow_nan=free, allow_inf=free)
    return Graph("scikit-learn", "IsolationForest", inputs, ensemble, output)


def _scores(depth: Node, mean: float) -> Node:
    """The anomaly scores of summed depths; `mean` is that of the rows of training."""
    # A forest trained on a single sample has depth 0; the library then scores one half.
    share = apply("divide", depth, mean) if mean else apply("add", apply("multiply", depth, 0.0), 1.0)
    # A power as in the library, not exp2, as the last bit decides about rows on the threshold.
    return apply("negative", apply("power", 2.0, apply("negative", share)))


def _average_path_length(samples: np.ndarray) -> np.ndarray:
    """Return the mean depth of a failing search in a random binary tree of some samples.

    Parameters
    ----------
    samples
        Whole numbers, shape (k,).

    Returns
    -------
    float64, shape (k,): 2 H(n - 1) - 2 (n - 1) / n with H(n) taken as ln(n) + Euler's constant.
    """
    length = np.zeros(len(samples))
    length[samples == 2] = 1.0
    many = samples[samples > 2]
    length[samples > 2] = 2.0 * (np.log(many - 1.0) + np.euler_gamma) - 2.0 * (many - 1.0) / many
    return length


def _nodes_above(nodes: np.ndarray) -> np.ndarray:
    """Return the number of nodes on the path to each node, including itself: float64, shape (M,).

    The nodes may come from a damaged file, so invalid links must end the walk; `assemble` refuses them later.
    """
    left, right = field(nodes, "left_child"), field(nodes, "right_child")
    count = np.zeros(len(nodes))
    frontier = np.zeros(1, np.int64)
    level = 0
    while len(frontier):
        level += 1
        count[frontier] = level
        children = np.concatenate([left[frontier], right[frontier]]).astype(np.int64)
        children = np.unique(children[(children != LEAF) & (children >= 0) & (children < len(nodes))])
        # In a tree no node is reached twice.
        frontier = children[count[children] == 0]
    return count
