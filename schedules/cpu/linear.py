"""CPU schedules of linear models, by the roles of axes.

Vectors of rows (knob ``axis`` = ``"rows"``)::

    for tile:
        (columns = the tile transposed, with ``read`` = ``"transposed"``)
        for block of `vectors` * `lanes` rows, for `output_tile` outputs:
            for k (by `unroll`): for output: for row: numbers[output, row] += term
            for c: the same of codes
            scores = numbers + codes

Vectors of terms (``read`` = ``"rows"``), for few outputs, read memory in order
(`hbtvm.compiler.lowering.dot_products`)::

    for tile:
        for `vectors` * `lanes` rows:
            for `lanes` terms at a time: for row: for output: numbers[output, row] += term

Vectors of outputs, a row at a time::

    for row: for block of `vectors` * `lanes` outputs:
        for k (by `unroll`): for output: numbers[output] += term
        ...
"""

from __future__ import annotations

from typing import Any, cast

from hbtvm.schedules.cpu.sharing import row_thread_knobs, threads_are_valid
from hbtvm.schedules.cpu.steps import (
    decompose,
    is_arm,
    mark,
    row_tiles,
    state_tile,
    transpose_stage,
    vector_lanes,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import LinearWorkload, Target, Workload

DOT_PRODUCTS = "hbtvm.dot_products"  # annotation of the loop over the outputs of a tile

MAX_UNROLL = 32  # most steps of a sum in straight-line code
_MAX_SUMS = 32  # most vectors of sums at once: more would not stay in registers
_TILE = 16  # rows of a good tile: rows and their transpose fit the first-level cache
_FEW_OUTPUTS = 4  # most outputs for which vectors may run over terms: each takes a register for every row
_TRANSPOSED = 64  # columns up to which transposing such tiles pays


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a linear model's workload (`LinearWorkload`) on a CPU target."""
    linear = cast(LinearWorkload, workload)
    # Sums are in float64 for all types of rows.
    lanes = vector_lanes(target, "float64")
    rows, outputs = linear["rows"], linear["outputs"]

    def valid(config: Config) -> bool:
        if not threads_are_valid(config):
            return False
        width, vectors, tile = (int(config[name]) for name in ("lanes", "vectors", "row_tile"))
        if width == 1 and (config["read"] != "direct" or config["lookup"] != "scalar"):
            return False
        if config["read"] == "rows" and not (
            config["axis"] == "rows"
            and config["output_tile"] == config["unroll"] == 1
            and width <= linear["numbers"]
            and width * vectors * outputs <= _MAX_SUMS
        ):
            return False
        if config["axis"] == "outputs":
            if width == 1 or tile != 1 or config["output_tile"] != 1:
                return False
            # Each vector has an output.
            return (
                config["read"] == "direct" and config["lookup"] == "scalar" and _fits(outputs, width, vectors)
            )
        return tile % (width * vectors) == 0 and vectors * int(config["output_tile"]) <= _MAX_SUMS

    # Vectors of rows need a row tile of their size (`row_tiles`).
    vectors_of_rows = 2 * rows > lanes[0]
    transposes = vectors_of_rows and linear["numbers"] + linear["codes"] > 0
    gathers = vectors_of_rows and linear["codes"] > 0 and int(target["vector_bits"]) >= 256
    return Space(
        (
            Knob("axis", ("rows", "outputs") if outputs > 1 else ("rows",)),
            Knob("row_tile", row_tiles(rows, lanes)),
            Knob("lanes", (1, *lanes)),
            Knob("vectors", (1, 2, 4, 8)),
            Knob("output_tile", divisors(outputs, 8)),
            Knob("unroll", divisors(linear["numbers"], MAX_UNROLL)),
            Knob("code_unroll", divisors(linear["codes"], MAX_UNROLL)),
            Knob(
                "read",
                (
                    "direct",
                    *(("transposed",) if transposes else ()),
                    *(("rows",) if transposes and _reads_rows(linear) else ()),
                ),
            ),
            Knob("lookup", ("scalar", "gather") if gathers else ("scalar",)),
            *row_thread_knobs(linear),
        ),
        valid,
    )


def _reads_rows(linear: LinearWorkload) -> bool:
    """Whether vectors may run over the terms of a row."""
    return linear["in_order"] and not linear["codes"] and linear["outputs"] <= _FEW_OUTPUTS


def divisors(count: int, most: int) -> tuple[int, ...]:
    """Return the divisors of a count up to `most`; (1,) for 0."""
    return tuple(n for n in range(1, min(count, most) + 1) if count % n == 0) or (1,)


def _fits(outputs: int, lanes: int, vectors: int) -> bool:
    """Whether each of `vectors` vectors has an output, not padding alone."""
    return lanes * (vectors - 1) < outputs


def padded_outputs(workload: Workload, config: Config) -> int:
    """Return the tables' number of outputs, padded to whole blocks of vectors if these run over outputs."""
    outputs = cast(LinearWorkload, workload)["outputs"]
    if config["axis"] != "outputs":
        return outputs
    block = int(config["lanes"]) * int(config["vectors"])
    return -(-outputs // block) * block


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    linear = cast(LinearWorkload, workload)
    lanes, outputs, rows = vector_lanes(target, "float64"), linear["outputs"], linear["rows"]
    common: Config = {
        "unroll": divisors(linear["numbers"], 8)[-1],
        "code_unroll": divisors(linear["codes"], 8)[-1],
        "read": "direct",
        "lookup": "scalar",
        "output_tile": 1,
    }
    if outputs >= 2 * lanes[0] or (outputs > 1 and rows < lanes[0]):
        width = lanes[-1] if outputs >= lanes[-1] else lanes[0]
        most = (8, 4, 2, 1) if is_arm(target) else (4, 2, 1)
        vectors = next(n for n in most if _fits(outputs, width, n))
        return {**common, "axis": "outputs", "row_tile": 1, "lanes": width, "vectors": vectors}
    common["axis"] = "rows"
    tile = max(n for n in row_tiles(rows, lanes) if n <= _TILE)
    if tile < lanes[0]:
        return {**common, "row_tile": tile, "lanes": 1, "vectors": 1}
    if _reads_rows(linear) and int(target["vector_bits"]) >= 256 and linear["numbers"] >= lanes[0]:
        # Narrow vectors: fewer terms are left, and a row's lanes take fewer shuffles to add.
        return {**common, "row_tile": tile, "lanes": lanes[0], "vectors": 1, "read": "rows", "unroll": 1}
    # Narrow vectors: rows are read value by value, so wider vectors save little.
    if linear["numbers"] and linear["features"] <= _TRANSPOSED:
        common["read"] = "transposed"
    vectors = max(n for n in (1, 2, 4) if n * lanes[0] <= tile) if outputs == 1 else 1
    if is_arm(target):
        # A vector sums two rows: several vectors hide the latency of additions.
        vectors = max(n for n in (1, 2, 4, 8) if n * lanes[0] <= tile)
    return {**common, "row_tile": tile, "lanes": lanes[0], "vectors": vectors}


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``numbers``, ``codes``, ``scores``, perhaps ``columns``)."""
    linear = cast(LinearWorkload, workload)
    if config["read"] == "rows":
        sch.annotate(sch.get_loops(sch.get_sblock("scores"))[2], DOT_PRODUCTS, 1)
        return
    lanes, vectors = int(config["lanes"]), int(config["vectors"])
    by_rows = config["axis"] == "rows"
    scores = sch.get_sblock("scores")
    tile, _, outputs, row = sch.get_loops(scores)
    inside = tile
    if by_rows:
        block, register, lane = sch.split(row, [None, vectors, lanes])
        around, output = sch.split(outputs, [None, int(config["output_tile"])])
        sch.reorder(block, around, output, register, lane)
        sch.unroll(output)
        mark(sch, register, lane)
        inside = around

    sums = [("numbers", "unroll", linear["numbers"]), ("codes", "code_unroll", linear["codes"])]
    placed = []
    for name, unroll, count in sums:
        if not count:
            continue
        stage = sch.get_sblock(name)
        sch.compute_at(stage, inside, True)
        output, row, step = sch.get_loops(stage)[-3:]
        step, inner = sch.split(step, [None, int(config[unroll])])
        _, register, lane = sch.split(row if by_rows else output, [None, vectors, lanes])
        if by_rows:
            sch.reorder(step, inner, output, register, lane)
            sch.unroll(output)
        else:
            sch.reorder(step, inner, register, lane)
        sch.unroll(inner)
        mark(sch, register, lane)
        placed.append((stage, step))
    if config["read"] == "transposed":
        for stage, _ in placed:
            state_tile(sch, stage, "columns", 2)
        columns = sch.get_sblock("columns")
        sch.compute_at(columns, tile, True)
        transpose_stage(sch, columns, lanes)
    for stage, step in placed:
        decompose(sch, stage, step, lanes)
