"""Analyses of a network's nodes (`NetworkWorkload`): which may be computed together.

A node's number is its position; nodes come after their inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

SUMS = ("contract", "distance", "linear_sum")  # kinds of nodes that are sums

_PLAIN = (*SUMS, "input", "constant", "elementwise", "reduce", "concat", "select", "repeat")

FUSED_WIDTH = 192  # fewest columns of an input that a product may compute block by block (knob ``block``)

REGISTER_BLOCKS = (4, 8)
"""Sizes of blocks that stay in registers; with few outputs, they may pay for fewer columns as well."""

_FEWEST_TERMS = 16  # fewest columns for which these blocks may pay

MOST_NEAREST = 32
"""Largest k for which one pass finds the k smallest values, if the schedule can (`fusible`)."""


def fusible(
    nodes: Sequence[Mapping[str, Any]], one_pass: bool = False, narrowest: int = FUSED_WIDTH
) -> dict[int, list[int]]:
    """Return the products that may compute their inputs block by block, each with the nodes inside its loop.

    The product is the only reader of a wide input, which pointwise functions compute from products or
    distances without other readers, and from constants.

    `one_pass`: whether one pass finds the k smallest values, so that `TopK` nodes may take blocks, too.
    `narrowest`: least width of a wide input.
    """
    readers = readers_of(nodes)
    products: dict[int, list[int]] = {}
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
                good &= nodes[here]["kind"] in SUMS
        if good and inside:
            products[at] = sorted(inside)
    return products


def in_register_blocks(nodes: Sequence[Mapping[str, Any]]) -> dict[int, list[int]]:
    """Return `fusible` products of few outputs, which may use `REGISTER_BLOCKS`."""
    products = fusible(nodes, narrowest=_FEWEST_TERMS)
    return {at: inside for at, inside in products.items() if nodes[at]["width"] <= REGISTER_BLOCKS[0]}


def even_outputs(nodes: Sequence[Mapping[str, Any]]) -> int:
    """Return a number of outputs that pads little: the largest power of two up to the widest sum."""
    widest = max([1, *(int(node["width"]) for node in nodes if node["kind"] in SUMS)])
    return 1 << (widest.bit_length() - 1)


def sums_and_weights(nodes: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return the outputs of the widest sum, 0 without one, and the bytes of all sums' weights."""
    sums = [node for node in nodes if node["kind"] in SUMS]
    widths = [int(node["width"]) for node in sums]
    terms = [int(nodes[node["inputs"][0]]["width"]) for node in sums]
    return max(widths, default=0), 8 * sum(map(math.prod, zip(widths, terms, strict=True)))


def chained(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a sum reads another one."""
    behind: list[bool] = []
    for node in nodes:
        behind.append(any(behind[at] or nodes[at]["kind"] in SUMS for at in node["inputs"]))
    return any(late and node["kind"] in SUMS for late, node in zip(behind, nodes, strict=True))


def follows_tables(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a node reads tables for each column or code, loads that the rows of a tile share."""
    return any(node["kind"] not in _PLAIN or "entries" in node["tables"] for node in nodes)


def in_one_pass(node: Mapping[str, Any]) -> bool:
    """Whether one pass can compute a node: the k smallest values, for a small k."""
    return bool(node["kind"] == "top_k" and node["k"] <= MOST_NEAREST)


def only_one_hot(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a network only compares codes, so that storing its many columns is most of the work."""
    return nodes[-1]["kind"] == "one_hot" and {node["kind"] for node in nodes[1:-1]} <= {"bucketize"}


def is_product(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a network is a product of all columns with weights, and perhaps a constant that is added."""
    if len(nodes) < 2 or nodes[0]["kind"] != "input" or nodes[1]["kind"] not in ("linear_sum", "contract"):
        return False
    sums = nodes[1]
    if sums["kind"] == "linear_sum" and (
        sums["shifts"]
        or sums["fills_missing"]
        or not sums["in_order"]
        or "entries" in sums["tables"]
        or "weight" not in sums["tables"]
        or list(sums["tables"]["weight"]) != [nodes[0]["width"], sums["width"]]
    ):
        return False
    if len(nodes) == 2:
        return True
    return (
        len(nodes) == 4
        and nodes[2]["kind"] == "constant"
        and nodes[3]["kind"] == "elementwise"
        and nodes[3]["function"] in ("add", "subtract")
        and list(nodes[3]["inputs"]) == [1, 2]
    )


def expands(node: Mapping[str, Any]) -> bool:
    """Whether a node is a distance that may be computed from products."""
    return bool(
        node["kind"] == "distance" and node["metric"] == "squared_euclidean" and "scale" not in node["tables"]
    )


def may_expand(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether distances may be computed from products: no node orders nearly equal distances."""
    return any(map(expands, nodes)) and not any(node["kind"] == "top_k" for node in nodes)


def nearest(nodes: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return, by `TopK` node, the squared distances of which it is the only reader."""
    readers = readers_of(nodes)
    return {
        at: node["inputs"][0]
        for at, node in enumerate(nodes)
        if node["kind"] == "top_k"
        and expands(nodes[node["inputs"][0]])
        and readers[node["inputs"][0]] == [at]
    }


def scaled(nodes: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return, by product of distances and a constant read only by exponentials, the distances.

    For these, the rounding error of a distance of 0 matters as little as any other.
    """
    readers = readers_of(nodes)
    products = {}
    for at, node in enumerate(nodes):
        if node.get("function") != "multiply":
            continue
        distance, other = node["inputs"]
        number = nodes[other]["kind"] == "constant" and nodes[other]["width"] == 1
        powers = {nodes[reader].get("function") for reader in readers[at]} == {"exp"}
        same = bool(node.get("single")) == bool(nodes[distance].get("single"))
        if number and powers and same and expands(nodes[distance]) and readers[distance] == [at]:
            products[at] = distance
    return products


def readers_of(nodes: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the readers of each node, repeated for repeated inputs."""
    readers: list[list[int]] = [[] for _ in nodes]
    for at, node in enumerate(nodes):
        for source in node["inputs"]:
            readers[source].append(at)
    return readers
