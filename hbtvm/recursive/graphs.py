"""Structures from arrays of parents or children, and from graphs of networkx and DGL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from hbtvm.errors import InputError
from hbtvm.recursive.packing import as_array, inputs_of, listed, packed, whole
from hbtvm.runtime.recursive.structures import Structures

Edges = Literal["to_parent", "to_child"]


def parent_arrays(parents: Iterable[Any], inputs: Mapping[str, Any]) -> Structures:
    """Structures as arrays of each node's parent, -1 for roots; children are in the order of their numbers.

    Parameters
    ----------
    parents
        An array of whole numbers, shape (nodes,), for each structure.
    inputs
        By name, of all nodes of all structures, or a list with an array for each structure.
    """
    owns: list[list[list[int]]] = []
    for b, given in enumerate(listed(parents)):
        array = whole(given, f"structure {b}", 1).tolist()
        own: list[list[int]] = [[] for _ in array]
        for node, parent in enumerate(array):
            if not -1 <= parent < len(array):
                raise InputError(
                    f"structure {b}, node {node}: its parent {parent} is no node of this structure."
                )
            if parent >= 0:
                own[parent].append(node)
        owns.append(own)
    return packed(owns, inputs_of(inputs, owns))


def child_arrays(children: Iterable[Any], inputs: Mapping[str, Any]) -> Structures:
    """Structures as arrays of each node's children, shape (nodes, places), within the structure; -1 for none.

    `inputs` as in `parent_arrays`.
    """
    owns = [whole(one, f"structure {b}", 2).tolist() for b, one in enumerate(listed(children))]
    return packed(owns, inputs_of(inputs, owns))


def networkx(
    graphs: Iterable[Any], inputs: Mapping[str, str], edges: Edges = "to_parent", place: str | None = None
) -> Structures:
    """Graphs of ``networkx.DiGraph``, nodes in their order.

    Parameters
    ----------
    inputs
        Names of inputs and of the node attributes that hold them: whole numbers, or vectors. A node without
        the attribute has -1.
    edges
        ``"to_parent"``: from a child to what is computed from it; ``"to_child"``: the other way, as in
        arborescences.
    place
        The edge attribute with a child's place; without it, children are in the order of edges.
    """
    owns: list[list[list[int]]] = []
    found: dict[str, list[Any]] = {name: [] for name in inputs}
    for b, graph in enumerate(listed(graphs)):
        number = {node: at for at, node in enumerate(graph.nodes)}
        pairs = [(number[u], number[v], data) for u, v, data in graph.edges(data=True)]
        own: list[list[int]] = [[] for _ in number]
        for u, v, data in pairs:
            child, parent = (u, v) if _upward(edges) else (v, u)
            if place is None:
                own[parent].append(child)
                continue
            at = data.get(place)
            if type(at) is not int or not 0 <= at < 2**16:
                raise InputError(f"structure {b}, node {parent}: the place of child {child} is {at!r}.")
            own[parent] += [-1] * (at + 1 - len(own[parent]))
            if own[parent][at] >= 0:
                raise InputError(f"structure {b}, node {parent}: two children are in place {at}.")
            own[parent][at] = child
        owns.append(own)
        for name, attribute in inputs.items():
            found[name] += [data.get(attribute, -1) for _, data in graph.nodes(data=True)]
    return packed(owns, inputs_of(found, owns))


def dgl(graphs: Iterable[Any], inputs: Mapping[str, str], edges: Edges = "to_parent") -> Structures:
    """Graphs of DGL, children in the order of edges; `inputs` names ``ndata``, otherwise as `networkx`."""
    owns: list[list[list[int]]] = []
    found: dict[str, list[Any]] = {name: [] for name in inputs}
    for graph in listed(graphs):
        own: list[list[int]] = [[] for _ in range(int(graph.num_nodes()))]
        source, target = (as_array(one).tolist() for one in graph.edges())
        for u, v in zip(source, target, strict=True):
            child, parent = (u, v) if _upward(edges) else (v, u)
            own[parent].append(child)
        owns.append(own)
        for name, key in inputs.items():
            found[name].append(as_array(graph.ndata[key]))
    return packed(owns, inputs_of(found, owns))


def _upward(edges: str) -> bool:
    if edges not in ("to_parent", "to_child"):
        raise InputError(f"edges is {edges!r}; expected 'to_parent' or 'to_child'")
    return edges == "to_parent"
