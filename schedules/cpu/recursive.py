"""CPU schedules of recursive models: the order of a level's nodes.

Knobs of the program of nodes with children::

    tile      nodes whose sums are in registers together (a kernel splits tiles that don't fit)
    tail      tile of a level's remainder; 0 for none
    vectors   of outputs side by side, a panel
    order     "nodes": all of a tile, then the next; "panels": a panel of constants for all tiles of a level
    unroll    unrolled terms of a sum
    refactor  children compute the products of their states
    fusion    0: each value is a separate step, and stored

``leaf`` says whether the states of nodes without children are computed (``"compute"``), looked up by a number
that determines them (``"table"``), or computed like others, with zeros as children (``"inner"``);
``leaf_tile`` is their tile. ``first`` says whether nodes whose children are leaves look up products of their
states. ``share`` is the work that threads share. ``depth``: if each node has one parent, the number of levels
that a thread processes, with a node's subtree, before it waits for other threads. Cortex (MLSys'21,
section 5) calls these specialisation, refactoring, fusion, unrolling and, by the order of loops, persistence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hbtvm.schedules.cpu.steps import vector_lanes
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target

TILES = (1, 2, 3, 4, 6, 8, 12, 16)
TAILS = (0, 1, 2, 4)
DEPTHS = (1, 2)

_CACHE = 1 << 20  # bytes of constants that stay in a core's second-level cache from tile to tile
_FEW = 16  # nodes of a level below which a tile may cover it

_MANY = 64
"""Nodes per thread above which tail tiles and differences of structures are negligible."""


def registers(target: Target) -> int:
    """Return the number of vectors of sums that fit registers beside operands."""
    return 28 if int(target["vector_bits"]) == 512 or target.get("arch") == "aarch64" else 12


def lanes(target: Target) -> int:
    """Return the numbers of a vector."""
    return vector_lanes(target, "float32")[-1]


def space(workload: Mapping[str, Any], target: Target) -> Space:
    """Return the knobs for a recursive model's workload on a CPU target."""
    most = int(workload["rows"]) * int(workload["nodes"])
    tiles = tuple(n for n in TILES if n <= max(1, most))
    shares = () if workload["threads"] == 1 else (Knob("share", _shares(workload)),)

    def valid(config: Config) -> bool:
        if int(config["tail"]) >= int(config["tile"]):
            return False
        if config.get("first") and (config["leaf"] != "table" or config.get("refactor")):
            return False
        # Keep knobs that serve comparisons a small part of the space.
        if not config.get("fusion", 1) and (config["order"], config["unroll"]) != ("panels", 1):
            return False
        if config["leaf"] == "inner" and config["leaf_tile"] not in (1, config["tile"]):
            return False
        if int(config.get("depth", 1)) > 1 and config["order"] != "nodes":
            return False
        # Threads can share panels only in that order.
        return config.get("share") != "panels" or config["order"] == "panels"

    return Space(
        (
            Knob("tile", tiles),
            Knob("tail", TAILS),
            Knob("vectors", (1, 2, 4)),
            Knob("order", ("nodes", "panels")),
            Knob("unroll", (1, 2, 4)),
            Knob("leaf", _leaves(workload)),
            *((Knob("first", (0, 1)),) if workload["first"] else ()),
            *((Knob("refactor", (0, 1)),) if workload.get("moved") else ()),
            Knob("fusion", (1, 0)),
            Knob("leaf_tile", (1, 4, 8)),
            *shares,
            Knob("depth", DEPTHS),
        ),
        valid,
    )


def _leaves(workload: Mapping[str, Any]) -> tuple[str, ...]:
    choices = ("compute", "inner") if workload.get("same") else ("compute",)
    return ("table", *choices) if workload["table"] else choices


def _shares(workload: Mapping[str, Any]) -> tuple[str, ...]:
    return ("none", "panels", "nodes", *(("structures",) if int(workload["rows"]) > 1 else ()))


def _constants(workload: Mapping[str, Any]) -> int:
    """Return the bytes of the products' constants."""
    return 4 * sum(int(m * k * n) for m, k, n in workload["products"])


def _share(workload: Mapping[str, Any], together: float) -> str:
    """Return a good choice of ``share``; `together`: nodes of a level per thread."""
    if int(workload["rows"]) < int(workload["threads"]):
        return "panels"
    # Structures need no barriers, but their levels have few nodes, and each core reads all constants. With
    # panels, a core keeps its part of the constants in its cache.
    return "panels" if _constants(workload) > _CACHE // 2 and together < _MANY else "structures"


def default(workload: Mapping[str, Any], target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    known = space(workload, target)
    together = int(workload["rows"]) * int(workload["nodes"]) / max(1, int(workload["levels"]))
    # Products of states are computed node by node, for padding nodes of the last tile as well.
    tile = 4 if together >= 2 and not workload.get("matrices") else 1
    # Constants that exceed the cache, or serve few nodes at a time: two vectors side by side.
    wide = _constants(workload) > _CACHE or together < _FEW
    config: Config = {
        "tile": tile,
        "tail": 2 if tile > 2 else 0,
        "vectors": 2 if wide else 1,
        "order": "panels" if wide else "nodes",
        "unroll": 1,
        "leaf": "table" if workload["table"] else "compute",
        "leaf_tile": 1 if workload.get("matrices") else 8,
        "fusion": 1,
        "depth": 1,
    }
    if workload["first"]:
        config["first"] = 1
    if workload.get("moved"):
        config["refactor"] = 0
    if workload["threads"] > 1:
        config["share"] = _share(workload, together / int(workload["threads"]))
        if config["share"] == "panels":
            config["order"] = "panels"
    while not known.contains(config):
        config["tail"] = 0
        config["tile"] = int(config["tile"]) // 2
    return config
