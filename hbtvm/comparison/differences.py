"""Differences between an output of a package and the library's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from hbtvm.comparison.result import Agreement, Example

_SHOWN = 5  # rows that differ that are shown
_CELLS = 4_000_000  # values that are compared at a time, which bounds the memory for sparse results
_LEFT = 1e-2  # share of the whole result's largest number that a column's largest counts as, at least


def agreement(output: str, expected: Any, got: Any, tolerance: float, ties: np.ndarray | None) -> Agreement:
    """Compare an output row by row.

    `expected`, `got`: results of the library and of the package: arrays, lists of arrays (several targets),
        sparse matrices or data frames.
    `tolerance`: largest difference of numbers, relative to their column's largest.
    `ties`: rows whose best labels have the same score in the library, bool, shape (n,); None if unknown.
    """
    expected, got = _matrix(expected), _matrix(got)
    rows = len(got) if isinstance(got, np.ndarray) else got.shape[0]
    if expected.shape != got.shape:
        shapes = f"the library's shape is {expected.shape}, the package's {got.shape}"
        return Agreement(output, rows, 0, problem=shapes)
    numeric = _are_numbers(expected, got)
    scale = _scale(expected) if numeric else None
    largest, equal, tied = 0.0, 0, 0
    examples: list[Example] = []
    for start, theirs, ours in _blocks(expected, got):
        off = _off(theirs, ours, scale)
        wrong = off > (tolerance if numeric else 0)
        differ: np.ndarray = np.any(wrong, axis=1)
        if ties is not None and not numeric:
            forgiven = differ & ties[start : start + len(differ)]
            tied += int(forgiven.sum())
            differ &= ~forgiven
        equal += int((~differ).sum())
        largest = max(largest, float(off.max(initial=0.0)))
        for row in np.flatnonzero(differ)[: _SHOWN - len(examples)].tolist():
            at = int(off[row].argmax())
            column = at if off.shape[1] > 1 else None
            examples.append(Example(start + row, column, _plain(theirs[row, at]), _plain(ours[row, at])))
    return Agreement(output, rows, equal, tied, largest if numeric else None, tuple(examples))


def ties_of(scores: Any, tolerance: float) -> np.ndarray | None:
    """Return the rows whose best two scores agree within the tolerance; bool, shape (n,).

    `scores`: the library's probabilities, shape (n, classes), or decision function, shape (n,) or (n,
        classes).
    Returns None for several targets.
    """
    if not isinstance(scores, np.ndarray) or scores.ndim > 2 or scores.dtype.kind != "f" or not scores.size:
        return None
    values = scores.astype(np.float64)
    if values.ndim == 2 and values.shape[1] > 1:
        best = np.partition(values, -2, axis=1)[:, -2:]
        gaps = best[:, 1] - best[:, 0]
    else:
        gaps = np.abs(values.reshape(len(values)))
    ties: np.ndarray = gaps <= 2 * tolerance * np.nanmax(np.abs(values), initial=0.0)
    return ties


def _matrix(value: Any) -> Any:
    """Return a result as an array or a sparse matrix, shape (n, columns)."""
    if isinstance(value, list):
        if value and all(isinstance(part, np.ndarray) for part in value):
            return np.concatenate([_matrix(part) for part in value], axis=1)
        value = np.asarray(value)
    if hasattr(value, "tocsr"):
        return value.tocsr()
    array = value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)
    array = np.asarray(array)
    if array.dtype == object:
        with contextlib.suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    return array.reshape(len(array), -1)


def _are_numbers(expected: Any, got: Any) -> bool:
    """Return whether results are compared as numbers: either has floats, and both are numeric."""
    kinds = {expected.dtype.kind, got.dtype.kind}
    return "f" in kinds and kinds <= set("fiub")


def _scale(expected: Any) -> np.ndarray:
    """Return what differences are relative to: each column's largest finite number, shape (columns,)."""
    if isinstance(expected, np.ndarray):
        sizes = np.abs(expected.astype(np.float64))
        largest = np.max(np.where(np.isfinite(sizes), sizes, 0.0), axis=0, initial=0.0)
    else:
        largest = abs(expected).max(axis=0).toarray()[0].astype(np.float64)
        largest[~np.isfinite(largest)] = 0.0
    scale: np.ndarray = np.maximum(largest, max(_LEFT * largest.max(initial=0.0), np.finfo(np.float32).tiny))
    return scale


def _blocks(expected: Any, got: Any) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield blocks of rows: the first row's number, and both results as dense arrays."""
    rows, columns = expected.shape
    step = max(1, _CELLS // max(columns, 1))
    for start in range(0, rows, step):
        parts = (value[start : start + step] for value in (expected, got))
        theirs, ours = (part if isinstance(part, np.ndarray) else part.toarray() for part in parts)
        yield start, theirs, ours


def _off(expected: np.ndarray, got: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
    """Return differences, float64, shape (n, columns): relative to `scale`; without it, 1 or 0."""
    if scale is None:
        missing = (expected != expected) & (got != got)
        return np.asarray((expected != got) & ~missing, dtype=np.float64)
    theirs, ours = expected.astype(np.float64), got.astype(np.float64)
    same = (theirs == ours) | (np.isnan(theirs) & np.isnan(ours))
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(ours - theirs) / scale
    return np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
