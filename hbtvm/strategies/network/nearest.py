"""The exact k nearest of many points, filtered by approximate distances in float32.

``|x - p|**2`` is ``|x|**2 + (|p|**2 - 2 x p)``; the first part is the same for all points. The kernel
computes the second in float32, from points and rows that are centred on the points' mean and scaled by a
power of two, so that the points' largest number is about 1. It keeps the minimum of each block. A block
can contain one of the k nearest only if its minimum is at most the k-th smallest of all blocks' minima, plus
twice the largest error of an approximate distance, the *slack* (see `limits`). For such blocks the kernel
computes distances in float64, difference by difference. If float32 does not suffice (huge numbers, NaN), the
slack is infinite, and all blocks count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.network.nearest import Shape, shape_of
from hbtvm.schedules.network.plan import Plan

NEAREST = "hbtvm.nearest"
"""Name of the call for the exact part, which `hbtvm.compiler.lowering.nearest.search` replaces.

Its arguments: the first entries of a row's minima, slack and numbers, and of the points; k, points, features,
points of a block, blocks, rows of a tile, lanes of float64.
"""

SMALLEST = "hbtvm.smallest"
"""The same for stored distances or other values.

Its arguments: a row's first value; k, values, rows of a tile, lanes of float64.
"""

_ROUNDING = 2.0**-24, 2.0**-53  # largest relative errors of one operation, in float32 and float64

_TERMS = 16
"""Roundings of an approximate distance besides one for each feature: those of the row's and the point's
numbers and squares, and of the comparison; with a reserve."""

_LARGEST = 2.0**100  # sizes up to which float32 sums in any order do not overflow

_TINY = 2.0**-100
"""Upper bound of the underflow in float32, in units of the points' size."""


def arguments(plan: Plan, at: int) -> tuple[Argument, ...]:
    """Return the tables of such a distance, in argument order."""
    shape = shape_of(plan, at)
    return (
        table(f"t{at}_points", "float64", (shape.blocks * shape.features, shape.size)),
        table(f"t{at}_filter", "float32", _filter_shape(shape)),
        table(f"t{at}_center", "float64", (shape.features,)),
        table(f"t{at}_limits", "float64", (4,)),
    )


def tables(plan: Plan, at: int, points: np.ndarray) -> dict[str, np.ndarray]:
    """Return the arrays of `arguments` by name.

    `points`: float64, shape (T, F).
    """
    shape = shape_of(plan, at)
    center, scale = _frame(points)
    moved = (points - center) * scale
    with np.errstate(over="ignore"):
        norms = (moved**2).sum(axis=1)
    # The last column is the term added to the products; padding points are infinitely far away.
    near = np.zeros((shape.blocks * shape.size, shape.features + 1), np.float32)
    near[:, -1] = np.inf
    with np.errstate(over="ignore"):
        near[: len(points), :-1] = moved
        near[: len(points), -1] = norms
    exact = np.zeros((shape.blocks * shape.size, shape.features))
    exact[: len(points)] = points
    if shape.lanes:
        blocked = near.reshape(-1, shape.lanes, shape.size, shape.features + 1).transpose(0, 2, 3, 1)
    else:
        blocked = near.reshape(shape.blocks, shape.size, -1).transpose(0, 2, 1)
    largest = float(norms.max())
    return {
        f"t{at}_points": np.ascontiguousarray(
            exact.reshape(shape.blocks, shape.size, -1).transpose(0, 2, 1)
        ).reshape(-1, shape.size),
        f"t{at}_filter": np.ascontiguousarray(blocked).reshape(_filter_shape(shape)),
        f"t{at}_center": center,
        f"t{at}_limits": limits(scale, largest, shape.features),
    }


def _filter_shape(shape: Shape) -> tuple[int, int]:
    if shape.lanes:
        return shape.blocks // shape.lanes * shape.size * (shape.features + 1), shape.lanes
    return shape.blocks * (shape.features + 1), shape.size


