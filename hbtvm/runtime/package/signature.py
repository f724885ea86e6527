"""What a kernel takes: the one description of its arguments that all who call it go by.

A kernel is called as ``main(rows, *tables, scores)``. Its `Signature` tells, for each argument, role, type,
shape and alignment. It is derived once, by `hbtvm.strategies.base.Strategy.signature`, from a workload and a
configuration; the tuner, its devices elsewhere, packages and the runtimes read everything else from it.

A shape holds numbers and names. Names stand for sizes that differ from call to call (`TILES`) or that the
tables decide (`TREE_TILES` and others); a name means the same number wherever it occurs in a signature.
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
"""Tiles of trees; threads may share a kernel's work by splitting tables along an axis of this extent."""

ALIGNMENT = 64
"""Bytes that the start of tables and scores has to be a multiple of. Kernels rely on it without checking.

On a CPU, rows are read one element at a time (which ones, a table says), so they need no more than their
elements' own alignment.
"""

GPU_ROW_ALIGNMENT = 16  # the same for the rows of a GPU's kernel, which may read several values at once
_MOST = 2**40  # no extent, and no bound of a table's contents, is as large as this


def _name(text: str) -> str:
    if not text.isidentifier() or len(text) >= 40:
        raise ValueError(f"{text!r:.100} is no name")
    return text


Name = Annotated[str, Via(str, None, _name)]  # a name in a signature

Size = Annotated[int, Within(0, _MOST)]


@dataclass(frozen=True)
class Contents:
    """What a table may hold, as far as a kernel relies on it to read no memory but its own."""

    kind: Name  # a name in `hbtvm.runtime.package.contents.CHECKS`
    bounds: Mapping[str, Size] = field(default_factory=dict)  # whole numbers that the check takes


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel."""

    role: Role  # ``"rows"`` (input), ``"table"`` (constant of the model) or ``"scores"`` (output)
    name: Name  # the name of its parameter; that of a table tells what the table is for
    dtype: Annotated[str, Via(Element)]  # type of its elements
    shape: tuple[Size | Name, ...]  # numbers and names, see above
    alignment: Annotated[int, Within(1, ALIGNMENT + 1)] = ALIGNMENT  # bytes that its address is a multiple of
    contents: Contents | None = None  # what a table may hold; None for anything of its type

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def splits(self) -> bool:
        """Whether threads can share the work by each taking a range of its leading axis."""
        return bool(self.shape) and self.shape[0] == TREE_TILES

    def sizes(self, **named: int) -> tuple[int, ...]:
        """The shape in numbers, given the numbers that its names stand for."""
        return tuple(named[one] if isinstance(one, str) else one for one in self.shape)

    def nbytes(self, **named: int) -> int:
        """Bytes of the whole array, given the numbers that its shape's names stand for."""
        return math.prod(self.sizes(**named)) * self.itemsize

    def check(self, array: np.ndarray, named: dict[str, int]) -> None:
        """Check type and shape of an array.

        `named`: what names are known to stand for; names that it lacks are added.
        Raises `ValueError` if they are others.
        """
        shape = array.shape
        fits = array.dtype == self.dtype and len(shape) == len(self.shape)
        for size, extent in zip(shape, self.shape, strict=False):
            fits &= size == (named.setdefault(extent, size) if isinstance(extent, str) else extent)
        if not fits:
            expected = ", ".join(
                str(named.get(one, one)) if isinstance(one, str) else str(one) for one in self.shape
            )
            what = f"{self.role} {self.name!r} is {array.dtype} of shape {shape}"
            raise ValueError(f"{what}, expected {self.dtype} ({expected})")


