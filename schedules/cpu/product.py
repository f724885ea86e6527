"""CPU schedules of products of rows and weights (`hbtvm.strategies.network.product`).

Vectors run over outputs. The sums of `block` rows stay in registers, and share each load of weights::

    for row tile:
        for `block` rows: for `vectors` vectors of outputs:
            for term: for vector: for row: sums[vector, row] += rows[row, term] * weight[term, vector]
            scores = sums + bias

`sums` is the type of the sums, by default float64. Sums in float32 are cut into runs of up to `terms` terms,
whose sums are added.
"""

from __future__ import annotations

from typing import Any, cast

from hbtvm.schedules.cpu.sharing import row_thread_knobs, threads_are_valid
from hbtvm.schedules.cpu.steps import is_arm, row_tiles, vector_lanes
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import NetworkWorkload, Target, Workload

PRODUCT = "hbtvm.product"  # annotation of the loop over tiles

_SUMS = 32  # most vectors of sums at once: more would not stay in registers
_MANY_ROWS = 512  # rows of a batch that fills large tiles
TERMS = 10  # a good number of terms: few roundings of a sum, and few additions of sums


def in_float32(config: Config) -> bool:
    """Whether a configuration's sums are in float32."""
    return config.get("sums") == "float32"


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a product's workload (`NetworkWorkload`) on a CPU target."""
    network = cast(NetworkWorkload, workload)
    lanes = vector_lanes(target, "float64")

    def valid(config: Config) -> bool:
        block, vectors = int(config["block"]), int(config["vectors"])
        if not threads_are_valid(config) or int(config["row_tile"]) % block or block * vectors > _SUMS:
            return False
        return in_float32(config) or config.get("terms", TERMS) == TERMS

    sums: tuple[Knob, ...] = ()
    if network.get("narrow_sums"):
        sums = Knob("sums", ("float64", "float32")), Knob("terms", (4, 8, 10, 16))
    return Space(
        (
            Knob("row_tile", row_tiles(network["rows"], lanes)),
            Knob("lanes", lanes),
            Knob("block", (1, 2, 4, 8, 16)),
            Knob("vectors", (1, 2, 3, 4)),
            *sums,
            *row_thread_knobs(network),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    network = cast(NetworkWorkload, workload)
    lanes = vector_lanes(target, "float64")
    # A check of sums in float32 serves a whole tile; else, tiles only pad.
    tile = 128 if network.get("narrow_sums") and network["rows"] >= _MANY_ROWS else 16
    tile = min(tile, max(row_tiles(network["rows"], lanes)))
    # AVX2 has half as many registers as AVX-512 and Arm.
    many = lanes[-1] > 4 or is_arm(target)
    block = min(8 if many else 4, tile)
    config: Config = {"row_tile": tile, "lanes": lanes[-1], "block": block, "vectors": 3}
    if not network.get("narrow_sums"):
        return config
    return {**config, "sums": "float32", "terms": TERMS}


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place."""
    sch.annotate(sch.get_loops(sch.get_sblock("scores"))[0], PRODUCT, 1)
