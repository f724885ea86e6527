"""What the nodes of a network (`NetworkWorkload`) tell about how they may be computed together.

Nodes are told by their numbers, and come behind their inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FUSED_WIDTH = 192  # columns from which a product may compute what it reads a block at a time (knob ``block``)

REGISTER_BLOCKS = (4, 8)
"""Blocks that stay in registers: they may pay where products have few outputs, of fewer columns as well."""

_FEWEST_TERMS = 16  # columns from which those blocks may pay

MOST_NEAREST = 32
"""The k of the smallest values up to which they are found in one pass, where a schedule can (`fusible`)."""


def fusible(
    nodes: Sequence[Mapping[str, Any]], one_pass: bool = False, narrowest: int = FUSED_WIDTH
) -> dict[int, list[int]]:
    """Products that may compute what they read block by block, each with the nodes that are then inside.

    The product reads something wide that nothing else reads, made by functions of single numbers of other
    products or distances (which nothing else reads), and of constants.

    `one_pass`: whether the k smallest of such values are found in one pass, and so can be of blocks, too.
    `narrowest`: columns that are wide.
    """
    readers = readers_of(nodes)
    found: dict[int, list[int]] = {}
    for at, node in enumerate(nodes):
        if node["kind"] != "contract" and not (one_pass and in_one_pass(node)):
            continue
        source = node["inputs"][0]
        wide = nodes[source]["width"]
        inside: list[int] = []
        stack, good = [source], wide >= narrowest
        while stack and good:
            here = stack.pop()
            if nodes[here]["kind"] == "constant" or (nodes[here]["width"] == 1 and here not in inside):
                continue
            good = set(readers[here]) <= {at, *inside} and nodes[here]["width"] == wide
            inside.append(here)
            if nodes[here]["kind"] == "elementwise":
                stack += nodes[here]["inputs"]
            else:
                good &= nodes[here]["kind"] in ("contract", "distance", "linear_sum")
        if good and inside:
            found[at] = sorted(inside)
    return found


def in_register_blocks(nodes: Sequence[Mapping[str, Any]]) -> dict[int, list[int]]:
    """As `fusible`: products of few outputs, with `REGISTER_BLOCKS`."""
    found = fusible(nodes, narrowest=_FEWEST_TERMS)
    return {at: inside for at, inside in found.items() if nodes[at]["width"] <= REGISTER_BLOCKS[0]}


def in_one_pass(node: Mapping[str, Any]) -> bool:
    """Whether a node is the k smallest of some values, of which a few are kept on the way."""
    return bool(node["kind"] == "top_k" and node["k"] <= MOST_NEAREST)


def expands(node: Mapping[str, Any]) -> bool:
    """Whether a node is a distance that products give as well."""
    return bool(
        node["kind"] == "distance" and node["metric"] == "squared_euclidean" and "scale" not in node["tables"]
    )


def may_expand(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether distances may be computed from products: where no order of nearly equal ones is asked for."""
    return any(map(expands, nodes)) and not any(node["kind"] == "top_k" for node in nodes)


def nearest(nodes: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Which nodes take the smallest of squared distances that nothing else reads; by them, the distances."""
    readers = readers_of(nodes)
    return {
        at: node["inputs"][0]
        for at, node in enumerate(nodes)
        if node["kind"] == "top_k"
        and expands(nodes[node["inputs"][0]])
        and readers[node["inputs"][0]] == [at]
    }


def scaled(nodes: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Products of distances and a number of which only exponentials are taken; by them, the distances.

    Of such, what is left of a distance of 0 matters as little as any other rounding.
    """
    readers = readers_of(nodes)
    found = {}
    for at, node in enumerate(nodes):
        if node.get("function") != "multiply":
            continue
        one, other = node["inputs"]
        number = nodes[other]["kind"] == "constant" and nodes[other]["width"] == 1
        powers = {nodes[reader].get("function") for reader in readers[at]} == {"exp"}
        same = bool(node.get("single")) == bool(nodes[one].get("single"))
        if number and powers and same and expands(nodes[one]) and readers[one] == [at]:
            found[at] = one
    return found


def readers_of(nodes: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """By node: the nodes that read it, each as often as it does."""
    readers: list[list[int]] = [[] for _ in nodes]
    for at, node in enumerate(nodes):
        for one in node["inputs"]:
            readers[one].append(at)
    return readers
