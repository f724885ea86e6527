"""Results of CPU kernels beside raw scores: outputs of linear classifiers, and a check for finite rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.graph.graph import Anchor, Graph
from hbtvm.graph.networks.network import Linear, Network
from hbtvm.graph.predictor import predictor_over
from hbtvm.operators.base import Constant, Input, Node, rewrite
from hbtvm.operators.distances import Distance
from hbtvm.operators.pointwise import Elementwise, apply
from hbtvm.operators.products import Contract, LinearSum
from hbtvm.operators.shapes import Select, concat, reduce, select


def in_kernel(graph: Graph) -> Graph:
    """Return the graph of a CPU's kernels.

    - Kernels compute the labels and probabilities of linear classifiers of several scores: in numpy they take
      several times as long as the product.
    - If NaN and infinities are refused, a column of a network's scores detects them, which saves a pass over
      the rows: a score that is a product of all values, else a further column.
    """
    if isinstance(graph.anchor, Linear) and graph.output.kind == "classifier" and graph.output.n_outputs > 1:
        graph = _with_outputs(graph, graph.anchor)
    if isinstance(graph.anchor, Network) and graph.reads_finite:
        if graph.output.nodes:
            graph = _with_check(graph, graph.anchor)
        elif all(map(_tells, (graph.anchor, graph.single or graph.anchor))):
            graph = replace(graph, output=replace(graph.output, finite=0))
    return graph


def _tells(anchor: Anchor) -> bool:
    """Return whether each score is a sum over all values, perhaps with a constant.

    Such scores are finite only if the row's values are.
    """
    if not isinstance(anchor, Network):
        return False
    node = anchor.output
    if isinstance(node, Elementwise) and node.function in ("add", "subtract"):
        node = next((x for x in node.operands if not isinstance(x, Constant)), node)
    return any(isinstance(x, Input) and _reads_all(node, x) and node.kind != "distance" for x in node.inputs)


def _with_outputs(graph: Graph, linear: Linear) -> Graph:
    predictor = predictor_over(graph.output, linear.node())
    return replace(
        graph, anchor=Network(linear.n_features, predictor.scores()), output=predictor.output_spec()
    )


def _with_check(graph: Graph, network: Network) -> Graph:
    anchor, output, width = _checked(network), graph.output, network.n_outputs
    if anchor is None:
        return graph
    wide = Input(width + 1)
    whole = select(wide, range(width))

    def over_wide(node: Node) -> Node:
        if isinstance(node, Select) and node.x is whole:
            return Select(wide, node.indices)
        return whole if isinstance(node, Input) else node

    nodes = dict(zip(output.nodes, rewrite(list(output.nodes.values()), over_wide), strict=True))
    spec = replace(output, n_outputs=width + 1, nodes=nodes, finite=width)
    single = _checked(graph.single) if isinstance(graph.single, Network) else graph.single
    return replace(graph, anchor=anchor, single=single, output=spec)


def _checked(network: Network) -> Network | None:
    """Return the network with a further score that is finite only if the rows are; None without rows."""
    rows = next((node for node in network.nodes if isinstance(node, Input)), None)
    if rows is None:
        return None
    witness = _witness(network, rows)
    # Zeros from a table: TVM simplifies products with constant zeros to 0.
    check = reduce("sum", apply("multiply", witness, np.zeros(witness.width)))
    return Network(network.n_features, concat([network.output, check]))


_FEW = 64
"""Bound of columns of a node that the check may read again; wider sums may be computed block by block."""


def _witness(network: Network, rows: Input) -> Node:
    """Return the narrowest node that is finite only if all of a row's values are.

    Sums over all values are, whatever the weights: 0 times infinity is NaN. (A sum may overflow for finite
    values; that costs a pass over the rows.)
    """
    if any(node.kind == "top_k" for node in network.nodes):
        return rows
    most = min(_FEW, rows.width)
    candidates = [node for node in network.nodes if node.width < most and _reads_all(node, rows)]
    return min(candidates, key=lambda node: node.width, default=rows)


def _reads_all(node: Node, rows: Input) -> bool:
    if rows not in node.inputs:
        return False
    if isinstance(node, LinearSum):
        reads_all = bool(np.array_equal(np.unique(node.feature), np.arange(rows.width)))
        return reads_all and not node.fills_missing and not node.sizes
    return isinstance(node, Contract) or (isinstance(node, Distance) and node.metric == "squared_euclidean")
