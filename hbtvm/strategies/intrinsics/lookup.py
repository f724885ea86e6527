"""Lookups: entries of a table at data-dependent indices.

LLVM scalarizes a plain load with a vector of indices. A lookup states what a load cannot: the start and
length of the run of entries, and the instructions that fetch a vector. TVM's passes keep the call, and
`hbtvm.compiler.lowering.lookups` lowers it last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

OPERATOR = register("hbtvm.lookup", "entry of a table at an index that comes from data")

METHODS = ("scalar", "gather", "permute")
"""How to fetch a vector of entries: lane by lane; by a gather instruction; or by permuting the whole run in
registers. CPUs without such instructions fetch lane by lane."""

REGISTER = 64  # bytes of the widest register; a run for ``"permute"`` must be padded to a multiple of this


def lookup(load: Any, index: Any, entries: int, method: str) -> Any:
    """Return entry `index` of the run that begins at `load`.

    `load`: the run's entry 0, as a load from a table: the same for all lanes of a vector, since TVM's passes
        would otherwise change the table's element type to a vector.
    `index`: int32, counted in elements of the flattened table.
    `entries`: number of entries; every index is below.
    `method`: one of `METHODS`.
    """
    return tirx.call_intrin(
        str(load.dtype),
        ir.Op.get(OPERATOR),
        load,
        index,
        tirx.const(entries, "int32"),
        tirx.const(METHODS.index(method), "int32"),
    )


def padded(entries: int, dtype: str, method: str) -> int:
    """Return the size of a run's table in entries, with padding."""
    step = REGISTER // np.dtype(dtype).itemsize
    return -(-entries // step) * step if method == "permute" else entries
