"""CUDA schedules of networks for few rows: a block's threads share the columns of its rows.

The stages lie in shared memory, with barriers between them::

    block for each tile of rows (blockIdx.x):
        columns[:, :] = ...                                  # by all threads (knob ``columns``)
        for each stage in order:
            thread for each (y, x) of column_threads * row_threads:
                for column y, y + column_threads, ...: for row of rows_each: stage = ...   (sums: registers)
        scores = the last stage
"""

from __future__ import annotations

import math
from typing import Any

from hbtvm.schedules.cpu.steps import state_tile
from hbtvm.schedules.cuda.steps import scope
from hbtvm.schedules.network.plan import stage_of
from hbtvm.schedules.space import Config

FEW_ROWS = 4096  # most rows for which several threads per row are in the space

VALUES_AT_ONCE = 4
"""Results that a reduction step computes as cheaply as one; with more results, fewer steps are unrolled."""


def share_columns(sch: Any, config: Config, shared: int) -> None:
    """Schedule the expressions of a network in place.

    `shared`: bytes of shared memory that a block takes.
    """
    _Scheduler(sch, config, scope(shared)).run()


class _Scheduler:
    def __init__(self, sch: Any, config: Config, memory: str) -> None:
        self.sch, self.memory, self.unroll = sch, memory, int(config["unroll"])
        self.rows, self.columns = int(config["row_threads"]), int(config["column_threads"])

    def run(self) -> None:
        sch = self.sch
        names = [str(sch.get(child).name_hint) for child in sch.get_child_blocks(sch.get_sblock("root"))]
        scores = sch.get_sblock("scores")
        tile, group, output, row = sch.get_loops(scores)
        self._state(scores, 3)
        sch.reorder(group, tile, output, row)
        sch.bind(tile, "blockIdx.x")
        threads = {-1: self._threads(output, row)}
        late = []
        for name in reversed(names):
            if name == "scores":
                continue
            block, at = sch.get_sblock(name), stage_of(name)
            self._state(block)
            several = len(sch.get(block).writes) > 1
            # Every reader recomputes a reduction with several results, which stays in registers.
            sch.compute_at(block, threads[at] if several else tile, True)
            reduces = any(axis.iter_type == 2 for axis in sch.get(block).iter_vars)
            if name == "columns":
                column, row = sch.get_loops(block)[-2:]
                sch.reorder(row, column)
                _, y, x = sch.split(sch.fuse(row, column), [None, self.columns, self.rows])
                self._bind(y, x)
            elif several:
                late.append((block, self._steps(sch.get_loops(block)[-1], len(sch.get(block).writes))))
            elif reduces:
                w, row, k = sch.get_loops(block)[-3:]
                threads[at] = self._threads(w, row)
                step, inner = sch.split(k, [None, math.gcd(self.unroll, int(sch.get(k).extent))])
                each = sch.get_loops(block)[-3]
                sch.reorder(step, inner, each)
                for loop in (inner, each):
                    sch.unroll(loop)
                copy = sch.cache_write(block, 0, "local")
                sch.reverse_compute_at(copy, threads[at], True)
                sch.set_scope(copy, 0, self.memory)
                late.append((block, step))
                continue
            else:
                threads[at] = self._threads(*sch.get_loops(block)[-2:])
            for n in range(len(sch.get(block).writes)):
                sch.set_scope(block, n, "local" if several else self.memory)
        for block, loop in late:
            sch.decompose_reduction(block, loop)

    def _steps(self, k: Any, values: int) -> Any:
        most = self.unroll if values <= VALUES_AT_ONCE * 4 else 1
        step, inner = self.sch.split(k, [None, math.gcd(most, int(self.sch.get(k).extent))])
        self.sch.unroll(inner)
        return step

    def _threads(self, column: Any, row: Any) -> Any:
        """Distribute a stage's columns and rows over all threads; return the innermost thread loop."""
        _, y = self.sch.split(column, [None, self.columns])
        x, each = self.sch.split(row, [self.rows, None])
        self.sch.unroll(each)
        self._bind(y, x)
        return x

    def _bind(self, y: Any, x: Any) -> None:
        self.sch.bind(y, "threadIdx.y")
        if self.rows > 1:
            self.sch.bind(x, "threadIdx.x")

    def _state(self, block: Any, row_axis: int = 2) -> None:
        """Declare that an sblock reads any column of earlier stages; see `hbtvm.schedules.cpu.network`."""
        for region in self.sch.get(block).reads:
            name = region.source.name
            if len(region.source.shape) == 3 and name != "rows":
                state_tile(self.sch, block, name, row_axis)
