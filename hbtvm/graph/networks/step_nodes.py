"""From tables to nodes over a kernel's columns: steps of the same kind in several columns become a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.graph.columns.curves import LEAST_NORMAL, MOST_NORMAL, Bins, NormalQuantile, Power, Quantile
from hbtvm.graph.columns.kernel_input import Coded, Feeds, resolve
from hbtvm.graph.columns.step_groups import kind_of
from hbtvm.graph.columns.steps import (
    Above,
    Arithmetic,
    Cast,
    Clip,
    Equals,
    Fill,
    Function,
    IsMissing,
    Step,
    Within,
    ZeroIsMissing,
)
from hbtvm.graph.columns.table import Column, Made
from hbtvm.operators import pointwise
from hbtvm.operators.base import Node, constant
from hbtvm.operators.pointwise import apply
from hbtvm.operators.rounding import single
from hbtvm.operators.shapes import Select, concat, select
from hbtvm.operators.tables import Bucketize, Interpolate, OneHot, lookup, ragged

Of = Callable[[Made], tuple[Node, int] | None]
"""From an operation's column to the node, and its column, that compute it; None if no kernel does."""


def rows_of(
    columns: Sequence[Column],
    feeds: Feeds,
    rows: Node,
    node_of: Of,
    allow_nan: bool,
    allow_inf: bool,
    narrow: bool = False,
) -> Node:
    """Return the node of a table's columns.

    Parameters
    ----------
    columns
        The table's columns, at least one.
    feeds
        Feeds of the columns that are read are added here.
    rows
        The kernel's rows: column j is feed j. (Their width is unknown yet.)
    node_of
        See `Of`.
    allow_nan, allow_inf
        Whether the reader of the table accepts them.
    narrow
        Whether to round numbers to float32 after each step of arithmetic, as the library does for float32
        rows. Behind a `Cast`, its type decides.
    """
    groups: dict[Any, list[int]] = {}
    plans = [_Plan(column, feeds, rows, node_of, allow_nan, allow_inf) for column in columns]
    for i, plan in enumerate(plans):
        groups.setdefault(plan.key, []).append(i)
    parts = [plans[group[0]].build([plans[i] for i in group], narrow) for group in groups.values()]
    order = np.argsort(np.concatenate([np.array(group) for group in groups.values()]), kind="stable")
    return select(concat(parts), order)


class _Plan:
    """A column: the source of its values, and the steps on them."""

    def __init__(
        self, column: Column, feeds: Feeds, rows: Node, node_of: Of, allow_nan: bool, allow_inf: bool
    ) -> None:
        self.rows, self.steps = rows, column.steps
        self.values: np.ndarray | None = None
        self.hot: int | None = None
        nan, inf = column.allow_nan and allow_nan, column.allow_inf and allow_inf
        computed = node_of(column.source) if isinstance(column.source, Made) else None
        # Whether the operation returns float64 for float32 rows, too.
        self.wide = computed is not None and not getattr(column.source.operation, "narrow", True)  # type: ignore[union-attr]
        resolved = resolve(column)
        if computed is not None:
            self.base, self.at = computed
            self.key: Any = (id(self.base), self.wide, self._kinds())
            return
        self.base = rows
        if isinstance(resolved, Coded) and (nan or resolved.finite):
            self.at, self.hot = feeds.codes(column.source, resolved.prefix), resolved.hot
            if self.hot is None:
                self.values = resolved.values
            self.key = ("lookup" if self.hot is None else "hot",)
            return
        # The host refuses numbers outside of a function's domain.
        refuses = not nan and any(isinstance(step, Within) for step in self.steps)
        known = all(has_node(step) for step in self.steps) and not _jumps_after_rounding(self.steps)
        if isinstance(resolved, Coded) or refuses or not known:
            self.at, self.steps = feeds.host(column, nan, inf), ()
        else:
            # Rows may lack values that a step fills.
            fills = any(isinstance(step, Fill | IsMissing) for step in self.steps)
            self.at = feeds.number(column, column.allow_nan and (allow_nan or fills), inf)
        self.key = (id(rows), self._kinds())

    def _kinds(self) -> tuple[Any, ...]:
        return tuple(kind_of(step) for step in self.steps)

    def build(self, plans: Sequence[_Plan], narrow: bool) -> Node:
        """Return the columns of plans with the same key."""
        narrow = narrow and not self.wide
        at = np.array([plan.at for plan in plans], np.int32)
        if self.key == ("hot",):
            codes = [float(plan.hot) for plan in plans]  # type: ignore[arg-type]
            return OneHot(self.base, at, np.array(codes))
        if self.key == ("lookup",):
            return lookup(self.base, at.tolist(), [plan.values for plan in plans])  # type: ignore[misc]
        return chains(self.base, [(plan.at, plan.steps) for plan in plans], narrow)


