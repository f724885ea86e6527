"""CUDA kernels for any number of rows, which store raw scores by rows.

Schedules' kernels read and store whole tiles of rows. A kernel with bounds takes the number of rows, reads
the last row in place of absent rows, and does not store their scores. Without partial sums, it divides a
row's sums, adds the base score, and stores raw scores by rows. So a single launch computes the scores of rows
in place on a device.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx
from tvm.s_tir import SBlock

from hbtvm.runtime.gpu.launch import BASE, BASE_SCORE, COUNT, DIVISOR

_FIRST = (
    # After these passes, TVM has found reductions over threads, and indices still separate rows from tiles.
    s_tir.transform.CanonicalizeLoop,
    s_tir.transform.LowerCrossThreadReduction,
)


def with_bounds(module: Any, parts: int = 1) -> Any:
    """Return a scheduled kernel with bounds.

    `module`: its function ``main`` takes rows, shape (tiles, R, F), tables, and scores, float64, shape
        (tiles, parts * G, V, R), R in one axis or two, or (tiles, R, V), where G is 1.
    `parts`: partial sums of each score.
    Returns a module whose ``main`` takes rows, tables, scores, base scores (float64, shape (G * V,)), and
    three numbers, by the names of `hbtvm.runtime.gpu.launch`: the number of rows, the first base score, and
    the divisor. Scores are raw scores by rows, float64, shape (rows, G * V); of several parts, sums as
    before.
    """
    module = tvm.ir.transform.Sequential([make() for make in _FIRST])(module)
    return tvm.IRModule({"main": _Bounded(module["main"], parts).function()})


class _Bounded:
    """The parameters of a kernel with bounds, and the rewrites of its loads and stores."""

    def __init__(self, function: Any, parts: int) -> None:
        self._function, self._parts = function, parts
        self._rows, self._scores = function.params[0], function.params[-1]
        _, self._tile, _ = self._rows.ty.shape
        self._by_row = len(self._scores.ty.shape) == 3
        self._width = int(self._scores.ty.shape[2])
        groups = 1 if self._by_row else int(self._scores.ty.shape[1]) // parts
        self._outputs = groups * self._width
        self._count = tirx.Var(COUNT, "int64")
        self._base_score, self._divisor = (tirx.Var(name, "float64") for name in (BASE_SCORE, DIVISOR))
        self._base = tirx.decl_buffer((self._outputs,), "float64", BASE)
        shape = (self._count, tirx.const(self._outputs, "int64"))
        self._raw = self._scores if parts > 1 else tirx.decl_buffer(shape, "float64", self._scores.name)

    def function(self) -> Any:
        body = tvm_ffi.structural_map(self._function.body, (ir.TensorLoad, self._load))
        if self._parts == 1:
            body = tvm_ffi.structural_map(body, (SBlock, self._block))
        scalars = (self._count, self._base_score, self._divisor)
        parameters = [*self._function.params[:-1], self._raw, self._base, *scalars]
        return tirx.PrimFunc(parameters, body, attrs=self._function.attrs)

    def _load(self, load: Any) -> Any:
        """Return a load of an existing row."""
        if not load.source.same_as(self._rows) or int(self._tile) == 1:
            return load
        i, r, column = load.indices
        tile = tirx.const(int(self._tile), "int64")
        # A limit per tile, so that a thread's row in the tile is compared with a uniform number.
        last = tirx.min(self._count - i * tile, tile) - 1
        return tirx.BufferLoad(load.source, [i, tirx.min(r, last.astype(r.ty.dtype)), column])

    def _block(self, block: Any) -> Any:
        """Return a block that stores raw scores in place of sums."""
        stores = any(region.source.same_as(self._scores) for region in block.writes)
        if not stores:
            return block
        if any(region.source.same_as(self._scores) for region in block.reads):
            raise ValueError(f"the block {block.name_hint} adds to scores where they are stored")
        body = tvm_ffi.structural_map(block.body, (tirx.BufferStore, self._store))
        writes = [region for region in block.writes if not region.source.same_as(self._scores)]
        return SBlock(
            block.iter_vars, block.reads, writes, block.name_hint, body, block.init, block.alloc_buffers,
            block.match_buffers, block.annotations,
        )  # fmt: skip

    def _store(self, store: Any) -> Any:
        if not store.buffer.same_as(self._scores):
            return store
        i, *rest = store.indices
        if self._by_row:
            r, output = rest
        else:
            group, column, *axes = rest
            r, output = axes[0], group * self._width + column
            for axis, extent in zip(axes[1:], self._scores.ty.shape[4:], strict=True):
                r = r * extent + axis
        row = i * tirx.const(int(self._tile), "int64") + r
        one = tirx.const(1, "float64")
        mean = tirx.if_then_else(self._divisor == one, store.value, store.value / self._divisor)
        # A single base score is a kernel argument, which needs no load.
        base = self._base_score if self._outputs == 1 else self._base[output]
        stored = tirx.BufferStore(self._raw, mean + base, [row, output])
        return tirx.IfThenElse(row < self._count, stored, None)
