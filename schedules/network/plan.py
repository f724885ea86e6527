"""How a network becomes stages of one kernel: what is computed where, and how wide.

Made from a `NetworkWorkload` and a configuration alone, so that the expressions (`hbtvm.strategies.network`)
and their schedule (`hbtvm.schedules.cpu.network`) agree. Numbers that are cheap, and read once, are computed
where they are read; everything else is a stage: an array of a row tile's values, shape (tiles, room,
row_tile).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.schedules.network.nodes import (
    REGISTER_BLOCKS,
    fusible,
    in_register_blocks,
    nearest,
    readers_of,
    scaled,
)
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

MAX_SUMS = 24  # vectors of sums that are in the making at once; more would not stay in registers

SPLIT_SUM = 32
"""Terms from which a sum of a single row is made of a vector of sums, where its outputs do not fill one."""


@dataclass(frozen=True)
class Stage:
    """One node of the network."""

    form: Mapping[str, Any]  # what the network says of it (`hbtvm.operators.base.Node.form`)
    kept: bool  # whether its values are stored
    room: int  # columns that are stored or may be read, `width` of which count
    inside: int = -1  # number of the product in whose loop over blocks of terms it is computed; -1 for none
    split: bool = False  # whether its sum is made of a vector of sums
    tile: int = 1  # outputs of a sum that are in the making at once, on a CPU with vectors of rows


@dataclass(frozen=True)
class Plan:
    """All stages, by the numbers of nodes."""

    stages: tuple[Stage, ...]
    # `lanes`, `vectors`, `output_tile`, `row_tile`, `block`: as the configuration says; `block` is 0 where no
    # product computes what it reads
    lanes: int
    vectors: int
    output_tile: int
    row_tile: int
    block: int
    by_rows: bool  # whether vectors run over rows (else over columns)
    expanded: bool  # whether squared distances are computed from products
    # Points of a block of which only the least approximate distance is kept (`schedules.network_nearest`)
    points: int
    nearest: Mapping[int, int]  # by the numbers of what is computed that way: the numbers of the distances
    # By the numbers of products of expanded distances and a constant that are computed as one sum: the
    # distances'
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
        found = in_register_blocks(nodes) if small else fusible(nodes, one_pass)
        for product, members in found.items():
            inside |= dict.fromkeys(members, product)
    readers = readers_of(nodes)
    stages: list[Stage] = []
    depths: list[int] = []
    for at, node in enumerate(nodes):
        kind, width = node["kind"], int(node["width"])
        room, split, tile = width, False, 1
        if kind in ("contract", "distance", "linear_sum"):
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
        kept = _kept(at, nodes, readers)
        depth = 1 + max((depths[one] for one in node["inputs"]), default=0)
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
    """Outputs of a tile, about as many as usual, of which as few as possible are padding."""
    if width <= usual:
        return width
    return min(range(usual, most + 1), key=lambda tile: (-(-width // tile) * tile, tile))


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


_TWO_STAGES = ("power", "cbrt", "normal_quantile")  # functions that read what they are of twice


def read_in_registers(plan: Plan) -> dict[int, int]:
    """Sums that need no array, since one stage alone reads each, once; by the sums' numbers, the stages'.

    Only with vectors of rows.
    """
    nodes = [stage.form for stage in plan.stages]
    readers = readers_of(nodes)
    found: dict[int, int] = {}
    for at, stage in enumerate(plan.stages if plan.by_rows else ()):
        if not _is_one_sum(stage.form) or any(one.inside == at for one in plan.stages):
            continue
        here = at
        while len(readers[here]) == 1 and (here == at or not plan.stages[here].kept):
            here = readers[here][0]
            same = plan.stages[here].room == stage.room and plan.stages[here].inside == stage.inside
            if nodes[here]["kind"] != "elementwise" or not same or nodes[here]["function"] in _TWO_STAGES:
                break
            if plan.stages[here].kept and here not in found.values():
                found[at] = here
    return found


def _is_one_sum(form: Mapping[str, Any]) -> bool:
    match form["kind"]:
        case "linear_sum":
            return "weight" in form["tables"] and "entries" not in form["tables"]
        case "distance":
            return bool(form["metric"] != "nan_euclidean")
    return bool(form["kind"] == "contract")


def _over(inside: Mapping[int, int]) -> set[int]:
    return set(inside.values())


def _multiple(one: int, other: int) -> int:
    # Both are powers of two, or the first divides the second.
    return max(one, other)


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
