"""Masks of bytes: the nodes to which the tests of a tree's first levels lead, for vectors of rows.

A column of ranks takes as many columns of bytes as its thresholds need, each of which covers 255 of them and
saturates, so that a register has a row in every byte for any number of thresholds::

    byte[b, r]     = clip(rank[column of b, r] - first rank of b, 0, 255) - 128
    node[t, r]     = 1 + the node, of 2**k, that the tests of the first k levels lead to: a comparison of
                     bytes for each node
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cpu.oblivious import rank_dtype
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.scores import StageBuilder, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import perfect_levels, split_table
from hbtvm.strategies.trees.ranks import node_ranks

_COVERED = 255  # thresholds of a column of bytes
_LOWEST = -128  # of a byte
_BYTE_COLUMNS = "byte_columns"  # the number of columns of bytes


def byte_tables(forest: Forest) -> dict[str, np.ndarray]:
    """Return the tables of columns of bytes: none where ranks are bytes."""
    if rank_dtype(forest.rank_bits) == "int8":
        return {}
    parts = _parts(forest)
    source = np.repeat(np.arange(len(parts)), parts)
    part = np.concatenate([np.arange(count) for count in parts])
    starts = _COVERED * part - _LOWEST + int(np.iinfo(np.int16).min)
    return {"source": source.astype(np.int32), "start": starts.astype(np.int16)}


def mask_tables(forest: Forest, top: int) -> dict[str, np.ndarray]:
    """Return the tables of the first `top` levels, shape (trees, 2**top)."""
    levels, ranks = perfect_levels(forest), node_ranks(forest)
    parts = _parts(forest)
    column = (np.cumsum(parts) - parts)[forest.column] + ranks // _COVERED
    # The comparison is with the next byte: the row's is then the operand that instructions read from memory.
    limit = ranks % _COVERED + 1 + _LOWEST
    tables = {"column": column.astype(np.int32), "limit": limit.astype(np.int8)}
    size = 2**forest.depth
    return {name: split_table(forest, levels, t, size)[:, : 2**top] for name, t in tables.items()}


def _parts(forest: Forest) -> np.ndarray:
    """Return the columns of bytes that each column takes."""
    return np.array([max(1, -(-len(values) // _COVERED)) for values in forest.thresholds])


def byte_arguments(workload: Workload) -> tuple[Argument, ...]:
    """Return the arguments of `byte_tables`."""
    if rank_dtype(workload["rank_bits"]) == "int8":
        return ()
    columns = workload["numeric"] + workload["categorical"]
    return (
        table("source", "int32", (_BYTE_COLUMNS,), "index", below=columns),
        table("start", "int16", (_BYTE_COLUMNS,)),
    )


def mask_arguments(workload: Workload, config: Config, top: int) -> tuple[Argument, ...]:
    """Return the arguments of `mask_tables`."""
    columns = workload["numeric"] + workload["categorical"]
    small = rank_dtype(workload["rank_bits"]) == "int8"
    check: dict[str, Any] = {"kind": "index", "below": columns} if small else {"kind": "byte_column"}
    return (
        tree_table(workload, config, "column", "int32", (2**top,), **check),
        tree_table(workload, config, "limit", "int8", (2**top,)),
    )


def byte_stage(builder: StageBuilder, ranks: Any, tables: list[Any]) -> Any:
    """Return the columns of bytes, shape (tiles, B, row_tile); `tables` is empty where ranks are bytes."""
    if not tables:
        return ranks
    source, start = tables
    least, most = (tirx.const(number, "int16") for number in (_LOWEST, _LOWEST + _COVERED))

    def part(i: Any, b: Any, r: Any) -> Any:
        above = tirx.call_llvm_pure_intrin("int16", "llvm.ssub.sat", ranks[i, source[b], r], start[b])
        return tirx.max(tirx.min(above, most), least).astype("int8")

    return te.compute((builder.tiles, source.shape[0], builder.row_tile), part, name="parts")


def mask_stage(builder: StageBuilder, parts: Any, column: Any, limit: Any, top: int) -> Any:
    """Return the nodes of level `top`, counted from 1 on: uint8, by tree and row."""

    def first(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        def below(level: int, node: int) -> Any:
            if level == top:
                return tirx.const(node + 1, "uint8")
            at = builder.at(o, g, t, 2**level + node)
            left, right = (below(level + 1, 2 * node + side) for side in (0, 1))
            return tirx.Select(limit[at] > parts[i, column[at], r], left, right)

        return below(0, 0)

    return builder.per_tree(first, "walk")
