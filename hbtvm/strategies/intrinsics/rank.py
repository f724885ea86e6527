"""`rank_of`: the number of sorted thresholds that a value is above, by comparisons with whole registers.

The thresholds are a tree whose nodes have `KEYS` thresholds each. One comparison tests them all, and their
number below the value gives the next node. The root has several such registers, so that few levels hold
``2**bits - 1`` thresholds. `hbtvm.compiler.lowering.ranks` lowers the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

RANK_OF = register("hbtvm.rank_of", "the number of thresholds below a value")

KEYS = 8  # thresholds that a node's comparison has, and 1 fewer than its children
_MOST_REGISTERS = 4  # of the root


def levels_of(bits: int) -> tuple[int, int]:
    """Return the root's registers, and the levels below it, of a tree of at least ``2**bits`` ranks."""
    below = 0
    while (1 + KEYS * _MOST_REGISTERS) * (KEYS + 1) ** below < 2**bits:
        below += 1
    ends = (KEYS + 1) ** below
    return -(-(-(-(2**bits) // ends) - 1) // KEYS), below


def starts_of(bits: int) -> list[int]:
    """Return the first entry of each level's nodes, which lie side by side, and the number of all entries."""
    registers, below = levels_of(bits)
    nodes = [registers, *((1 + KEYS * registers) * (KEYS + 1) ** level for level in range(below))]
    return [KEYS * int(number) for number in np.cumsum([0, *nodes])]


def register_order(thresholds: np.ndarray, bits: int) -> np.ndarray:
    """Return each column's thresholds as the tree's nodes, level by level.

    `thresholds`: of each column, sorted and padded with infinity: shape (columns, at most 2**bits).
    Returns their dtype, shape (columns, ``starts_of(bits)[-1]``).
    """
    registers, below = levels_of(bits)
    starts = starts_of(bits)
    table = np.full((len(thresholds), starts[-1]), np.inf, thresholds.dtype)
    for level, start in enumerate(starts[:-1]):
        step = (KEYS + 1) ** (below - level)  # thresholds between two of this level, plus 1
        keys = KEYS * registers if level == 0 else KEYS
        node = np.arange((starts[level + 1] - start) // keys)[:, None] * (keys + 1) * step
        at = (node + (np.arange(keys) + 1) * step - 1).ravel()
        known = at < thresholds.shape[1]
        table[:, start : start + len(at)][:, known] = thresholds[:, at[known]]
    return table


def rank_of(table: Any, value: Any, bits: int) -> Any:
    """Return the number of thresholds for which ``value <= threshold`` is false: int32, below ``2**bits``.

    `table`: entry 0 of a column's nodes, as a load from a table. No more than ``2**bits - 1`` are finite.
    """
    return tirx.call_intrin("int32", ir.Op.get(RANK_OF), table, value, tirx.const(bits, "int32"))
