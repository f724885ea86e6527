"""Plans of networks: the stages of a kernel and their widths.

A plan depends only on a `NetworkWorkload` and a configuration, so that the expressions
(`hbtvm.strategies.network`) and their schedule (`hbtvm.schedules.cpu.network`) agree. Cheap values with one
reader are inlined; every other node is a stage: an array of a row tile's values, shape (tiles, room,
row_tile).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.schedules.network.nodes import (
    REGISTER_BLOCKS,
    SUMS,
    fusible,
    in_register_blocks,
    nearest,
    readers_of,
    scaled,
)
from hbtvm.schedules.space import Config

LONG = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sigmoid"),
        *("tanh", "sinh", "cosh", "arcsinh", "power", "cbrt", "sin", "cos", "tan", "arctan"),
        "normal_quantile",
    )
)
"""Functions of many instructions, whose values are stored."""

MAX_SUMS = 24  # most vectors of sums at once: more would not stay in registers

SPLIT_SUM = 32
"""Fewest terms of a single row's sum to split into a vector of sums, if its outputs do not fill a vector."""


@dataclass(frozen=True)
class Stage:
    """One node of the network."""

    form: Mapping[str, Any]  # the node's form (`hbtvm.operators.base.Node.form`)
    kept: bool  # whether its values are stored
    room: int  # columns that are stored or may be read, padding included
    inside: int = -1  # number of the product in whose loop over blocks of terms it is computed; -1 for none
    split: bool = False  # whether its sum is split into a vector of sums
    tile: int = 1  # outputs that are summed at once, on a CPU with vectors of rows


@dataclass(frozen=True)
class Plan:
    """All stages, by the numbers of nodes."""

    stages: tuple[Stage, ...]
    # `lanes`, `vectors`, `output_tile`, `row_tile`, `block`: the configuration's; `block` is 0 if no product
    # computes its input
    lanes: int
    vectors: int
    output_tile: int
    row_tile: int
    block: int
    by_rows: bool  # whether vectors run over rows (else over columns)
    expanded: bool  # whether squared distances are computed from products
    points: int  # points of a block of a search (`hbtvm.schedules.network.nearest`)
    nearest: Mapping[int, int]  # numbers of the distances by the numbers of the searches
    # Numbers of the expanded distances by the numbers of their products with a constant, computed as one sum
    scaled: Mapping[int, int]


