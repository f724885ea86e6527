"""`Rows`: a tensor with an axis of rows, a value of an ONNX graph that is not a constant.

The other axes are flattened to columns, in row-major order, so that reshaping, transposing, slicing and
joining tensors choose and order columns. Columns are a table's as long as each depends on one column of the
input (so that trees absorb its steps), and a node's from then on.

A constant is a numpy array, texts as objects. In constant shapes, `ROWS` stands for the number of rows.
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
MOST_COLUMNS = 1 << 17  # bound of a tensor's columns, which may be objects
_MOST_STEPS = 64  # bound of a table column's steps; nodes compute further steps
Shape = tuple[int | None, ...]  # extents; None is the axis of the rows


@dataclass(eq=False)
class Rows:
    """A tensor with an axis of rows."""

    shape: Shape  # with a single None, the rows' axis
    dtype: str  # as in `hbtvm.frontends.onnx.reading.DTYPES`
    content: Table | Node  # its columns; of a table or a node of bools, 0 and 1
    # If not None, the columns are positions in these values (integers, floats or texts)
    levels: np.ndarray | None = None
    origin: Any = None  # the tensor's origin, if `outputs` has a shortcut for it
    # Whether some axes, the rows' among them, are a single axis in ONNX, until a reshape resolves them
    unfolded: bool = False
    _node: Node | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        few_columns(self.width)
        columns = len(self.content) if isinstance(self.content, Table) else self.content.width
        if columns != self.width:
            raise ValueError(f"{columns} columns for the shape {self.shape}")

    @property
    def width(self) -> int:
        """Number of columns."""
        return math.prod(self.inner)

    @property
    def axis(self) -> int:
        """The axis of the rows."""
        return self.shape.index(None)

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape of a row's columns."""
        return tuple(extent for extent in self.shape if extent is not None)

    def grid(self) -> np.ndarray:
        """Return the columns' indices as a tensor of this shape, with the extent 1 in place of the rows."""
        return np.arange(self.width).reshape([1 if extent is None else extent for extent in self.shape])

    def take(self, indices: np.ndarray, shape: Sequence[int | None]) -> Rows:
        """Return some of the columns, in any order, as a tensor of a shape."""
        few_columns(math.prod(extent for extent in shape if extent is not None))
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
        """Return the tensor with numbers in place of positions.

        Raises `ValueError` if the values are texts.
        """
        if self.dtype == "str":
            raise ValueError("texts where numbers are expected")
        if self.levels is None:
            return self
        values = self.levels.astype(np.float64)
        if isinstance(self.content, Table):
            table = each(floats(self.content, self.dtype), Lookup(values))
            return replace(self, content=table, levels=None, origin=None, _node=None)
        content = self.content
        if not np.array_equal(values, np.arange(len(values))):
            content = Take(content, values[:, None])
        return replace(self, content=content, levels=None, origin=None, _node=None)

    def node(self, missing: bool = True) -> Node:
        """Return the columns as a node.

        `missing`: whether NaN and infinities are accepted; else rows with them are refused.
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
"""The value of a name of a graph, or the reason why it can't be computed (an error only if it is read)."""


def each(table: Table, step: Step) -> Table:
    """Append a step to all columns of a table."""
    # Columns keep sharing their steps, as there may be many.
    longer: dict[int, tuple[Step, ...]] = {}
    columns = []
    for column in table.columns:
        key = id(column.steps)
        if key not in longer:
            longer[key] = (*column.steps, step)
        columns.append(Column(column.source, longer[key], column.allow_nan, column.allow_inf))
    return Table(tuple(columns))


def few_columns(count: int) -> None:
    """Raise `UnsupportedModel` if a tensor would have too many columns."""
    if count > MOST_COLUMNS:
        raise UnsupportedModel(
            f"a tensor of the ONNX graph has {count:,} columns; at most {MOST_COLUMNS:,} are supported."
        )


def short(value: Value) -> Value:
    """Return the value, as a node if a column has too many steps."""
    content = value.content if isinstance(value, Rows) else None
    if not isinstance(content, Table) or all(len(x.steps) <= _MOST_STEPS for x in content.columns):
        return value
    assert isinstance(value, Rows)
    if value.dtype == "str":
        raise UnsupportedModel(f"the ONNX graph does more than {_MOST_STEPS} steps to a column of strings.")
    return replace(value, content=value.node(), levels=None, origin=None, _node=None)


def floats(table: Table, dtype: str) -> Table:
    """Cast a table's numbers; integers are float64."""
    return each(table, Cast("float32" if dtype == "float32" else "float64"))


def plain(table: Table) -> Table:
    """Return the columns; those with no steps but casts lose them: for readers that tolerate rounding."""
    return Table(tuple(_plain(column) for column in table.columns))


def _plain(column: Column) -> Column:
    return replace(column, steps=()) if all(isinstance(step, Cast) for step in column.steps) else column


def of_node(node: Node, shape: Sequence[int | None], dtype: str = "float32") -> Rows:
    """Return a tensor of a node's columns, rounded to its type."""
    return Rows(tuple(shape), dtype, single(node) if dtype == "float32" else node)


def bounded(size: int) -> None:
    """Raise `UnsupportedModel` if a constant would have too many values."""
    if size >= ROWS:
        raise UnsupportedModel(
            "the ONNX graph computes as many constants as there are rows, which is not supported."
        )
    if size > 1 << 25:
        raise UnsupportedModel(
            f"the ONNX graph computes a constant of {size:,} values, which is not supported."
        )
