"""The models in DGL: what is sent along an edge, how messages are reduced, and what a node makes of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import linear as product

from benchmarks.recursive.structures import Linear

os.environ["DGLBACKEND"] = "pytorch"
import dgl

Weights = dict[str, torch.Tensor]
Run = Callable[[], torch.Tensor]


def _graph(linear: Linear) -> Any:
    """Edges from children to parents, in the order of places."""
    parents, places = np.nonzero(linear.child >= 0)
    children = linear.child[parents, places]
    return dgl.graph((torch.from_numpy(children), torch.from_numpy(parents)), num_nodes=linear.nodes)


def _send(edges: Any) -> dict[str, torch.Tensor]:
    return {"h": edges.src["h"]}


def _total(nodes: Any) -> dict[str, torch.Tensor]:
    return {"s": nodes.mailbox["h"].sum(1)}


def tree_fc(linear: Linear, w: Weights) -> Run:
    graph, words = _graph(linear), torch.from_numpy(linear.words)

    def both(nodes: Any) -> dict[str, torch.Tensor]:
        return {"s": nodes.mailbox["h"].reshape(nodes.batch_size(), -1)}

    def apply(nodes: Any) -> dict[str, torch.Tensor]:
        return {"h": torch.relu(product(nodes.data["s"], w["W"], w["b"]))}

    def run() -> torch.Tensor:
        graph.ndata["h"] = w["words"][words]
        levels = dgl.topological_nodes_generator(graph)
        for nodes in levels[1:]:
            graph.pull(nodes, _send, both, apply)
        found: torch.Tensor = graph.ndata["h"]
        return found

    return run


def _inputs(linear: Linear, w: Weights, leaves: bool) -> torch.Tensor:
    """Products with the words' vectors, of all nodes at once; zeros where only leaves have words."""
    x = product(w["words"][torch.from_numpy(linear.words)], w["Wx"])
    return (x * torch.from_numpy(linear.leaf)[:, None] if leaves else x) + w["b"]


def dag_rnn(linear: Linear, w: Weights) -> Run:
    graph, h = _graph(linear), w["U"].shape[0]

    def apply(nodes: Any) -> dict[str, torch.Tensor]:
        return {"h": torch.tanh(nodes.data["x"] + product(nodes.data["s"], w["U"]))}

    def run() -> torch.Tensor:
        graph.ndata["x"] = _inputs(linear, w, leaves=False)
        graph.ndata["h"], graph.ndata["s"] = torch.zeros(2, linear.nodes, h)
        dgl.prop_nodes_topo(graph, _send, _total, apply_node_func=apply)
        found: torch.Tensor = graph.ndata["h"]
        return found

    return run


def tree_gru(linear: Linear, w: Weights) -> Run:
    graph, h = _graph(linear), w["Uh"].shape[0]

    def apply(nodes: Any) -> dict[str, torch.Tensor]:
        s, x = nodes.data["s"], nodes.data["x"]
        r, z = torch.sigmoid(product(s, w["U"]) + x[:, : 2 * h]).split(h, 1)
        return {"h": (1 - z) * torch.tanh(product(r * s, w["Uh"]) + x[:, 2 * h :]) + z * s}

    def run() -> torch.Tensor:
        graph.ndata["x"] = _inputs(linear, w, leaves=True)
        graph.ndata["h"], graph.ndata["s"] = torch.zeros(2, linear.nodes, h)
        dgl.prop_nodes_topo(graph, _send, _total, apply_node_func=apply)
        found: torch.Tensor = graph.ndata["h"]
        return found

    return run


def tree_lstm(linear: Linear, w: Weights) -> Run:
    graph, h = _graph(linear), w["Uf"].shape[0]
    bias, forget_bias = w["b"][: 3 * h], w["b"][3 * h :]

    def send(edges: Any) -> dict[str, torch.Tensor]:
        return {"h": edges.src["h"], "c": edges.src["c"]}

    def reduce(nodes: Any) -> dict[str, torch.Tensor]:
        f = torch.sigmoid(product(nodes.mailbox["h"], w["Uf"], forget_bias))
        gates = product(nodes.mailbox["h"].sum(1), w["U"], bias)
        return {"gates": gates, "c": (f * nodes.mailbox["c"]).sum(1)}

    def apply(nodes: Any) -> dict[str, torch.Tensor]:
        i, o, u = nodes.data["gates"].split(h, 1)
        c = torch.sigmoid(i) * torch.tanh(u) + nodes.data["c"]
        return {"h": torch.sigmoid(o) * torch.tanh(c), "c": c}

    def run() -> torch.Tensor:
        graph.ndata["gates"] = _inputs(linear, w, leaves=True)[:, : 3 * h]
        graph.ndata["h"], graph.ndata["c"] = torch.zeros(2, linear.nodes, h)
        dgl.prop_nodes_topo(graph, send, reduce, apply_node_func=apply)
        found: torch.Tensor = graph.ndata["h"]
        return found

    return run


CELLS: dict[str, Callable[[Linear, Weights], Run]] = {
    "treefc": tree_fc,
    "dagrnn": dag_rnn,
    "treegru": tree_gru,
    "treelstm": tree_lstm,
}
"""By the models' names."""