def chains(base: Node, columns: Sequence[tuple[int, tuple[Step, ...]]], narrow: bool = False) -> Node:
    """Return steps of the same kinds on columns of a node; common first steps are computed once."""
    if not columns[0][1]:
        # `select` needs the width of the rows, which may be unknown yet.
        return Select(base, np.array([at for at, _ in columns], np.int32))
    before: dict[tuple[int, ...], int] = {}
    shorter, places = list[tuple[int, tuple[Step, ...]]](), []
    for at, steps in columns:
        key = (at, *map(id, steps[:-1]))
        if key not in before:
            before[key] = len(shorter)
            shorter.append((at, steps[:-1]))
        places.append(before[key])
    x = chains(base, shorter, narrow)
    last = [steps[-1] for _, steps in columns]
    casts = [step for step in columns[0][1][:-1] if isinstance(step, Cast)]
    if casts:
        narrow = casts[-1].dtype == "float32"
    if isinstance(last[0], Equals):
        values = [float(step.codes[0]) for step in last if isinstance(step, Equals)]
        return OneHot(x, np.array(places, np.int32), np.array(values))
    return step_node(last, select(x, places), narrow)


_FACTORS = dict.fromkeys(("deg2rad", "radians"), np.pi / 180) | dict.fromkeys(
    ("rad2deg", "degrees"), 180 / np.pi
)

_EXACT = ("fabs", "positive", "negative", "sqrt", "square", "sign", "rint", "floor", "ceil", "trunc")
"""Functions that kernels compute to the last bit like numpy."""


def _jumps_after_rounding(steps: Sequence[Step]) -> bool:
    """Return whether steps jump behind a function whose last bits differ between kernels and the library.

    Training values often lie exactly on an edge of bins, or on one of several equal quantiles.
    """
    rounded = False
    for step in steps:
        if rounded and (
            isinstance(step, Bins | Above | Equals) or (isinstance(step, Quantile) and step.ties)
        ):
            return True
        # Behind bins and comparisons numbers are exact again, but such chains are rare.
        rounded |= isinstance(step, Power | Quantile | NormalQuantile)
        rounded |= isinstance(step, Function) and step.name not in _EXACT
    return False


def has_node(step: Step) -> bool:
    """Return whether `step_node` has a node for a step on numbers."""
    if kind_of(step) is None:
        return False
    if isinstance(step, Function):
        return step.name in ("fabs", "positive") or step.name in pointwise.FUNCTIONS
    if isinstance(step, Fill | IsMissing):
        return not isinstance(step.missing, str)
    if isinstance(step, Equals):
        return len(step.codes) == 1
    return isinstance(
        step,
        Arithmetic | Clip | Within | Above | Cast | ZeroIsMissing | Bins | Quantile | NormalQuantile | Power,
    )


