"""Parameters of kernels of recursive models on GPUs: arrays by row, and each level's rows."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from hbtvm.strategies.recursive.parameters import Parameters, Tables

_ORDER = ("state", "child", "number", "vector", "scratch", "table", "levels", "barrier")

SCALARS = ("arity", "level", "count", "blocks")
"""Parameters of 64 bits: places for children, the current level, the number of levels, and of blocks."""


class DeviceParameters(Parameters):
    """Parameters of a kernel: buffers, created on first use.

    The buffers hold the rows of all levels, a row per node; `levels` gives each level's rows.

    `level`, `count`, `blocks`: see `SCALARS`.
    """

    def __init__(self, width: int, children: int | None, tables: Tables) -> None:
        super().__init__(1, width, children, tables)
        self.level, self.count, self.blocks = (tirx.Var(name, "int64") for name in SCALARS[1:])

    @property
    def levels(self) -> Any:
        """The first row of each level, and the end, (count + 1,)."""
        return self._buffer("levels", 0, (tirx.Var("starts", "int64"),), "int32")

    @property
    def barrier(self) -> Any:
        """The number of arrivals at barriers, (1,)."""
        return self._buffer("barrier", 0, (1,), "int64")

    def first_row(self, level: Any) -> Any:
        """Return the first row of a level."""
        return tirx.Cast("int64", tirx.BufferLoad(self.levels, [level]))

    def kernel(self, name: str, body: Any, *scalars: Any, alone: bool) -> Any:
        """Return the function.

        `scalars`: parameters besides buffers.
        `alone`: whether no other block writes what the kernel reads while it runs, so that buffers may be
            ``__restrict__``. With barriers between blocks they must not: compilers keep restricted values in
            registers across barriers.
        """
        arity = [] if isinstance(self.arity, int) else [self.arity]
        function = tirx.PrimFunc([*(self._buffers[key] for key in self._order()), *arity, *scalars], body)
        return function.with_attr("global_symbol", name).with_attr("tirx.noalias", alone)

    def _order(self) -> list[tuple[str, int]]:
        return sorted(self._buffers, key=lambda key: (_ORDER.index(key[0]), key[1]))