@dataclass(frozen=True)
class Signature:
    """All arguments of a kernel.

    Raises `ValueError` if the arguments are not as said.
    """

    # In order: the rows, shape (`TILES`, R, F); the tables; the scores, float64, shape (`TILES`, P * G, V,
    # ...), where the last axes are R rows, or (`TILES`, R, V), of float32 as well
    arguments: tuple[Argument, ...]
    groups: Count  # groups of outputs, G; a row has G * V of them
    parts: Count = 1  # sums that a kernel leaves of each score, P, to be added by whoever called it

    def __post_init__(self) -> None:
        roles = [argument.role for argument in self.arguments]
        if len(roles) < 2 or roles != ["rows", *["table"] * (len(roles) - 2), "scores"]:
            raise ValueError(f"a kernel's arguments are {', '.join(roles) or 'none'}")
        names = [argument.name for argument in self.arguments]
        if len(set(names)) != len(names):
            raise ValueError(f"a kernel's arguments have the names {names}")
        rows, scores = self.rows, self.scores
        known = rows.dtype in get_args(Dtype) and len(rows.shape) == 3 and rows.shape[0] == TILES
        if not known or not all(is_whole(one, 1) for one in rows.shape[1:]):
            raise ValueError(f"a kernel's rows are {rows.dtype} of shape {rows.shape}")
        known = scores.dtype == "float64" or (scores.dtype == "float32" and self.by_row)
        known = known and len(scores.shape) >= 3 and scores.shape[0] == TILES
        known = known and all(is_whole(one, 1) for one in (*scores.shape[1:], self.groups, self.parts))
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
        """Whether scores have the shape (`TILES`, R, V), each row's side by side; there is then one group."""
        return len(self.scores.shape) == 3

    def _score_rows(self) -> int:
        return math.prod(int(one) for one in self.scores.shape[3:])

    @property
    def rows(self) -> Argument:
        """The input."""
        return self.arguments[0]

    @property
    def tables(self) -> tuple[Argument, ...]:
        """The model's constants."""
        return self.arguments[1:-1]

    @property
    def scores(self) -> Argument:
        """The output."""
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
        """Whether scores are not yet sums by rows: parts are to be added, or axes to be exchanged.

        With one output, or one row in a tile, scores lie as the result's rows do.
        """
        return self.parts > 1 or (self.outputs > 1 and self.row_tile > 1 and not self.by_row)

    def check_tables(self, tables: Sequence[np.ndarray]) -> dict[str, int]:
        """Check types and shapes of a kernel's tables, given in argument order.

        Raises `ValueError` if they are others.
        """
        if len(tables) != len(self.tables):
            raise ValueError(f"a kernel takes {len(self.tables)} tables, not {len(tables)}")
        named: dict[str, int] = {}
        for argument, table in zip(self.tables, tables, strict=True):
            argument.check(table, named)
        return named

    def shapes(self, tables: Sequence[np.ndarray], tiles: int) -> list[tuple[int, ...]]:
        """The shapes of all arguments of a call on so many row tiles."""
        table_shapes = [table.shape for table in tables]
        return [self.rows.sizes(tiles=tiles), *table_shapes, self.scores.sizes(tiles=tiles)]


def rows_argument(dtype: str, row_tile: int, n_features: int, alignment: int | None = None) -> Argument:
    """The rows of a kernel; aligned to their elements only, unless told otherwise."""
    alignment = alignment or np.dtype(dtype).itemsize
    return Argument("rows", "rows", dtype, (TILES, row_tile, n_features), alignment)


def scores_argument(shape: Sequence[int]) -> Argument:
    """The scores of a kernel: `shape` follows the row tiles."""
    return Argument("scores", "scores", "float64", (TILES, *shape))


def scores_by_row(row_tile: int, outputs: int, dtype: str = "float64") -> Argument:
    """The scores of a kernel that lays each row's side by side."""
    return Argument("scores", "scores", dtype, (TILES, row_tile, outputs))


def table(name: str, dtype: str, shape: Sequence[Extent], kind: str | None = None, **bounds: int) -> Argument:
    """A table, and the check of its contents with what that takes."""
    contents = None if kind is None else Contents(kind, bounds)
    return Argument("table", name, dtype, tuple(shape), contents=contents)


def is_whole(value: Any, least: int) -> bool:
    """Whether a value is a whole number, and no bool, from `least` on and of a size that can be."""
    return type(value) is int and least <= value < _MOST
