"""``SplineTransformer``: B-splines as polynomials between knots.

Each column of numbers becomes several: the splines' values. Between two knots a spline is a polynomial, whose
coefficients are taken around the knot on the left, where they lose no digits. So a kernel looks up the
interval that a number is in, the interval's coefficients for each spline, and adds up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hbtvm.frontends.pickles import Record
from hbtvm.frontends.pickles.records import as_array
from hbtvm.frontends.sklearn.common import one_of
from hbtvm.frontends.transformers.dispatch import names_in, require_width
from hbtvm.frontends.transformers.projections.matrices import computed
from hbtvm.frontends.transformers.typed import accepting, unified
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Within
from hbtvm.graph.columns.table import Table
from hbtvm.graph.networks.network import TableRows
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import Repeat, select
from hbtvm.operators.tables import Bucketize, lookup, ragged

_MOST_DEGREE = 32

# Periods that numbers of a periodic spline may be away: the rest of the division keeps 29 bits.
_MOST_PERIODS = 2.0**24


@dataclass(frozen=True)
class _Pieces:
    """Polynomials of one column."""

    starts: np.ndarray  # float64, shape (I - 1,): starts of intervals, without the first
    origins: np.ndarray  # float64, shape (I,): numbers around which polynomials are expanded
    coefficients: np.ndarray  # float64, shape (I, D + 1, S): of each spline, the constant first


def spline(record: Record, table: Table, where: Where) -> Table:
    """Read ``SplineTransformer``."""
    where.refuse_sparse(table, "takes no sparse rows in scikit-learn")
    modes = ("error", "constant", "linear", "continue", "periodic")
    mode = one_of(record, "extrapolation", modes)
    missing = record.get("handle_missing", "error") == "zeros"
    knots = [_Knots.of(spline_record, where) for spline_record in record.records("bsplines_")]
    splines = knots[0].weights.shape[1] if knots else 0
    if len(knots) != len(table) or any(knots_of.weights.shape[1] != splines for knots_of in knots):
        raise where.damaged(f"it has splines of {len(knots)} columns, but gets {len(table)}.")
    require_width(len(table) * splines, where)
    inputs = accepting(unified(table), nan=missing)
    if mode == "error":
        # Numbers beyond the knots become missing, which is refused.
        within = [Within(column_knots.low, column_knots.high) for column_knots in knots]
        columns = tuple(column.then(step) for column, step in zip(inputs.columns, within, strict=True))
        inputs = Table(columns, inputs.sparse, inputs.names)
    if mode == "periodic" and not missing:
        # Further away, the rest of a division by the period keeps too few digits.
        reach = [
            (column_knots.low, _MOST_PERIODS * (column_knots.high - column_knots.low))
            for column_knots in knots
        ]
        near = [Within(low - most, low + most) if most else None for low, most in reach]
        columns = tuple(
            column if step is None else column.then(step)
            for column, step in zip(inputs.columns, near, strict=True)
        )
        inputs = Table(columns, inputs.sparse, inputs.names)
    rows = TableRows(inputs, allow_nan=missing)
    x: Node = rows
    if mode == "periodic":
        x = _into_period(x, knots)
    values = _polynomials(x, _pieces(knots, mode))
    if missing:
        values = apply("where", Repeat(apply("isnan", rows), splines), 0.0, values)
    kept = list(range(values.width))
    if not record.get("include_bias", True):
        kept = [i for i in kept if (i + 1) % splines]
    if not kept:
        raise where.unsupported("keeps no column, so there is nothing to compute.")
    names = names_in(record, table)
    named = None if names is None else tuple(f"{names[i // splines]}_sp_{i % splines}" for i in kept)
    # Of sparse results, scipy makes float64.
    sparse = bool(record.get("sparse_output", False))
    outputs = computed(inputs, rows, select(values, kept), "", narrow=not sparse)
    return Table(outputs.columns, sparse, named)


@dataclass(frozen=True)
class _Knots:
    """A spline of scipy's."""

    at: np.ndarray  # float64, shape (n + degree + 1,): knots, ascending
    weights: np.ndarray  # float64, shape (n, S): of n basis functions for each of the S splines
    degree: int  # of the polynomials

    @classmethod
    def of(cls, record: Record, where: Where) -> _Knots:
        """Read scipy's ``BSpline``."""
        # scipy 1.17 put an underscore in front.
        parts = [record.get(f"_{name}") if f"_{name}" in record else record.get(name) for name in ("t", "c")]
        at = as_array(parts[0], f"the knots of {where.step}", "f", 1).astype(np.float64)
        weights = as_array(parts[1], f"the weights of {where.step}", "f", 2).astype(np.float64)
        degree = record.whole("k")
        if degree > _MOST_DEGREE:
            raise where.unsupported(f"has the degree {degree}; at most {_MOST_DEGREE} is supported.")
        if not np.isfinite(at).all() or not np.isfinite(weights).all() or np.any(at[1:] < at[:-1]):
            raise where.damaged("its knots don't ascend.")
        if len(at) != len(weights) + degree + 1 or len(weights) <= degree or not weights.size:
            raise where.damaged(f"it has {len(at)} knots and {len(weights)} functions.")
        return cls(at, weights, degree)

    @property
    def low(self) -> float:
        """The lowest number within the training knots."""
        return float(self.at[self.degree])

    @property
    def high(self) -> float:
        """The highest number within the training knots."""
        return float(self.at[len(self.weights)])

    def pieces(self) -> _Pieces:
        """Return the polynomials between `low` and `high`, which extend beyond both.

        As scipy does, numbers below `low` take the first interval and those from `high` on the last, also
        where knots are equal and the interval is empty: its polynomials are zeros.
        """
        t, first, last = self.at, self.degree, len(self.weights) - 1
        inner = [m for m in range(first, last + 1) if m in (first, last) or t[m] < t[m + 1]]
        coefficients = np.stack([self._basis(m) @ self.weights for m in inner])
        # An empty first interval ends where the next begins; an empty last interval begins at `high`.
        return _Pieces(t[inner[1:]], t[inner], coefficients)

    def _basis(self, m: int) -> np.ndarray:
        """The basis functions between knots m and m + 1, shape (degree + 1, n): polynomials around knot m.

        By their recursion over degrees (de Boor, Cox).
        """
        t, n = self.at, len(self.at) - 1
        result = np.zeros((self.degree + 1, n))
        result[0, m] = 1.0
        for degree in range(1, self.degree + 1):
            before, result = result, np.zeros_like(result)
            for i in range(max(0, m - degree), min(m + 1, n - degree)):
                for j, sign, from_knot in ((i, 1.0, t[i]), (i + 1, -1.0, t[i + degree + 1])):
                    span = t[j + degree] - t[j]
                    if span > 0 and before[:, j].any():
                        share = before[:, j] * (sign / span)
                        result[:, i] += share * (t[m] - from_knot)
                        result[1:, i] += share[:-1]
        return result[:, : len(self.weights)]


