"""Structures from arrays of parents or children, and from graphs of networkx and DGL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from hbtvm.errors import InputError
from hbtvm.recursive.packing import as_array, inputs_of, listed, packed, whole
from hbtvm.runtime.recursive.structures import Structures

Edges = Literal["to_parent", "to_child"]


def parent_arrays(parents: Iterable[Any], inputs: Mapping[str, Any]) -> Structures:
    """Convert arrays of each node's parent, -1 for roots; children are ordered by number.

    Parameters
    ----------
    parents
        An array of whole numbers, shape (nodes,), for each structure.
    inputs
        Arrays by name, of all nodes of all structures, or a list with an array for each structure.
    """
    structures: list[list[list[int]]] = []
    for b, parents_of in enumerate(listed(parents)):
        array = whole(parents_of, f"structure {b}", 1).tolist()
        children_of: list[list[int]] = [[] for _ in array]
        for node, parent in enumerate(array):
            if not -1 <= parent < len(array):
                raise InputError(
                    f"structure {b}, node {node}: its parent {parent} is not a node of this structure."
                )
            if parent >= 0:
                children_of[parent].append(node)
        structures.append(children_of)
    return packed(structures, inputs_of(inputs, structures))


def child_arrays(children: Iterable[Any], inputs: Mapping[str, Any]) -> Structures:
    """Convert arrays of each node's children, shape (nodes, places), within the structure; -1 for none.

    `inputs` as in `parent_arrays`.
    """
    structures = [whole(array, f"structure {b}", 2).tolist() for b, array in enumerate(listed(children))]
    return packed(structures, inputs_of(inputs, structures))


def networkx(
    graphs: Iterable[Any], inputs: Mapping[str, str], edges: Edges = "to_parent", place: str | None = None
) -> Structures:
    """Convert graphs of ``networkx.DiGraph``; nodes keep their order.

    Parameters
    ----------
    inputs
        Names of inputs and of the node attributes that hold them: whole numbers, or vectors. A node without
        the attribute has -1.
    edges
        ``"to_parent"``: from children to parents; ``"to_child"``: from parents to children, as in
        arborescences.
    place
        The edge attribute with a child's place; without it, children are in the order of edges.
    """
    structures: list[list[list[int]]] = []
    values: dict[str, list[Any]] = {name: [] for name in inputs}
    for b, graph in enumerate(listed(graphs)):
        number = {node: at for at, node in enumerate(graph.nodes)}
        pairs = [(number[u], number[v], data) for u, v, data in graph.edges(data=True)]
        children_of: list[list[int]] = [[] for _ in number]
        for u, v, data in pairs:
            child, parent = (u, v) if _upward(edges) else (v, u)
            if place is None:
                children_of[parent].append(child)
                continue
            at = data.get(place)
            if type(at) is not int or not 0 <= at < 2**16:
                raise InputError(f"structure {b}, node {parent}: the place of child {child} is {at!r}.")
            children_of[parent] += [-1] * (at + 1 - len(children_of[parent]))
            if children_of[parent][at] >= 0:
                raise InputError(f"structure {b}, node {parent}: two children are in place {at}.")
            children_of[parent][at] = child
        structures.append(children_of)
        for name, attribute in inputs.items():
            values[name] += [data.get(attribute, -1) for _, data in graph.nodes(data=True)]
    return packed(structures, inputs_of(values, structures))


def dgl(graphs: Iterable[Any], inputs: Mapping[str, str], edges: Edges = "to_parent") -> Structures:
    """Convert graphs of DGL, children in the order of edges; `inputs` names ``ndata`` (see `networkx`)."""
    structures: list[list[list[int]]] = []
    values: dict[str, list[Any]] = {name: [] for name in inputs}
    for graph in listed(graphs):
        children_of: list[list[int]] = [[] for _ in range(int(graph.num_nodes()))]
        source, target = (as_array(array).tolist() for array in graph.edges())
        for u, v in zip(source, target, strict=True):
            child, parent = (u, v) if _upward(edges) else (v, u)
            children_of[parent].append(child)
        structures.append(children_of)
        for name, key in inputs.items():
            values[name].append(as_array(graph.ndata[key]))
    return packed(structures, inputs_of(values, structures))


def _upward(edges: str) -> bool:
    if edges not in ("to_parent", "to_child"):
        raise InputError(f"edges is {edges!r}; expected 'to_parent' or 'to_child'")
    return edges == "to_parent"
