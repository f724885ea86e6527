"""How an answer of hbtvm is judged by the library's answer for the same rows."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from hbtvm.errors import HbtvmError

AGREE, REFUSED, BOTH_RAISE, MORE, WRONG = "agree", "refused", "both raise", "more", "wrong"
"""Verdicts. ``more``: hbtvm answers where the library raises, though not because of the
rows' values; or it differs as docs/reference/models.md states."""

METHODS = ("predict", "predict_proba", "decision_function", "score_samples", "transform")

_ABOUT_VALUES = re.compile(
    r"NaN|[Ii]nfinity|too large|[Nn]egative|features|unknown|unseen|outside|out of range|sample\(s\)|at least"
)
"""Errors of the library that reject the values or the shape of the rows."""

_RTOL = {"float32": 1e-5, "float16": 2e-3}
"""Tolerance by the type of the library's answer, if it computes in less than float64."""

Verdict = tuple[str, str]
"""One of the verdicts, and why: empty for ``agree``."""


def call(function: Callable[[Any], Any], rows: Any) -> tuple[Any, Exception | None]:
    """Return a function's answer, or the exception that it raised."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(rows), None
        except Exception as error:
            return None, error


def judge(error: Exception | None, refusal: Exception | None) -> Verdict:
    """Return the verdict on a call that the library (`error`) or hbtvm (`refusal`) rejected."""
    if refusal is not None and not isinstance(refusal, HbtvmError):
        return WRONG, f"crash: {type(refusal).__name__}: {_short(refusal)}"
    if error is None:
        return REFUSED, _short(refusal)
    if refusal is not None:
        return BOTH_RAISE, ""
    what = f"answers; the library raises {type(error).__name__}: {_short(error)}"
    about_values = _ABOUT_VALUES.search(str(error)) and "sparse" not in str(error)
    return (WRONG if about_values else MORE), what


def difference(
    got: Any, expected: Any, rtol: float, scale: float, *, finite: bool = False, least: float = 0.0
) -> str:
    """Say how an answer differs from the one expected.

    Parameters
    ----------
    got, expected
        Arrays, sparse matrices, frames, or lists of arrays.
    rtol
        Tolerance of numbers, relative to the number, or to `scale` times a column's largest one.
    finite
        Whether to compare only numbers that are finite in the library's answer.
    least
        What numbers are a difference of, at least: their rounding errors are relative to it.

    Returns
    -------
    Empty if there is no difference.
    """
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return f"{_container(got)} for {_container(expected)}"
        pairs = zip(got, expected, strict=True)
        return next(
            filter(None, (difference(a, b, rtol, scale, finite=finite, least=least) for a, b in pairs)), ""
        )
    if _container(got) != _container(expected):
        return f"{_container(got)} for {_container(expected)}"
    if hasattr(expected, "columns"):
        return _of_frames(got, expected, rtol, scale)
    if sparse.issparse(expected):
        got, expected = got.toarray(), expected.toarray()
    if got.shape != expected.shape:
        return f"shape {got.shape} for {expected.shape}"
    if expected.dtype == object and got.dtype.kind == "f":
        expected = _numbers(expected)
    if got.dtype.kind != expected.dtype.kind:
        return f"type {got.dtype} for {expected.dtype}"
    if expected.dtype.kind != "f":
        apart = np.asarray(got != expected)
        return _first(apart, got, expected) if apart.any() else ""
    rtol = max(rtol, _RTOL.get(expected.dtype.name, 0.0))
    a, b = got.astype(np.float64), expected.astype(np.float64)
    bounded = np.isfinite(b)
    numbers = np.abs(np.where(bounded, b, 0))
    # Numbers near 0 beside large ones may be what their rounding left.
    left, underflow = (1e-2, 1e-37) if rtol >= _RTOL["float32"] else (1e-9, 1e-300)
    largest = np.maximum(scale * np.max(numbers, axis=0, initial=least), left * np.max(numbers, initial=0.0))
    with np.errstate(all="ignore"):
        close = np.abs(a - b) <= rtol * np.maximum(np.abs(b), largest) + underflow
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | (close & bounded)
    if finite:
        same |= ~bounded
    return "" if same.all() else _first(~same, got, expected)


def _numbers(values: np.ndarray) -> np.ndarray:
    """Numbers in an array of objects as float64; the array itself where there are other objects."""
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return values


def rows_apart(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return which rows have other labels, shape (n,)."""
    return np.asarray(np.asarray(got != expected).reshape(len(expected), -1).any(axis=1))


def take(value: Any, some: np.ndarray) -> Any:
    """Return some rows, by a mask of shape (n,), of arrays, matrices, frames, or each of a list of arrays."""
    if isinstance(value, list):
        if value and isinstance(value[0], np.ndarray):
            return [take(one, some) for one in value]
        return [row for row, wanted in zip(value, some, strict=True) if wanted]
    if sparse.issparse(value):
        return value.tocsr()[some]
    return value.filter(some) if hasattr(value, "filter") and not hasattr(value, "iloc") else value[some]


def _of_frames(got: Any, expected: Any, rtol: float, scale: float) -> str:
    """As `difference`, of frames of pandas or polars."""
    if list(got.columns) != list(expected.columns):
        return f"columns {list(got.columns)[:4]} for {list(expected.columns)[:4]}"
    if hasattr(expected, "index") and list(got.index) != list(expected.index):
        return "another index"
    for name in expected.columns:
        told = difference(np.asarray(got[name]), np.asarray(expected[name]), rtol, scale)
        if told:
            return f"column {name}: {told}"
    return ""


def _container(value: Any) -> str:
    """Name what holds an answer, as far as callers have to know it."""
    if sparse.issparse(value):
        return "sparse matrix" if isinstance(value, sparse.spmatrix) else "sparse array"
    if isinstance(value, np.ndarray):
        return "array"
    if isinstance(value, list):
        return f"list of {len(value)}"
    return f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"


def _first(apart: np.ndarray, got: np.ndarray, expected: np.ndarray) -> str:
    """Name the first of the numbers or labels that differ."""
    places = np.argwhere(apart)
    at = tuple(int(index) for index in places[0])
    shown = ", ".join(map(str, at))
    return f"[{shown}] is {got[at]!r} for {expected[at]!r} ({len(places)} of {apart.size} differ)"


def _short(error: Exception | None) -> str:
    """An error's text on one line."""
    return " ".join(str(error).split())[:240]
