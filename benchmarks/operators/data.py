"""Rows and targets that operators are fitted on and predict."""

from __future__ import annotations

import functools

import numpy as np

from benchmarks.pipelines import data as frames


def numbers(
    rows: int, dtype: str = "float64", *, features: int = 20, missing: float = 0.0, seed: int = 1
) -> np.ndarray:
    """Standard normal numbers, some of them NaN."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, features))
    if missing:
        values[rng.random(values.shape) < missing] = np.nan
    return values.astype(dtype)


def counts(rows: int, dtype: str = "float64", *, features: int = 20) -> np.ndarray:
    """Numbers of at least zero, of one decimal place."""
    return np.abs(numbers(rows, features=features)).round(1).astype(dtype)


def integers(rows: int, dtype: str = "float64", *, features: int = 5, values: int = 20) -> np.ndarray:
    """Whole numbers from 0, as many different ones."""
    return np.random.default_rng(1).integers(0, values, (rows, features)).astype(dtype)


def labels(rows: np.ndarray, classes: int) -> np.ndarray:
    """A class from 0 for each row of numbers, by noisy linear scores."""
    weights = np.random.default_rng(0).standard_normal((rows.shape[1], classes))
    noise = np.random.default_rng(7).gumbel(size=(len(rows), classes))
    found: np.ndarray = (np.nan_to_num(rows) @ weights + 2 * noise).argmax(1)
    return found


def target(rows: np.ndarray) -> np.ndarray:
    """A number for each row of numbers, linear with noise."""
    weights = np.random.default_rng(0).standard_normal(rows.shape[1])
    found: np.ndarray = rows @ weights + np.random.default_rng(7).standard_normal(len(rows))
    return found


@functools.cache
def _vocabulary(count: int) -> np.ndarray:
    return np.array(frames.words(count), object)


def categories(rows: int, dtype: str = "", *, columns: int = 5, each: int = 20) -> np.ndarray:
    """Strings, shape (rows, columns), of so many categories in each column."""
    rng = np.random.default_rng(3)
    known = _vocabulary(columns * each).reshape(columns, each)
    return np.stack([one[rng.integers(0, each, rows)] for one in known], 1)


def column(rows: int, dtype: str = "", *, each: int = 100) -> np.ndarray:
    """Strings, shape (rows,), of so many categories."""
    return categories(rows, columns=1, each=each)[:, 0]


def texts(rows: int, dtype: str = "") -> np.ndarray:
    """Texts, shape (rows,), of 20 words out of 5,000."""
    found: np.ndarray = frames.texts(rows).to_numpy(object)
    return found