def step_node(steps: Sequence[Any], x: Node, narrow: bool = False) -> Node:
    """Return steps of one kind (`hbtvm.graph.columns.step_groups.kind_of`), one for each column, as a node.

    It computes in float64, and rounds to float32 behind each step of arithmetic if `narrow`.
    """
    step = steps[0]

    def rounded(values: Any) -> np.ndarray:
        # numpy compares float32 numbers with Python numbers in float32.
        return np.asarray(values, np.float32 if narrow else np.float64).astype(np.float64)

    match step:
        case Arithmetic():
            constants = np.array([step.constant for step in steps])
            if step.cast:
                constants = rounded(constants)
            result = apply(step.operation, x, constants)
            return single(result) if narrow else result
        case Clip():
            low, high = rounded([step.low for step in steps]), rounded([step.high for step in steps])
            return apply("minimum", apply("maximum", x, low), high)
        case Within():
            low, high = np.array([step.low for step in steps]), np.array([step.high for step in steps])
            inside = apply("multiply", apply("greater_equal", x, low), apply("less_equal", x, high))
            return apply("where", inside, x, np.nan)
        case Above():
            return apply("greater", x, rounded([step.threshold for step in steps]))
        case Cast():
            return apply("round_float32", x) if step.dtype == "float32" else x
        case Fill():
            values = rounded([float(step.value) for step in steps])
            return apply("where", _missing(x, step.missing, rounded), values, x)
        case IsMissing():
            return _missing(x, step.missing, rounded)
        case ZeroIsMissing():
            return apply("where", apply("equal", x, 0.0), np.nan, x)
        case Function():
            mapped = function_node(step.name, x)
            return single(mapped) if narrow and mapped is not x else mapped
        case Bins():
            return Bucketize(x, ragged([step.edges for step in steps], np.inf), "right")
        case Quantile():
            return _quantile(steps, x, narrow)
        case NormalQuantile():
            return apply("minimum", apply("maximum", apply("normal_quantile", x), LEAST_NORMAL), MOST_NORMAL)
        case Power():
            return _power(steps, x)
    raise TypeError(f"no node for {type(step).__name__}")


def function_node(name: str, x: Node) -> Node:
    """Return one of `hbtvm.graph.columns.steps.UFUNCS` of a node."""
    if name == "positive":
        return x
    if name in _FACTORS:
        return apply("multiply", x, _FACTORS[name])
    return apply("absolute" if name == "fabs" else name, x)


def _quantile(steps: Sequence[Quantile], x: Node, narrow: bool) -> Node:
    """Return shares; unless quantiles are equal, both interpolations are the same."""
    at, share = ragged([step.quantiles for step in steps]), ragged([step.references for step in steps])
    result: Node = Interpolate(x, at, share)
    first = at[:, 0]
    last = np.array([step.quantiles[-1] for step in steps])
    if steps[0].ties:
        back = [-step.quantiles[::-1] for step in steps], [-step.references[::-1] for step in steps]
        other = Interpolate(apply("negative", x), ragged(back[0]), ragged(back[1]))
        result = apply("multiply", apply("subtract", result, other), 0.5)
    if narrow:
        result = apply("round_float32", result)
    margin = steps[0].margin
    if margin:
        below, above = apply("subtract", x, margin), apply("add", x, margin)
        if narrow:
            margin = float(np.float32(margin))
            below, above = (apply("round_float32", apply(name, x, margin)) for name in ("subtract", "add"))
        low, high = apply("less", below, first), apply("greater", above, last)
    elif steps[0].ties:
        low, high = apply("equal", x, first), apply("equal", x, last)
    else:
        # The shares of the ends are 0 and 1.
        return result
    return apply("where", low, 0.0, apply("where", high, 1.0, result))


def _power(steps: Sequence[Power], x: Node) -> Node:
    exponents = np.array([step.exponent for step in steps])
    if steps[0].method == "box-cox":
        logs = apply("log", x)
        return logs if not exponents.any() else _less_one(logs, constant(exponents), exponents)
    positive = apply("greater_equal", x, 0.0)
    # Numbers below 0 are mirrored, with another exponent.
    logs = apply("log1p", apply("absolute", x))
    both = np.concatenate([exponents, 2 - exponents])
    result = _less_one(logs, apply("where", positive, exponents, 2 - exponents), both)
    return apply("where", positive, result, apply("negative", result))


def _less_one(logs: Node, exponent: Node, values: np.ndarray) -> Node:
    """Return ``(exp(logs) ** exponent - 1) / exponent``, or its limit `logs`; `values`: all exponents."""
    result = apply("divide", apply("expm1", apply("multiply", logs, exponent)), exponent)
    zero = np.finfo(np.float64).eps
    if np.all(np.abs(values) > zero):
        return result
    return apply("where", apply("less_equal", apply("absolute", exponent), zero), logs, result)


def _missing(x: Node, missing: Any, rounded: Callable[[Any], np.ndarray]) -> Node:
    """Return 1 for missing numbers, else 0."""
    if missing is None:
        return apply("multiply", apply("isnan", x), 0.0)
    if not isinstance(missing, int | float) or missing != missing:
        return apply("isnan", x)
    return apply("equal", x, rounded([float(missing)]))
