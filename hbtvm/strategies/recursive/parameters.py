"""Parameters of a step's function, by role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.runtime.recursive.entry import StepArgument

_ORDER = ("state", "child", "number", "vector", "scratch", "table", "span", "out")


class Tables:
    """Constants of all functions, each once."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._known: dict[Any, int] = {}

    def number(self, array: np.ndarray) -> int:
        """Return the number of a new or known table."""
        array = np.ascontiguousarray(array)
        key = (array.shape, str(array.dtype), array.tobytes())
        if key not in self._known:
            self._known[key] = len(self.arrays)
            self.arrays.append(array)
        return self._known[key]


class Parameters:
    """Parameters of a function: buffers, created on first use.

    `tiles`: tiles of a call, T.
    """

    def __init__(self, tile: int, width: int, children: int | None, tables: Tables) -> None:
        self.tile, self.width, self.children = tile, width, children
        self.tables = tables
        self.tiles = tirx.Var("tiles", "int64")
        self._rows = tirx.Var("rows", "int64")
        self.arity: Any = tirx.Var("arity", "int64") if children is None else children
        self._buffers: dict[tuple[str, int], Any] = {}

    def _buffer(self, role: str, number: int, shape: Sequence[Any], dtype: str) -> Any:
        key = (role, number)
        if key not in self._buffers:
            self._buffers[key] = tirx.decl_buffer(tuple(shape), dtype, f"{role}{number}")
        return self._buffers[key]

    @property
    def state(self) -> Any:
        """Rows of all nodes, (rows, S)."""
        return self._buffer("state", 0, (self._rows, self.width), "float32")

    @property
    def child(self) -> Any:
        """Rows of children, (T, R, C)."""
        return self._buffer("child", 0, (self.tiles, self.tile, self.arity), "int32")

    @property
    def out(self) -> Any:
        """The level's rows, (T, R, S)."""
        return self._buffer("out", 0, (self.tiles, self.tile, self.width), "float32")

    @property
    def span(self) -> Any:
        """The panels to compute, (2,)."""
        return self._buffer("span", 0, (2,), "int32")

    def number(self, which: int) -> Any:
        """Return an input of numbers, (T, R)."""
        return self._buffer("number", which, (self.tiles, self.tile), "int32")

    def vector(self, which: int, size: int) -> Any:
        """Return an input of vectors, (T, R, size)."""
        return self._buffer("vector", which, (self.tiles, self.tile, size), "float32")

    def scratch(self, which: int, width: int) -> Any:
        """Return memory between steps, (T, R, width)."""
        return self._buffer("scratch", which, (self.tiles, self.tile, width), "float32")

    def table(self, array: np.ndarray) -> Any:
        """Return the buffer of a constant."""
        which = self.tables.number(array)
        return self._buffer("table", which, array.shape, str(array.dtype))

    def arguments(self) -> tuple[StepArgument, ...]:
        """Return the function's arguments, in order."""
        return tuple(StepArgument(role, number) for role, number in self._order())  # type: ignore[arg-type]

    def function(self, name: str, body: Any) -> Any:
        """Return the function."""
        function = tirx.PrimFunc([self._buffers[key] for key in self._order()], body)
        # Only later levels read a level's rows: a call never reads what it writes.
        return function.with_attr("global_symbol", name).with_attr("tirx.noalias", True)

    def _order(self) -> list[tuple[str, int]]:
        return sorted(self._buffers, key=lambda key: (_ORDER.index(key[0]), key[1]))
