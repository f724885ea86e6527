"""Models whose scores are weighted sums of the scores of several forests, as a single forest.

Voting and stacking with a linear model on top have this form. Only views use the result: the forests' own
kernels compute predictions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.join_trees import comparisons_of, joined
from hbtvm.graph.networks.network import Network
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.views.additive import score_of
from hbtvm.operators.base import Node, evaluate, in_order
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.shapes import Reduce

_LINEAR = frozenset(("input", "constant", "select", "concat", "contract", "linear_sum"))
_ARITHMETIC = frozenset(("add", "subtract", "multiply", "divide", "negative"))
_REDUCTIONS = frozenset(("sum", "mean", "argmax"))  # positions of labels are not scores


def as_one_forest(graph: Graph) -> Graph | None:
    """Return a graph of stages as one forest; None if its scores are no weighted sums of forests' scores."""
    last = graph.anchor
    width = len(graph.feeds) or graph.input.n_features
    if not isinstance(last, Network) or not all(
        isinstance(stage.anchor, TreeEnsemble) for stage in graph.stages
    ):
        return None
    if min(graph.columns, default=0) < width or any(
        column >= width for stage in graph.stages for column in stage.columns
    ):
        return None
    found = score_of(
        graph,
        lambda scores: _weights(scores, last.n_features),
        lambda sums, matrix: (sums[0] @ matrix, sums[1] @ matrix),
    )
    if found is None:
        return None
    weights, base = found

    of_columns = np.zeros((width + sum(stage.anchor.n_outputs for stage in graph.stages), len(base)))
    np.add.at(of_columns, list(graph.columns), weights)

    def forest(narrow: bool) -> TreeEnsemble | None:
        parts, first = [], width
        for stage in graph.stages:
            trees = stage.single if narrow and stage.single is not None else stage.anchor
            assert isinstance(trees, TreeEnsemble)
            end = first + trees.n_outputs
            parts.append(_weighted(trees, of_columns[first:end], stage.columns, width))
            first = end
        if len(set(map(comparisons_of, parts))) > 1:
            return None
        return joined(parts, [0] * len(parts), len(base), 1.0, base)

    narrows = any(stage.single is not None for stage in graph.stages)
    whole, single = forest(narrow=False), forest(narrow=True) if narrows else None
    if whole is None or (narrows and single is None):
        return None
    return replace(graph, anchor=whole, single=single, scaled=None, stages=(), columns=(), host=None)


def _weights(scores: Node, inputs: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return weights, float64, shape (inputs, O), and constants, (O,); None if the nodes are not linear."""
    for node in in_order(scores):
        plain = node.kind in _LINEAR
        plain |= isinstance(node, Elementwise) and node.function in _ARITHMETIC
        plain |= isinstance(node, Reduce) and node.function in _REDUCTIONS
        if not plain:
            return None

    def at(x: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.broadcast_to(evaluate([scores], lambda leaf: x)[0], (len(x), scores.width))
        return values

    base = at(np.zeros((1, inputs)))[0]
    weights = at(np.eye(inputs)) - base
    # Products of scores, and positions of labels, are of the same kinds.
    points = np.random.default_rng(0).normal(size=(64, inputs)) * np.geomspace(1e-3, 1e3, 64)[:, None]
    expected = points @ weights + base
    size = np.abs(points) @ np.abs(weights) + np.abs(base)
    linear = np.isfinite(weights).all() and bool(np.all(np.abs(at(points) - expected) <= 1e-9 * size + 1e-12))
    return (weights, base) if linear else None


def _weighted(trees: TreeEnsemble, weights: np.ndarray, columns: tuple[int, ...], width: int) -> TreeEnsemble:
    """Return trees that add to weighted sums of their outputs, over other features.

    `weights`: float64, shape (n_outputs, O).
    `columns`: the matrix's column of each feature.
    """
    per_node = np.repeat(trees.tree_output, np.diff(trees.offset))
    value = np.zeros((trees.n_nodes, weights.shape[1]))
    for at in range(trees.value_width):
        value += trees.value[:, at, None] * weights[per_node + at]
    return replace(
        trees.over(np.array(columns), width),
        n_outputs=weights.shape[1],
        value=value,
        tree_output=np.zeros(trees.n_trees, np.int32),
        base_score=np.zeros(weights.shape[1]),
    )
