"""How a network becomes stages of one kernel: what is computed where, and how wide.

Made from a `NetworkWorkload` and a configuration alone, so that the expressions (`hbtvm.strategies.network`)
and their schedule (`hbtvm.schedules.network_cpu`) agree. Numbers that are cheap, and read once, are computed
where they are read; everything else is a stage: an array of a row tile's values, shape (tiles, room,
row_tile).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.schedules.space import Config

LONG = frozenset(
    (
        *(
            "exp",
            "exp2",
            "expm1",
            "log",
            "log1p",
            "log2",
            "log10",
            "tanh",
            "sinh",
            "cosh",
            "arcsinh",
            "sigmoid",
        ),
        *("power", "cbrt", "sin", "cos", "tan", "arctan", "normal_quantile"),
    )
)
"""Functions of many instructions: their values are kept."""

FUSED_WIDTH = 192
"""Columns from which a product may compute what it reads a block at a time (knob ``block``)."""

SPLIT_SUM = 32
"""Terms from which a sum of a single row is made of a vector of sums, where its outputs do not fill one."""


@dataclass(frozen=True)
class Stage:
    """One node of the network.

    Attributes
    ----------
    form
        What the network says of it (`hbtvm.operators.base.Node.form`).
    kept
        Whether its values are stored.
    room
        Columns that are stored or may be read, `width` of which count.
    inside
        Number of the product in whose loop over blocks of terms it is computed; -1 for none.
    split
        Whether its sum is made of a vector of sums.
    """

    form: Mapping[str, Any]
    kept: bool
    room: int
    inside: int = -1
    split: bool = False


@dataclass(frozen=True)
class Plan:
    """All stages, by the numbers of nodes.

    Attributes
    ----------
    lanes, vectors, output_tile, row_tile, block
        As the configuration says; `block` is 0 where no product computes what it reads.
    by_rows
        Whether vectors run over rows (else over columns).
    expanded
        Whether squared distances are computed from products.
    points
        Points of a block of which only the least approximate distance is kept (`schedules.network_nearest`).
    nearest
        By the numbers of what is computed that way: the numbers of the distances.
    """

    stages: tuple[Stage, ...]
    lanes: int
    vectors: int
    output_tile: int
    row_tile: int
    block: int
    by_rows: bool
    expanded: bool
    points: int
    nearest: Mapping[int, int]


MOST_NEAREST = 32
"""The k of the smallest values up to which they are found in one pass, where a schedule can (`fusible`)."""


def fusible(nodes: Sequence[Mapping[str, Any]], one_pass: bool = False) -> dict[int, list[int]]:
    """Products that may compute what they read block by block, each with the nodes that are then inside.

    The product reads something wide that nothing else reads, made by functions of single numbers of other
    products or distances (which nothing else reads), and of constants.

    Parameters
    ----------
    one_pass
        Whether the k smallest of such values are found in one pass, and so can be of blocks, too.
    """
    readers = _readers(nodes)
    found: dict[int, list[int]] = {}
    for at, node in enumerate(nodes):
        if node["kind"] != "contract" and not (one_pass and in_one_pass(node)):
            continue
        source = node["inputs"][0]
        wide = nodes[source]["width"]
        inside: list[int] = []
        stack, good = [source], wide >= FUSED_WIDTH
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
    readers = _readers(nodes)
    return {
        at: node["inputs"][0]
        for at, node in enumerate(nodes)
        if node["kind"] == "top_k"
        and expands(nodes[node["inputs"][0]])
        and readers[node["inputs"][0]] == [at]
    }


def plan(workload: Mapping[str, Any], config: Config, one_pass: bool = False) -> Plan:
    """Return the stages of a `NetworkWorkload` with a configuration; `one_pass` as for `fusible`."""
    nodes: Sequence[Mapping[str, Any]] = workload["nodes"]
    by_rows = config["axis"] == "rows"
    lanes, vectors = int(config["lanes"]), int(config["vectors"])
    output_tile, block = int(config["output_tile"]), int(config["block"])
    unit = output_tile if by_rows else lanes
    inside: dict[int, int] = {}
    if block:
        for product, members in fusible(nodes, one_pass).items():
            inside |= dict.fromkeys(members, product)
    readers = _readers(nodes)
    stages: list[Stage] = []
    for at, node in enumerate(nodes):
        kind, width = node["kind"], int(node["width"])
        room, split = width, False
        if kind in ("contract", "distance", "linear_sum"):
            # Few outputs are not padded to a tile of many.
            own = min(unit, 1 << (width - 1).bit_length()) if by_rows else unit
            room = -(-width // own) * own
            terms = nodes[node["inputs"][0]]["width"] if kind == "contract" else 0
            source = stages[node["inputs"][0]] if kind == "contract" else None
            if (
                not by_rows
                and source is not None
                and width < lanes
                and terms >= SPLIT_SUM
                and at not in _over(inside)
            ):
                split = source.kept and source.room % lanes == 0
                room = width if split else room
        elif kind == "elementwise":
            rooms = [stages[one].room for one in node["inputs"] if nodes[one]["width"] > 1]
            wide = [
                stages[one].room
                for one in node["inputs"]
                if nodes[one]["width"] > 1 and nodes[one]["kind"] != "constant"
            ]
            if wide and len(set(wide)) == 1:
                room = wide[0]
            elif rooms and not wide:
                room = width
        if at in inside and width > 1:
            room = -(-width // _multiple(unit, block)) * _multiple(unit, block)
        stages.append(Stage(node, _kept(at, nodes, readers), room, inside.get(at, -1), split))
    points = int(config.get("points", 0))
    return Plan(
        tuple(stages),
        lanes,
        vectors,
        output_tile,
        int(config["row_tile"]),
        block,
        by_rows,
        config["distances"] == "expanded",
        points,
        nearest(nodes) if points else {},
    )


def stores_by_row(plan: Plan, outputs: int) -> bool:
    """Whether scores are transposed in registers as they are stored."""
    return plan.by_rows and plan.lanes > 1 and outputs > 1


def passes(plan: Plan, at: int) -> int:
    """About how often each value of a node is read, by all that read it."""
    total = 0
    for stage in plan.stages:
        if at in stage.form["inputs"]:
            sums = stage.form["kind"] in ("contract", "distance", "linear_sum")
            total += -(-stage.room // plan.output_tile) if sums else 1
            total += stage.form["kind"] in ("monomials", "bucketize", "interpolate")
            total += stage.form["kind"] in ("monomials", "interpolate")
    return total


def _over(inside: Mapping[int, int]) -> set[int]:
    return set(inside.values())


def _multiple(one: int, other: int) -> int:
    # Both are powers of two, or the first divides the second.
    return max(one, other)


def _readers(nodes: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """By node: the nodes that read it, each as often as it does."""
    readers: list[list[int]] = [[] for _ in nodes]
    for at, node in enumerate(nodes):
        for one in node["inputs"]:
            readers[one].append(at)
    return readers


_LIGHT = ("elementwise", "concat", "select", "repeat")


def _kept(at: int, nodes: Sequence[Mapping[str, Any]], readers: Sequence[Sequence[int]]) -> bool:
    node = nodes[at]
    kind = node["kind"]
    if kind in ("input", "constant"):
        return False
    if kind in ("select", "repeat"):
        return False
    last = at == len(nodes) - 1
    if kind == "concat":
        # Where it is only put out, its parts are.
        return not last
    if kind not in _LIGHT:
        return True
    if last:
        return node.get("function") in LONG
    if len(readers[at]) != 1 or node.get("function") in LONG:
        return True
    reader = nodes[readers[at][0]]
    if reader["kind"] == "elementwise":
        return False
    if reader["kind"] == "concat":
        return readers[at][0] != len(nodes) - 1
    return not (reader["kind"] == "reduce" and reader["function"] in ("sum", "max", "min"))


def stage_of(name: str) -> int:
    """The node that a stage belongs to, by the stage's name; -1 of those before all nodes."""
    return int(name[1:].split("_")[0]) if name[1:2].isdigit() else -1
