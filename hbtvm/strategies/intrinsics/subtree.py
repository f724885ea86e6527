"""`tests_of`: all tests of a small subtree for one row, by shuffles of bytes.

A row's ranks are bytes or words (see `hbtvm.strategies.trees.ranks`) in `blocks` registers of 16 bytes. A
subtree of `LEVELS` levels has a record: for each register, the places of each node's column in it, byte by
byte, or `ABSENT`; then each node's rank. Shuffles fetch the columns of all nodes, and one comparison tests
them. `hbtvm.compiler.lowering.ranks` lowers the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

TESTS_OF = register("hbtvm.tests_of", "the tests of a subtree for a row")

LEVELS = 3
NODES = 8  # places of a record: 7 nodes in the order of levels, and one that is never above
ABSENT = 128  # in place of a byte's place: the shuffle gives 0
REGISTER = 16  # bytes of a shuffle


def blocks_of(columns: int, dtype: str) -> int:
    """Return the registers that hold the ranks of a row."""
    return -(-columns * np.dtype(dtype).itemsize // REGISTER)


def record_size(columns: int, dtype: str) -> int:
    """Return the ranks in whose place a record is; instructions read whole registers, also at its end."""
    ends = REGISTER // (NODES * np.dtype(dtype).itemsize) - 1
    return NODES * (blocks_of(columns, dtype) + 1 + ends)


def records_of(column: np.ndarray, rank: np.ndarray, columns: int) -> np.ndarray:
    """Return the records of subtrees.

    `column`, `rank`: of each subtree's nodes, in the order of levels: shape (..., `NODES` - 1).
    `columns`: number of columns.
    Returns the ranks' dtype, int8 or int16, shape (..., `record_size`).
    """
    dtype = rank.dtype
    blocks, size = blocks_of(columns, dtype.name), dtype.itemsize
    first = column[..., None] * size + np.arange(size)  # each node's bytes among the row's
    place = np.full(
        (*column.shape[:-1], record_size(columns, dtype.name) // NODES, NODES, size), ABSENT, np.uint8
    )
    for block in range(blocks):
        here = first // REGISTER == block
        place[..., block, : NODES - 1, :] = np.where(here, first % REGISTER, ABSENT)
    record = place.reshape(*column.shape[:-1], -1).view(dtype)
    limits = record[..., NODES * blocks : NODES * (blocks + 1)]
    limits[...] = np.iinfo(dtype).max
    limits[..., : NODES - 1] = rank
    return record


def tests_of(record: Any, index: Any, row: Any, columns: int) -> Any:
    """Return the tests of record `index`: int32, below 256, in which bit n is set if node n's test fails.

    `record`: the first record's entry 0, as a load from a table; records lie side by side.
    `index`: int32.
    `row`: the row's rank of column 0, as a load.
    """
    return tirx.call_intrin("int32", ir.Op.get(TESTS_OF), record, index, row, tirx.const(columns, "int32"))
