"""`end_of`: the walk through the last levels of a perfect tree over the ranks of one row.

A node is a word: its column in the lower `COLUMN_BITS`, and above them the least rank of rows that go to the
right. Node j of level l is entry ``2**l + j``. `hbtvm.compiler.lowering.ranks` lowers the call.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

END_OF = register("hbtvm.end_of", "the leaf of a perfect tree that a row reaches from a node")

COLUMN_BITS = 8  # a byte of its own takes one instruction to extract


def end_of(word: Any, node: Any, row: Any, level: int, depth: int) -> Any:
    """Return the leaf, int32, that a row reaches from a node of a level.

    `word`: the tree's entry 0, as a load from a table.
    `node`: int32, below ``2**level``.
    `row`: the row's rank of column 0, as a load; its type is unsigned.
    """
    levels = (tirx.const(number, "int32") for number in (level, depth))
    return tirx.call_intrin("int32", ir.Op.get(END_OF), word, node, row, *levels)