def _pieces(knots: list[_Knots], mode: str) -> list[_Pieces]:
    if mode not in ("constant", "linear"):
        return [column_knots.pieces() for column_knots in knots]
    result = []
    degree = knots[0].degree
    for column_knots in knots:
        # As in scikit-learn: lines need a degree of at least 1, which stays raised afterwards.
        low, high = float(column_knots.at[degree]), float(column_knots.at[-degree - 1])
        if mode == "linear" and degree <= 1:
            degree += 1
        result.append(_extended(column_knots.pieces(), low, high, degree, mode == "linear"))
    return result


def _extended(inner: _Pieces, low: float, high: float, degree: int, lines: bool) -> _Pieces:
    """With levels or lines below `low` and above `high`, of the first and last `degree` splines only."""
    _, powers, splines = inner.coefficients.shape
    at = np.searchsorted(inner.starts, [low, high], side="right")
    outer = np.zeros((2, max(powers, 2), splines))
    for side, (interval, end) in enumerate(zip(at, (low, high), strict=True)):
        value, slope = _value_and_slope(inner.coefficients[interval], end - inner.origins[interval])
        near = slice(0, degree) if side == 0 else slice(max(0, splines - degree), splines)
        outer[side, 0, near] = value[near]
        if lines:
            outer[side, 1, near] = slope[near]
    padded = np.zeros((len(inner.origins), outer.shape[1], splines))
    padded[:, :powers] = inner.coefficients
    keep = slice(int(at[0]), int(at[1]) + 1)
    starts = inner.starts[int(at[0]) : int(at[1])]
    # At `high` itself the level has exact zeros, where a polynomial's terms cancel but for rounding. Splines
    # of degree 0 have no level.
    above = high if low < high and degree else np.nextafter(high, np.inf)
    return _Pieces(
        np.concatenate([[low], starts, [above]]),
        np.concatenate([[low], inner.origins[keep], [high]]),
        np.concatenate([outer[:1], padded[keep], outer[1:]]),
    )


def _value_and_slope(coefficients: np.ndarray, x: float) -> tuple[np.ndarray, np.ndarray]:
    value, slope = np.zeros(coefficients.shape[1]), np.zeros(coefficients.shape[1])
    for coefficient in coefficients[::-1]:
        slope = slope * x + value
        value = value * x + coefficient
    return value, slope


def _into_period(x: Node, knots: list[_Knots]) -> Node:
    """Return numbers moved by whole periods to between `low` and `high`."""
    low = np.array([column_knots.low for column_knots in knots])
    period = np.array([column_knots.high - column_knots.low for column_knots in knots])
    away = apply("subtract", x, low)
    rest = apply("subtract", away, apply("multiply", apply("floor", apply("divide", away, period)), period))
    # Where the quotient was rounded up to a whole number, the rest is below 0.
    rest = apply("where", apply("less", rest, 0.0), apply("add", rest, period), rest)
    # Columns of a single value in training have no period.
    return apply("where", period > 0, apply("add", rest, low), 0.0)


def _polynomials(x: Node, pieces: list[_Pieces]) -> Node:
    """Return the splines of each column, side by side."""
    splines, powers = pieces[0].coefficients.shape[2], pieces[0].coefficients.shape[1]
    interval = Bucketize(x, ragged([piece.starts for piece in pieces], np.inf), "right")
    columns = range(len(pieces))
    away = Repeat(
        apply("subtract", x, lookup(interval, columns, [piece.origins for piece in pieces])), splines
    )
    wide = [i for i in columns for _ in range(splines)]
    result: Node | None = None
    for power in reversed(range(powers)):
        tables = [piece.coefficients[:, power, s] for piece in pieces for s in range(splines)]
        term = lookup(interval, wide, tables)
        result = term if result is None else apply("add", apply("multiply", result, away), term)
    assert result is not None
    return result
