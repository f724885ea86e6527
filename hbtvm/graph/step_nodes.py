"""From a table to nodes over the columns that a kernel reads: steps of one kind, one for each column, make one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.graph.lower import Coded, Feeds, resolve
from hbtvm.graph.step_groups import kind_of
from hbtvm.graph.steps import (
    Above,
    Arithmetic,
    Cast,
    Clip,
    Fill,
    Function,
    IsMissing,
    Step,
    Within,
    ZeroIsMissing,
)
from hbtvm.graph.table import Column, Made
from hbtvm.operators import pointwise
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import Select, concat, select
from hbtvm.operators.tables import OneHot, lookup

Of = Callable[[Made], tuple[Node, int] | None]
"""From the source of a column that an operation makes to the node and its column that compute it, if a kernel does."""


def rows_of(
    columns: Sequence[Column], feeds: Feeds, rows: Node, made: Of, allow_nan: bool, allow_inf: bool
) -> Node:
    """Return the node of a table's columns.

    Parameters
    ----------
    columns
        The table's, at least one.
    feeds
        Where the columns that are read are put down.
    rows
        The kernel's rows: column j is feed j. (Its width is told later.)
    made
        See `Of`.
    allow_nan, allow_inf
        Whether the reader of the table takes them.
    """
    groups: dict[Any, list[int]] = {}
    found = [_Plan(column, feeds, rows, made, allow_nan, allow_inf) for column in columns]
    for i, one in enumerate(found):
        groups.setdefault(one.key, []).append(i)
    parts = [found[group[0]].build([found[i] for i in group]) for group in groups.values()]
    order = np.argsort(np.concatenate([np.array(group) for group in groups.values()]), kind="stable")
    return select(concat(parts), order)


class _Plan:
    """One column: where its values come from, and what is done to them."""

    def __init__(
        self, column: Column, feeds: Feeds, rows: Node, made: Of, allow_nan: bool, allow_inf: bool
    ) -> None:
        self.rows, self.steps = rows, column.steps
        self.values: np.ndarray | None = None
        nan, inf = column.allow_nan and allow_nan, column.allow_inf and allow_inf
        own = made(column.source) if isinstance(column.source, Made) else None
        resolved = resolve(column)
        if own is not None:
            self.base, self.at = own
            self.key: Any = (id(self.base), self._kinds())
            return
        self.base = rows
        if isinstance(resolved, Coded) and (nan or np.isfinite(resolved.values).all()):
            self.at, self.values = feeds.codes(column.source, resolved.prefix), resolved.values
            ones = np.flatnonzero(self.values)
            self.hot = len(ones) == 1 and self.values[ones[0]] == 1.0
            self.key = ("hot" if self.hot else "lookup",)
            return
        if isinstance(resolved, Coded) or not all(has_node(step) for step in self.steps):
            self.at, self.steps = feeds.host(column, nan, inf), ()
        else:
            # What comes in may be missing where a step fills it.
            fills = any(isinstance(step, Fill | IsMissing) for step in self.steps)
            self.at = feeds.number(column, column.allow_nan and (allow_nan or fills), inf)
        self.key = (id(rows), self._kinds())

    def _kinds(self) -> tuple[Any, ...]:
        return tuple(kind_of(step) for step in self.steps)

    def build(self, plans: Sequence[_Plan]) -> Node:
        """The columns of several plans with the same key."""
        at = np.array([one.at for one in plans], np.int32)
        if self.key == ("hot",):
            codes = [float(np.flatnonzero(one.values)[0]) for one in plans]  # type: ignore[arg-type]
            return OneHot(self.base, at, np.array(codes))
        if self.key == ("lookup",):
            return lookup(self.base, at, [one.values for one in plans])  # type: ignore[misc]
        # The rows' own width is not known yet, so that even all of their columns are selected.
        node: Node = pick(self.base, at)
        for steps in zip(*(one.steps for one in plans), strict=True):
            node = step_node(steps, node)
        return node


def pick(base: Node, at: np.ndarray) -> Node:
    """Columns of a node whose width may not be known yet."""
    return Select(base, at.astype(np.int32))


_FUNCTIONS = {"fabs": "absolute", "positive": "positive"}


def has_node(step: Step) -> bool:
    """Whether `step_node` knows a kind of step on numbers."""
    if kind_of(step) is None:
        return False
    if isinstance(step, Function):
        return step.name in ("fabs", "positive") or step.name in pointwise.FUNCTIONS
    if isinstance(step, Fill | IsMissing):
        return not isinstance(step.missing, str)
    return isinstance(step, Arithmetic | Clip | Within | Above | Cast | ZeroIsMissing)


def step_node(steps: Sequence[Any], x: Node) -> Node:
    """Steps of one kind (`hbtvm.graph.step_groups.kind_of`), one for each column, as a node.

    Numbers are computed in float64, also where the library rounds to float32 in between.
    """
    step = steps[0]
    match step:
        case Arithmetic():
            return apply(step.operation, x, np.array([one.constant for one in steps]))
        case Clip():
            low, high = np.array([one.low for one in steps]), np.array([one.high for one in steps])
            return apply("minimum", apply("maximum", x, low), high)
        case Within():
            low, high = np.array([one.low for one in steps]), np.array([one.high for one in steps])
            inside = apply("multiply", apply("greater_equal", x, low), apply("less_equal", x, high))
            return apply("where", inside, x, np.nan)
        case Above():
            return apply("greater", x, np.array([one.threshold for one in steps]))
        case Cast():
            return apply("round_float32", x) if step.dtype == "float32" else x
        case Fill():
            return apply("where", _missing(x, step.missing), np.array([float(one.value) for one in steps]), x)
        case IsMissing():
            return _missing(x, step.missing)
        case ZeroIsMissing():
            return apply("where", apply("equal", x, 0.0), np.nan, x)
        case Function():
            name = _FUNCTIONS.get(step.name, step.name)
            return x if name == "positive" else apply(name, x)
    raise TypeError(f"no node for {type(step).__name__}")


def _missing(x: Node, missing: Any) -> Node:
    """1 where a number is missing, else 0."""
    if missing is None:
        return apply("multiply", apply("isnan", x), 0.0)
    if not isinstance(missing, int | float) or missing != missing:
        return apply("isnan", x)
    return apply("equal", x, float(missing))