def _frame(points: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the points' center, and the power of two that scales differences from it."""
    with np.errstate(all="ignore"):
        center = points.mean(axis=0)
        center = np.where(np.isfinite(center), center, 0.0)
        size = float(np.abs(points - center).max())
    if not 1e-100 < size < 1e100:
        # Don't scale: overflows get infinite slack.
        return center, 1.0
    return center, float(2.0 ** -np.ceil(np.log2(size)))


def limits(scale: float, largest: float, features: int) -> np.ndarray:
    """Return the coefficients of a row's slack: float64, (4,): the scale; a, b and c of a + b r + c r**2.

    With N the largest squared norm of a point, and r the norm of the row, both centred and scaled: the
    magnitudes of an approximate distance's terms sum to at most N + 2 r sqrt(N), and at most F + 16 roundings
    of 2**-24 act on any of them. The float64 distance is at most 2 (r**2 + N), with F + 16 roundings of
    2**-53. The slack is twice the sum of both errors, with another factor of two in reserve.
    """
    single, double = (4.0 * (features + _TERMS) * rounding for rounding in _ROUNDING)
    with np.errstate(over="ignore"):
        return np.array(
            [
                scale,
                _TINY + (single + 2 * double) * largest,
                2 * single * np.sqrt(largest),
                2 * double,
            ]
        )


def stages(plan: Plan, at: int, k: int, x: Any, tables: Mapping[str, Any], tiles: Any, name: str) -> Any:
    """Return the stages of a `TopK` of `Distance`.

    `at`: number of the distance.
    `x`: from tile, column and row to the row's numbers.
    `tables`: the tables, by name.
    `tiles`, `name`: number of tiles; prefix of the stages' names.
    Returns tensor, float64, shape (tiles, 2k, row_tile).
    """
    shape, rows = shape_of(plan, at), plan.row_tile
    features = shape.features
    points, near_points, center, bounds = (
        tables[f"t{at}_{table}"] for table in ("points", "filter", "center", "limits")
    )

    def stage(width: int, value: Any, part: str) -> Any:
        return te.compute((tiles, width, rows), value, name=f"{name}_{part}")

    row = stage(features, lambda i, w, r: x(i, w, r), "row")
    moved = stage(features, lambda i, w, r: (row[i, w, r] - center[w]) * bounds[0], "moved")
    f = te.reduce_axis((0, features), "f")
    square = stage(1, lambda i, w, r: te.sum(moved[i, f, r] * moved[i, f, r], axis=f), "square")

    def slack(i: Any, w: Any, r: Any) -> Any:
        size = tirx.sqrt(square[i, 0, r])
        value = bounds[1] + bounds[2] * size + bounds[3] * square[i, 0, r]
        # False if a number is NaN.
        fits = tirx.all(
            square[i, 0, r] < tirx.const(_LARGEST, "float64"), bounds[1] < tirx.const(_LARGEST, "float64")
        )
        return tirx.Select(fits, value, tirx.const(float("inf"), "float64")).astype("float32")

    room = stage(1, slack, "slack")

    def number(i: Any, w: Any, r: Any) -> Any:
        doubled = (moved[i, tirx.min(w, features - 1), r] * tirx.const(-2.0, "float64")).astype("float32")
        return tirx.if_then_else(w < features, doubled, tirx.const(1.0, "float32"))

    near = stage(features + 1, number, "near")
    f = te.reduce_axis((0, features + 1), "f")
    j = te.reduce_axis((0, shape.size), "j")
    if shape.lanes:
        groups, lanes = shape.blocks // shape.lanes, shape.lanes
        dots = te.compute(
            (tiles, groups, shape.size, lanes),
            lambda i, g, p, n: te.sum(
                near[i, f, 0] * near_points[(g * shape.size + p) * (features + 1) + f, n], axis=f
            ),
            name=f"{name}_dots",
        )
        least = te.compute(
            (tiles, groups, rows, lanes),
            lambda i, g, r, n: te.min(dots[i, g, j, n], axis=j),
            name=f"{name}_least",
        )
    else:
        dots = te.compute(
            (tiles, shape.blocks, shape.size, rows),
            lambda i, b, p, r: te.sum(near[i, f, r] * near_points[b * (features + 1) + f, p], axis=f),
            name=f"{name}_dots",
        )
        least = te.compute(
            (tiles, shape.blocks, rows),
            lambda i, b, r: te.min(dots[i, b, j, r], axis=j),
            name=f"{name}_least",
        )

    def exact(i: Any, w: Any, r: Any) -> Any:
        sizes = (k, shape.points, features, shape.size, shape.blocks, rows, plan.lanes)
        return tirx.call_pure_extern(
            "float64",
            NEAREST,
            least[i, 0, r, 0] if shape.lanes else least[i, 0, r],
            room[i, 0, r],
            row[i, 0, r],
            points[0, 0],
            *(tirx.const(size, "int32") for size in sizes),
        )

    return te.compute((tiles, 2 * k, rows), exact, name=name)


def smallest(k: int, count: int, plan: Plan, values: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Return a function from tile, column and row to the smallest of stored values.

    `values`: from tile, place and row to a value: an entry of a stage.
    """
    sizes = (k, count, plan.row_tile, plan.lanes)

    def entry(i: Any, w: Any, r: Any) -> Any:
        numbers = (tirx.const(size, "int32") for size in sizes)
        return tirx.call_pure_extern("float64", SMALLEST, values(i, 0, r), *numbers)

    return entry
