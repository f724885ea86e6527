"""CUDA schedules of recursive models: how blocks of threads share the nodes of a level.

A block computes a panel of outputs, one a thread, for a tile of nodes; of products of states and softmax, a
panel of one node (`hbtvm.strategies.recursive.cuda.wholes`). Knobs::

    tile      nodes of a block, whose sums each thread keeps in registers
    threads   of a block, outputs of a panel
    unroll    terms of a sum written out
    leaf, first, refactor  as on CPUs, see `hbtvm.schedules.cpu.recursive`
    levels    "launches": a kernel is started for each step of each level; "persistent": one kernel goes
              through all levels, and its blocks wait for each other between steps
    kept      of a persistent kernel: outputs that a block owns, whose constants it keeps in shared memory
              (Cortex, MLSys'21, section 5); 0: constants stay in global memory, and threads own outputs
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target

TILES = (1, 2, 4, 8, 16)
THREADS = (64, 128, 256)

_MOST_SUMS = 96  # sums of a thread that stay in registers beside addresses and operands

KEPT = (8, 16, 32)

_OPERANDS = 1 << 15  # bytes of shared memory that operands take
_FILLED = 132  # blocks that occupy a large GPU, one a multiprocessor


def space(workload: Mapping[str, Any], target: Target) -> Space:
    """Knobs for a recursive model's workload on a CUDA target."""
    most = int(workload["rows"]) * int(workload["nodes"])
    own = ("compute", "inner") if workload.get("same") else ("compute",)

    def valid(config: Config) -> bool:
        if config.get("kept") and not (config["levels"] == "persistent" and _fits(workload, config, target)):
            return False
        if config.get("first") and (config["leaf"] != "table" or config.get("refactor")):
            return False
        return int(config["tile"]) == 1 or int(config["tile"]) * _products(workload) <= _MOST_SUMS

    return Space(
        (
            Knob("tile", tuple(n for n in TILES if n <= max(1, most))),
            Knob("threads", THREADS),
            Knob("unroll", (1, 2, 4)),
            Knob("leaf", ("table", *own) if workload["table"] else own),
            *((Knob("first", (0, 1)),) if workload["first"] else ()),
            *((Knob("refactor", (0, 1)),) if workload.get("moved") else ()),
            Knob("levels", ("launches", "persistent")),
            *((Knob("kept", (0, *KEPT)),) if workload["products"] else ()),
        ),
        valid,
    )


def _fits(workload: Mapping[str, Any], config: Config, target: Target) -> bool:
    """Whether a block's constants and sums fit its shared memory, and there is a block for all outputs."""
    columns, tile = int(config["kept"]), int(config["tile"])
    products = [*workload["products"]]
    if config["leaf"] == "compute":
        # Of leaves of a refactored cell, too, those that their parents read.
        products += [*workload["leaf_products"], *(workload["products"] if config.get("refactor") else ())]
    step = int(config["unroll"]) * int(config["threads"]) // columns
    constants = sum(int(n) * -(-int(terms) // step) * step * columns for _, terms, n in products)
    sums = sum(int(n) for *_, n in products) * tile * int(config["threads"])
    panels = max((-(-int(rows) // columns) for rows, *_ in products), default=0)
    most = int(target["max_shared_memory_per_block"]) - _OPERANDS
    return 4 * (constants + sums) <= most and panels <= int(target.get("cores", _FILLED))


def _products(workload: Mapping[str, Any]) -> int:
    """Products of a node, of which at most so many are summed at a time."""
    return sum(int(count) for *_, count in (*workload["products"], *workload["leaf_products"]))


def default(workload: Mapping[str, Any], target: Target) -> Config:
    """A good configuration where nothing was measured."""
    made = space(workload, target)
    together = int(workload["rows"]) * int(workload["nodes"]) / max(1, int(workload["levels"]))
    # Of matrices of states, tiles are blocks' own.
    rows = [int(rows) for rows, *_ in workload["products"]] if workload.get("matrices") else []
    panels = max(1, max(rows, default=int(workload["width"])) // 64)
    # As many nodes share a block's constants as leave a block for each multiprocessor.
    tile = max((n for n in TILES if n == 1 or together / n * panels >= _FILLED), default=1)
    config: Config = {
        "tile": tile,
        "threads": 64,
        "unroll": 4,
        "leaf": "table" if workload["table"] else "compute",
        "levels": "launches",
    }
    if workload["products"]:
        config["kept"] = 0
    if workload["first"]:
        config["first"] = 1
    if workload.get("moved"):
        config["refactor"] = 0
    while not made.contains(config):
        config["tile"] = int(config["tile"]) // 2
    return config
