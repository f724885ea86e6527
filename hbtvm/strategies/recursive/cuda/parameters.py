"""What kernels of recursive models on GPUs take: whole arrays by row, and which rows a level has."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from hbtvm.strategies.recursive.parameters import Parameters, Tables

_ORDER = ("state", "child", "number", "vector", "scratch", "table", "levels", "barrier")

SCALARS = ("arity", "level", "count", "blocks")
"""Numbers of 64 bits that kernels take: places for children, the level at hand, how many levels there are,
and blocks."""


class DeviceParameters(Parameters):
    """What a kernel takes: buffers, made when they are first asked for.

    In place of a level's tiles they hold all rows, one node each: a kernel finds its level's in `levels`.

    `level`, `count`, `blocks`: see `SCALARS`.
    """

    def __init__(self, width: int, children: int | None, tables: Tables) -> None:
        super().__init__(1, width, children, tables)
        self.level, self.count, self.blocks = (tirx.Var(name, "int64") for name in SCALARS[1:])

    @property
    def levels(self) -> Any:
        """The first row of each level, and the row behind the last, (count + 1,)."""
        return self._buffer("levels", 0, (tirx.Var("starts", "int64"),), "int32")

    @property
    def barrier(self) -> Any:
        """How often a block came to a barrier, (1,)."""
        return self._buffer("barrier", 0, (1,), "int64")

    def first_row(self, level: Any) -> Any:
        """The first row of a level."""
        return tirx.Cast("int64", tirx.BufferLoad(self.levels, [level]))

    def kernel(self, name: str, body: Any, *scalars: Any, alone: bool) -> Any:
        """The function.

        `scalars`: numbers that it takes beside buffers.
        `alone`: whether nobody else writes what it reads while it runs. Other blocks do where it has barriers
            between them: what it is told not to share (``__restrict__``) a compiler keeps in registers across
            barriers.
        """
        arity = [] if isinstance(self.arity, int) else [self.arity]
        function = tirx.PrimFunc([*(self._made[key] for key in self._order()), *arity, *scalars], body)
        return function.with_attr("global_symbol", name).with_attr("tirx.noalias", alone)

    def _order(self) -> list[tuple[str, int]]:
        return sorted(self._made, key=lambda key: (_ORDER.index(key[0]), key[1]))
