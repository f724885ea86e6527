"""CUDA schedules of recursive models: how blocks of threads share the nodes of a level.

A block computes a panel of outputs, one per thread, for a tile of nodes; for products of states and softmax,
a panel of one node (`hbtvm.strategies.recursive.cuda.wholes`). Knobs::

    tile      nodes of a block, whose sums each thread keeps in registers
    threads   threads of a block, and outputs of a panel
    unroll    unrolled terms of a sum
    leaf, first, refactor  as on CPUs, see `hbtvm.schedules.cpu.recursive`
    levels    "launches": a kernel for each step of each level; "persistent": one kernel for all levels, whose
              blocks wait for each other between steps
    kept      in a persistent kernel: outputs that a block owns, with constants in shared memory (Cortex,
              MLSys'21, section 5); 0: constants stay in global memory, and threads own outputs
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
_FILLED = 132  # blocks that occupy a large GPU, one for each multiprocessor


def space(workload: Mapping[str, Any], target: Target) -> Space:
    """Return the knobs for a recursive model's workload on a CUDA target."""
    most = int(workload["rows"]) * int(workload["nodes"])
    leaves = ("compute", "inner") if workload.get("same") else ("compute",)

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
            Knob("leaf", ("table", *leaves) if workload["table"] else leaves),
            *((Knob("first", (0, 1)),) if workload["first"] else ()),
            *((Knob("refactor", (0, 1)),) if workload.get("moved") else ()),
            Knob("levels", ("launches", "persistent")),
            *((Knob("kept", (0, *KEPT)),) if workload["products"] else ()),
        ),
        valid,
    )


def _fits(workload: Mapping[str, Any], config: Config, target: Target) -> bool:
    """Whether a block's constants and sums fit its shared memory, and the blocks cover all outputs."""
    columns, tile = int(config["kept"]), int(config["tile"])
    products = [*workload["products"]]
    if config["leaf"] == "compute":
        # Leaves of a refactored cell also compute the products that their parents read.
        products += [*workload["leaf_products"], *(workload["products"] if config.get("refactor") else ())]
    step = int(config["unroll"]) * int(config["threads"]) // columns
    constants = sum(int(n) * -(-int(terms) // step) * step * columns for _, terms, n in products)
    sums = sum(int(n) for *_, n in products) * tile * int(config["threads"])
    panels = max((-(-int(rows) // columns) for rows, *_ in products), default=0)
    most = int(target["max_shared_memory_per_block"]) - _OPERANDS
    return 4 * (constants + sums) <= most and panels <= int(target.get("cores", _FILLED))


def _products(workload: Mapping[str, Any]) -> int:
    """Return the number of a node's products, an upper bound of concurrent sums."""
    return sum(int(count) for *_, count in (*workload["products"], *workload["leaf_products"]))


def default(workload: Mapping[str, Any], target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    known = space(workload, target)
    together = int(workload["rows"]) * int(workload["nodes"]) / max(1, int(workload["levels"]))
    # Each block has a tile of a matrix of states.
    rows = [int(rows) for rows, *_ in workload["products"]] if workload.get("matrices") else []
    panels = max(1, max(rows, default=int(workload["width"])) // 64)
    # The largest tile that leaves a block for each multiprocessor.
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
    while not known.contains(config):
        config["tile"] = int(config["tile"]) // 2
    return config