def plan(workload: Mapping[str, Any], config: Config, one_pass: bool = False) -> Plan:
    """Return the stages of a `NetworkWorkload` with a configuration; `one_pass` as for `fusible`."""
    nodes: Sequence[Mapping[str, Any]] = workload["nodes"]
    by_rows = config["axis"] == "rows"
    lanes, vectors = int(config["lanes"]), int(config["vectors"])
    output_tile, block = int(config["output_tile"]), int(config["block"])
    unit = output_tile if by_rows else lanes
    inside: dict[int, int] = {}
    if block:
        small = block in REGISTER_BLOCKS and lanes > 1
        products = in_register_blocks(nodes) if small else fusible(nodes, one_pass)
        for product, members in products.items():
            inside |= dict.fromkeys(members, product)
    readers = readers_of(nodes)
    stages: list[Stage] = []
    depths: list[int] = []
    for at, node in enumerate(nodes):
        kind, width = node["kind"], int(node["width"])
        room, split, tile = width, False, 1
        if kind in SUMS:
            # Few outputs are not padded to a tile of many.
            tile = min(unit, 1 << (width - 1).bit_length()) if by_rows else unit
            if by_rows and lanes > 1 and at not in inside:
                tile = _tile(width, unit, max(unit, (MAX_SUMS if lanes > 4 else MAX_SUMS // 2) // vectors))
            room = -(-width // tile) * tile
            terms = nodes[node["inputs"][0]]["width"] if kind == "contract" else 0
            source = stages[node["inputs"][0]] if kind == "contract" else None
            if (
                not by_rows
                and source is not None
                and width < lanes
                and terms >= SPLIT_SUM
                and at not in inside.values()
            ):
                split = source.kept and source.room % lanes == 0
                room = width if split else room
        elif kind == "elementwise":
            rooms = [stages[input_].room for input_ in node["inputs"] if nodes[input_]["width"] > 1]
            wide = [
                stages[input_].room
                for input_ in node["inputs"]
                if nodes[input_]["width"] > 1 and nodes[input_]["kind"] != "constant"
            ]
            if wide and len(set(wide)) == 1:
                room = wide[0]
            elif rooms and not wide:
                room = width
        if at in inside and width > 1:
            # Both are powers of two, or one divides the other.
            step = max(unit, block)
            room = -(-width // step) * step
        kept = _kept(at, nodes, readers)
        depth = 1 + max((depths[input_] for input_ in node["inputs"]), default=0)
        if kind == "elementwise" and depth >= _DEEPEST and at < len(nodes) - 1:
            kept = True
        depths.append(0 if kept or kind not in _LIGHT else depth)
        stages.append(Stage(node, kept, room, inside.get(at, -1), split, tile))
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
        scaled(nodes) if config["distances"] == "expanded" and lanes > 1 else {},
    )


def _tile(width: int, usual: int, most: int) -> int:
    """Return a tile of `usual` to `most` outputs with the least padding."""
    if width <= usual:
        return width
    return min(range(usual, most + 1), key=lambda tile: (-(-width // tile) * tile, tile))


def stores_by_row(plan: Plan, outputs: int) -> bool:
    """Whether stores transpose scores in registers."""
    return plan.by_rows and plan.lanes > 1 and outputs > 1


def passes(plan: Plan, at: int) -> int:
    """Estimate how often all readers together read each value of a node."""
    total = 0
    for stage in plan.stages:
        if at in stage.form["inputs"]:
            sums = stage.form["kind"] in SUMS
            total += -(-stage.room // plan.output_tile) if sums else 1
            total += stage.form["kind"] in ("monomials", "bucketize", "interpolate")
            total += stage.form["kind"] in ("monomials", "interpolate")
    return total


_TWO_STAGES = ("power", "cbrt", "normal_quantile")  # functions that read their argument twice


def read_in_registers(plan: Plan) -> dict[int, int]:
    """Return the sums that a single stage reads, once, and which therefore need no array, by reader.

    The result maps a sum's number to its reader's; it is empty without vectors of rows.
    """
    nodes = [stage.form for stage in plan.stages]
    readers = readers_of(nodes)
    readers_by_sum: dict[int, int] = {}
    for at, stage in enumerate(plan.stages if plan.by_rows else ()):
        if not _is_one_sum(stage.form) or any(member.inside == at for member in plan.stages):
            continue
        here = at
        while len(readers[here]) == 1 and (here == at or not plan.stages[here].kept):
            here = readers[here][0]
            same = plan.stages[here].room == stage.room and plan.stages[here].inside == stage.inside
            if nodes[here]["kind"] != "elementwise" or not same or nodes[here]["function"] in _TWO_STAGES:
                break
            if plan.stages[here].kept and here not in readers_by_sum.values():
                readers_by_sum[at] = here
    return readers_by_sum


def _is_one_sum(form: Mapping[str, Any]) -> bool:
    match form["kind"]:
        case "linear_sum":
            return "weight" in form["tables"] and "entries" not in form["tables"]
        case "distance":
            return bool(form["metric"] != "nan_euclidean")
    return bool(form["kind"] == "contract")


_DEEPEST = 64  # operators within one expression: TVM walks expressions recursively

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
        # If the concatenation is the output, its parts are stored instead.
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
    """Return the number of a stage's node by the stage's name; -1 for stages before all nodes."""
    return int(name[1:].split("_")[0]) if name[1:2].isdigit() else -1
