"""Instructions of tensor cores: matrices of 8 x 8 from shared memory, and products of tiles.

Lane l has of a matrix's row l // 4 the words at l % 4, as PTX's documentation of ``mma`` lays out operands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.gpu.bounds import memory
from benchmarks.gpu.bounds.accesses import address
from benchmarks.gpu.bounds.lanes import RZ, Lanes, Unknown, plain
from benchmarks.gpu.bounds.sass import Instruction
from benchmarks.gpu.bounds.warps import Run

WARP = 32


def load_matrices(lanes: Lanes, one: Instruction) -> Run:
    """LDSM: one, two or four matrices of 8 rows of 16 bytes, the row addresses of each from 8 lanes."""
    kinds = one.modifiers
    if kinds[:2] != ("16", "M88"):
        raise Unknown(one.opcode)
    number = int(kinds[2]) if len(kinds) > 2 else 1
    where = address(lanes, one.operands[1])
    bank, register = lanes.bank(plain(one.operands[0]))

    def run(m: Any, active: np.ndarray) -> None:
        at = where(m)
        giving = active & (np.arange(m.count) % WARP < 8 * number)
        m.shared_access(at, giving, 16, True)
        start = (at + m.shared_start).reshape(-1, WARP)
        lane = np.arange(WARP)
        for n in range(number):
            offset = start[:, 8 * n + lane // 4] + lane % 4 * 4
            found = memory.gather(m.shared, offset.reshape(-1)[active], 4)[0]
            bank[register + n, active] = found

    return run


def multiply(lanes: Lanes, one: Instruction) -> Run:
    """IMMA and HMMA: a product of a 16 x 16 tile and a 16 x 8 one, added to a 16 x 8 one."""
    if one.opcode not in ("IMMA.16816.S8.S8", "HMMA.16816.F32"):
        raise Unknown(one.opcode)
    whole = one.name == "IMMA"
    kind: Any = np.int8 if whole else np.float16
    total: Any = np.int32 if whole else np.float32
    (bank, out), (_, a), (_, b), (_, c) = (lanes.bank(plain(operand)) for operand in one.operands[:4])
    # Registers of the left tile: rows 0 to 7 and 8 to 15, then in half precision the next 8 columns.
    wide = 16 // (4 // np.dtype(kind).itemsize) // 4

    def words(number: int, count: int) -> np.ndarray:
        """Return registers as shape (count, warps, 8, 4): of row (or column) and place."""
        if number == RZ:
            return np.zeros((count, bank.shape[1] // WARP, 8, 4), np.uint32)
        return bank[number : number + count].reshape(count, -1, 8, 4)

    def entries(number: int, count: int) -> np.ndarray:
        """Return registers' numbers as shape (count, warps, 8, entries)."""
        found = np.ascontiguousarray(words(number, count))
        return np.asarray(found.view(kind).reshape(*found.shape[:3], -1))

    def run(m: Any, active: np.ndarray) -> None:
        left, right = entries(a, 2 * wide), entries(b, wide)
        warps = left.shape[1]
        # (half of the columns, half of the rows, warp, row, column) to (warp, 16 rows, 16 columns)
        left = left.reshape(wide, 2, warps, 8, -1).transpose(2, 1, 3, 0, 4).reshape(warps, 16, 16)
        right = right.transpose(1, 2, 0, 3).reshape(warps, 8, 16)
        product = left.astype(total) @ right.astype(total).transpose(0, 2, 1)
        before = np.ascontiguousarray(words(c, 4)).view(total)
        # Registers 0 and 1 are neighbours in a row of the upper half, 2 and 3 in the lower.
        made = product.reshape(warps, 2, 8, 4, 2).transpose(1, 4, 0, 2, 3).reshape(4, warps, 8, 4) + before
        bits = np.ascontiguousarray(made.astype(total)).view(np.uint32).reshape(4, -1)
        for n in range(4):
            bank[out + n, active] = bits[n, active]

    return run
