"""`Rows`: a tensor whose one axis is the rows; what flows along the edges of an ONNX graph, beside constants.

The other axes are flattened to columns, in row-major order, so that reshaping, transposing, slicing and
joining tensors choose and order columns. Columns are a table's as long as each is made of one column of the
input (so that trees swallow what was done to it), and a node's from then on.

A constant is a numpy array, texts as objects. In constants that hold shapes, the number of rows is `ROWS`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.graph.columns.steps import Cast, Lookup, Step
from hbtvm.graph.columns.table import Column, Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.operators.base import Node
from hbtvm.operators.distances import Take
from hbtvm.operators.rounding import single
from hbtvm.operators.shapes import select

ROWS = 1 << 40  # stands for the number of rows in computed shapes; no tensor of a model is as large
MOST_COLUMNS = 1 << 17  # columns that a tensor may have: each may be an object here
_MOST_STEPS = 64  # steps of a column of a table; what follows is computed by nodes
Shape = tuple[int | None, ...]  # extents; None is the axis of the rows


@dataclass(eq=False)
class Rows:
    """A tensor with an axis of rows."""

    shape: Shape  # None for the rows' axis, of which there is one
    dtype: str  # as in `hbtvm.frontends.onnx.reading.DTYPES`
    content: Table | Node  # its columns; of a table or a node of bools, 0 and 1
    # If not None, the columns are positions in these finitely many values (integers, floats or texts)
    levels: np.ndarray | None = None
    origin: Any = None  # what the tensor is an output of, where a fast way is known for that; see `outputs`
    # Whether some axes are one axis in ONNX, with the rows among them, so that only another shape makes sense
    # of them
    unfolded: bool = False
    _node: Node | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        few_columns(self.width)
        found = len(self.content) if isinstance(self.content, Table) else self.content.width
        if found != self.width:
            raise ValueError(f"{found} columns for the shape {self.shape}")

    @property
    def width(self) -> int:
        """Columns."""
        return math.prod(self.inner)

    @property
    def axis(self) -> int:
        """The axis of the rows."""
        return self.shape.index(None)

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape of one row's columns."""
        return tuple(one for one in self.shape if one is not None)

    def grid(self) -> np.ndarray:
        """The columns' indices as a tensor of the same shape, with the extent 1 in place of the rows."""
        return np.arange(self.width).reshape([1 if one is None else one for one in self.shape])

    def take(self, indices: np.ndarray, shape: Sequence[int | None]) -> Rows:
        """Some of the columns, in any order, as a tensor of a shape."""
        few_columns(math.prod(one for one in shape if one is not None))
        flat = np.asarray(indices).ravel()
        content: Table | Node
        if len(flat) == self.width and np.array_equal(flat, np.arange(self.width)):
            return replace(self, shape=tuple(shape), origin=None)
        if isinstance(self.content, Table):
            content = self.content.select(flat.tolist())
        elif len(flat):
            content = select(self.content, flat)
        else:
            content = Table(())
        return replace(self, shape=tuple(shape), content=content, origin=None, _node=None)

    def numbers(self) -> Rows:
        """The same with numbers in place of positions.

        Raises `ValueError` if the values are texts.
        """
        if self.levels is None:
            if self.dtype == "str":
                raise ValueError("texts where numbers are expected")
            return self
        if self.dtype == "str":
            raise ValueError("texts where numbers are expected")
        values = self.levels.astype(np.float64)
        if isinstance(self.content, Table):
            # The same steps for all columns that share their codes.
            table = each(floats(self.content, self.dtype), Lookup(values))
            return replace(self, content=table, levels=None, origin=None, _node=None)
        content = self.content
        if not np.array_equal(values, np.arange(len(values))):
            content = Take(content, values[:, None])
        return replace(self, content=content, levels=None, origin=None, _node=None)

    def node(self, missing: bool = True) -> Node:
        """The columns as a node.

        `missing`: whether NaN and infinities are let in; else rows that have them are refused.
        """
        values = self.numbers()
        if not isinstance(values.content, Table):
            return values.content
        if not len(values.content):
            raise ValueError("a tensor without columns")
        if not missing:
            return TableRows(plain(values.content))
        if self._node is None:
            self._node = TableRows(values.content, True, True)
        return self._node


Value = Rows | np.ndarray

Known = Value | UnsupportedModel
"""What a name of a graph stands for: a value, or why it can't be computed (which counts if it is read)."""


def each(table: Table, step: Step) -> Table:
    """A table with one more step on all columns."""
    # Columns that share their steps go on sharing them: there may be many.
    longer: dict[int, tuple[Step, ...]] = {}
    columns = []
    for column in table.columns:
        key = id(column.steps)
        if key not in longer:
            longer[key] = (*column.steps, step)
        columns.append(Column(column.source, longer[key], column.allow_nan, column.allow_inf))
    return Table(tuple(columns))


def few_columns(count: int) -> None:
    """Refuse tensors of too many columns before they are made.

    Raises `UnsupportedModel` if a tensor would have so many columns.
    """
    if count > MOST_COLUMNS:
        raise UnsupportedModel(
            f"a tensor of the ONNX graph has {count:,} columns; at most {MOST_COLUMNS:,} are supported."
        )


def short(value: Value) -> Value:
    """The value, as a node where a column has so many steps that searching among them would take long."""
    content = value.content if isinstance(value, Rows) else None
    if not isinstance(content, Table) or all(len(one.steps) <= _MOST_STEPS for one in content.columns):
        return value
    assert isinstance(value, Rows)
    if value.dtype == "str":
        raise UnsupportedModel(f"the ONNX graph does more than {_MOST_STEPS} steps to a column of strings.")
    return replace(value, content=value.node(), levels=None, origin=None, _node=None)


def floats(table: Table, dtype: str) -> Table:
    """A table whose numbers are of a type from here on; integers are held in float64."""
    return each(table, Cast("float32" if dtype == "float32" else "float64"))


def plain(table: Table) -> Table:
    """Columns without casts, where nothing else is done to them: for what reads them inexactly."""
    return Table(tuple(_plain(column) for column in table.columns))


def _plain(column: Column) -> Column:
    return replace(column, steps=()) if all(isinstance(one, Cast) for one in column.steps) else column


def of_node(node: Node, shape: Sequence[int | None], dtype: str = "float32") -> Rows:
    """A tensor of a node's columns, rounded to its type."""
    return Rows(tuple(shape), dtype, single(node) if dtype == "float32" else node)


def bounded(size: int) -> None:
    """Refuse constants beyond any sense before they are made.

    Raises `UnsupportedModel` if a constant of so many values is asked for.
    """
    if size >= ROWS:
        raise UnsupportedModel(
            "the ONNX graph computes as many constants as there are rows, which is not supported."
        )
    if size > 1 << 25:
        raise UnsupportedModel(
            f"the ONNX graph computes a constant of {size:,} values, which is not supported."
        )
