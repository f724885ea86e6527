"""A kernel's arguments: the description that all of its callers use.

A kernel is called as ``main(rows, *tables, scores)``. Its `Signature` has each argument's role, type, shape
and alignment. `hbtvm.strategies.base.Strategy.signature` derives it from a workload and a configuration; the
tuner, remote devices, packages and runtimes read it.

A shape holds numbers and names. Names stand for sizes that depend on the call (`TILES`) or on the tables
(`TREE_TILES` and others); within a signature, equal names are equal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

import numpy as np

from hbtvm.codec import Count, Via, Within

Extent = int | str
Role = Literal["rows", "table", "scores"]
Dtype = Literal["float32", "float64"]
Element = Literal["float32", "float64", "float16", "int8", "int16", "int32", "int64"]

TILES = "tiles"  # row tiles of a call

TREE_TILES = "tree_tiles"
"""Tiles of trees; threads may split tables along an axis of this extent."""

ALIGNMENT = 64
"""Alignment of tables and scores in bytes. Kernels rely on it without checking.

CPU kernels read rows element by element, by a table of columns, so rows only need their elements' alignment.
"""

GPU_ROW_ALIGNMENT = 16  # alignment of rows for a GPU's kernel, which may read several values at once
_MOST = 2**40  # exclusive limit of extents and of bounds of contents


def _name(text: str) -> str:
    if not text.isidentifier() or len(text) >= 40:
        raise ValueError(f"{text!r:.100} is not a name")
    return text


Name = Annotated[str, Via(str, None, _name)]  # a name in a signature

Size = Annotated[int, Within(0, _MOST)]


@dataclass(frozen=True)
class Contents:
    """Conditions on a table's contents that keep a kernel within its memory."""

    kind: Name  # a name in `hbtvm.runtime.package.contents.CHECKS`
    bounds: Mapping[str, Size] = field(default_factory=dict)  # integer parameters of the check


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel."""

    role: Role  # ``"rows"`` (input), ``"table"`` (constant of the model) or ``"scores"`` (output)
    name: Name  # the name of its parameter
    dtype: Annotated[str, Via(Element)]  # type of its elements
    shape: tuple[Size | Name, ...]  # numbers and names, see above
    alignment: Annotated[int, Within(1, ALIGNMENT + 1)] = ALIGNMENT  # of its address, in bytes
    contents: Contents | None = None  # conditions on a table's contents; None for none

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def splits(self) -> bool:
        """Whether threads can each take a range of its leading axis."""
        return bool(self.shape) and self.shape[0] == TREE_TILES

    def sizes(self, **named: int) -> tuple[int, ...]:
        """Return the shape in numbers, from the values of its names."""
        return tuple(named[size] if isinstance(size, str) else size for size in self.shape)

    def nbytes(self, **named: int) -> int:
        """Return the array's bytes, from the values of its shape's names."""
        return math.prod(self.sizes(**named)) * self.itemsize

    def check(self, array: np.ndarray, named: dict[str, int]) -> None:
        """Check type and shape of an array.

        `named`: values of names; missing names are added.
        Raises `ValueError` if they differ.
        """
        shape = array.shape
        fits = array.dtype == self.dtype and len(shape) == len(self.shape)
        for size, extent in zip(shape, self.shape, strict=False):
            fits &= size == (named.setdefault(extent, size) if isinstance(extent, str) else extent)
        if not fits:
            expected = ", ".join(
                str(named.get(size, size)) if isinstance(size, str) else str(size) for size in self.shape
            )
            argument = f"{self.role} {self.name!r} is {array.dtype} of shape {shape}"
            raise ValueError(f"{argument}, expected {self.dtype} ({expected})")


@dataclass(frozen=True)
class Signature:
    """All arguments of a kernel.

    Raises `ValueError` if the arguments do not have this form.
    """

    # In order: the rows, shape (`TILES`, R, F); the tables; the scores, float64, shape (`TILES`, P * G, V,
    # ...), where the last axes are R rows, or (`TILES`, R, V), of float32 as well
    arguments: tuple[Argument, ...]
    groups: Count  # groups of outputs, G; a row has G * V of them
    parts: Count = 1  # sums that a kernel returns for each score, P, which the caller adds

    def __post_init__(self) -> None:
        roles = [argument.role for argument in self.arguments]
        if len(roles) < 2 or roles != ["rows", *["table"] * (len(roles) - 2), "scores"]:
            raise ValueError(f"a kernel's arguments are {', '.join(roles) or 'none'}")
        names = [argument.name for argument in self.arguments]
        if len(set(names)) != len(names):
            raise ValueError(f"a kernel's arguments have the names {names}")
        rows, scores = self.rows, self.scores
        known = rows.dtype in get_args(Dtype) and len(rows.shape) == 3 and rows.shape[0] == TILES
        if not known or not all(is_whole(size, 1) for size in rows.shape[1:]):
            raise ValueError(f"a kernel's rows are {rows.dtype} of shape {rows.shape}")
        known = scores.dtype == "float64" or (scores.dtype == "float32" and self.by_row)
        known = known and len(scores.shape) >= 3 and scores.shape[0] == TILES
        known = known and all(is_whole(size, 1) for size in (*scores.shape[1:], self.groups, self.parts))
        if known and self.by_row and scores.shape[1] == self.row_tile and self.groups == self.parts == 1:
            return
        if (
            not known
            or self.by_row
            or scores.shape[1] != self.groups * self.parts
            or self._score_rows() != self.row_tile
        ):
            raise ValueError(
                f"a kernel's scores are {scores.dtype} of shape {scores.shape}, for {self.row_tile} rows, "
                f"{self.groups} groups and {self.parts} parts"
            )

    @property
    def by_row(self) -> bool:
        """Whether scores have the shape (`TILES`, R, V), which implies a single group."""
        return len(self.scores.shape) == 3

    def _score_rows(self) -> int:
        return math.prod(int(size) for size in self.scores.shape[3:])

    @property
    def rows(self) -> Argument:
        """The argument of rows."""
        return self.arguments[0]

    @property
    def tables(self) -> tuple[Argument, ...]:
        """The arguments of tables."""
        return self.arguments[1:-1]

    @property
    def scores(self) -> Argument:
        """The argument of scores."""
        return self.arguments[-1]

    @property
    def dtype(self) -> Dtype:
        """Type of the rows."""
        dtype: Any = self.rows.dtype
        return dtype  # type: ignore[no-any-return]

    @property
    def row_tile(self) -> int:
        """Rows of a tile, R."""
        return int(self.rows.shape[1])

    @property
    def n_features(self) -> int:
        """Columns of the input, F."""
        return int(self.rows.shape[2])

    @property
    def width(self) -> int:
        """Outputs of a group, V."""
        return int(self.scores.shape[2])

    @property
    def outputs(self) -> int:
        """Outputs of a row, G * V."""
        return self.groups * self.width

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.n_features * self.rows.itemsize

    @property
    def needs_epilogue(self) -> bool:
        """Whether scores need an epilogue, which adds parts or exchanges axes.

        With one output, or one row per tile, scores have the result's layout.
        """
        return self.parts > 1 or (self.outputs > 1 and self.row_tile > 1 and not self.by_row)

    def check_tables(self, tables: Sequence[np.ndarray]) -> dict[str, int]:
        """Check types and shapes of a kernel's tables, in argument order; return the values of names.

        Raises `ValueError` if they differ.
        """
        if len(tables) != len(self.tables):
            raise ValueError(f"a kernel takes {len(self.tables)} tables, not {len(tables)}")
        named: dict[str, int] = {}
        for argument, table in zip(self.tables, tables, strict=True):
            argument.check(table, named)
        return named

    def shapes(self, tables: Sequence[np.ndarray], tiles: int) -> list[tuple[int, ...]]:
        """Return the shapes of all arguments of a call on `tiles` row tiles."""
        table_shapes = [table.shape for table in tables]
        return [self.rows.sizes(tiles=tiles), *table_shapes, self.scores.sizes(tiles=tiles)]


def rows_argument(dtype: str, row_tile: int, n_features: int, alignment: int | None = None) -> Argument:
    """Return the argument of a kernel's rows; by default, with the alignment of its elements."""
    alignment = alignment or np.dtype(dtype).itemsize
    return Argument("rows", "rows", dtype, (TILES, row_tile, n_features), alignment)


def scores_argument(shape: Sequence[int]) -> Argument:
    """Return the argument of a kernel's scores; `shape` follows the row tiles."""
    return Argument("scores", "scores", "float64", (TILES, *shape))


def scores_by_row(row_tile: int, outputs: int, dtype: str = "float64") -> Argument:
    """Return the argument of scores by row."""
    return Argument("scores", "scores", dtype, (TILES, row_tile, outputs))


def table(name: str, dtype: str, shape: Sequence[Extent], kind: str | None = None, **bounds: int) -> Argument:
    """Return the argument of a table, with the check of its contents and the check's parameters."""
    contents = None if kind is None else Contents(kind, bounds)
    return Argument("table", name, dtype, tuple(shape), contents=contents)


def is_whole(value: Any, least: int) -> bool:
    """Return whether a value is an int, not a bool, from `least` to below the limit."""
    return type(value) is int and least <= value < _MOST
