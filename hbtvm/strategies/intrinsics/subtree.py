"""`tests_of`: all tests of a small subtree for one row, by shuffles of bytes.

A row's ranks are bytes (see `hbtvm.strategies.trees.ranks`) in `blocks` registers of 16. A subtree of
`LEVELS` levels has a record of bytes: for each register, the place of each node's column in it, or `ABSENT`;
then each node's rank. Shuffles fetch the columns of all nodes, and one comparison tests them.
`hbtvm.compiler.lowering.subtrees` lowers the call.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

TESTS_OF = register("hbtvm.tests_of", "the tests of a subtree for a row")

LEVELS = 3
NODES = 8  # places of a record: 7 nodes in the order of levels, and one that is never above
ABSENT = -128  # in place of a column's place: the shuffle gives 0
REGISTER = 16  # bytes of a shuffle


def blocks_of(columns: int) -> int:
    """Return the registers that hold the ranks of a row."""
    return -(-columns // REGISTER)


def record_bytes(columns: int) -> int:
    """Return the size of a record: instructions read whole registers, also at its end."""
    return NODES * (blocks_of(columns) + 2)


def tests_of(record: Any, index: Any, row: Any, columns: int) -> Any:
    """Return the tests of record `index`: int32, below 256, in which bit n is set if node n's test fails.

    `record`: the first record's byte 0, as a load from a table; records lie side by side.
    `index`: int32.
    `row`: the row's rank of column 0, as a load.
    """
    return tirx.call_intrin("int32", ir.Op.get(TESTS_OF), record, index, row, tirx.const(columns, "int32"))
