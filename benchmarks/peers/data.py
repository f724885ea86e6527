"""Synthetic data in the shapes of the sets that gradient boosting is usually measured on.

Only shapes, types and the numbers of distinct values are taken from the real sets, for these
are what the time of a prediction depends on. Targets depend on many features, with products
and noise, so that trees grow to their limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Task = Literal["binary", "regression", "classes"]


@dataclass(frozen=True)
class DataSet:
    """The shape of a data set.

    Attributes
    ----------
    features
        Columns.
    task
        What is predicted.
    train
        Rows to train on: enough for full trees, few enough to train in about a minute.
    classes
        Classes, where there are more than two.
    positive
        Share of rows of class 1, where there are two.
    bins
        Bins per feature for histogram-based training, fewer where there are many features.
    share
        Features that each tree (of scikit-learn: each node) may use, likewise.
    """

    features: int
    task: Task
    train: int
    classes: int = 2
    positive: float = 0.5
    bins: int = 255
    share: float = 1.0


SETS = {
    "fraud": DataSet(28, "binary", 50_000, positive=0.1),
    "higgs": DataSet(28, "binary", 50_000),
    "year": DataSet(90, "regression", 30_000),
    "covtype": DataSet(54, "classes", 20_000, classes=7),
    "epsilon": DataSet(2_000, "binary", 4_000, bins=63, share=0.2),
    "airline": DataSet(13, "binary", 50_000),
}

TEST_ROWS = 10_000

# Distinct values of the flights' year, month, day, weekday, departure, arrival, carrier, flight
# number, elapsed time, origin, destination, distance, diverted.
_AIRLINE = (22, 12, 31, 7, 1_440, 1_440, 29, 8_000, 600, 300, 300, 3_000, 2)


def make(name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make a data set.

    Returns
    -------
    Rows to train on, float32; their targets; and `TEST_ROWS` rows that are not among them, float32.
    """
    shape = SETS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    n = shape.train + TEST_ROWS
    X = _columns(name, n, shape.features, rng).astype(np.float32)
    Z = (X - X.mean(0)) / (X.std(0) + 1e-6)
    train = Z[: shape.train]
    y: np.ndarray
    if shape.task == "regression":
        y = (1998 + 10 * _signal(train, rng)).astype(np.float32)
    elif shape.task == "classes":
        scores = np.stack([_signal(train, rng) for _ in range(shape.classes)], axis=1)
        # The first two classes are by far the most frequent, as in the real set.
        y = np.argmax(scores + np.where(np.arange(shape.classes) < 2, 1.0, 0.0), axis=1).astype(np.int32)
    else:
        signal = _signal(train, rng)
        y = (signal > np.quantile(signal, 1 - shape.positive)).astype(np.int32)
    return X[: shape.train], y, np.ascontiguousarray(X[shape.train :])


def _columns(name: str, n: int, features: int, rng: np.random.Generator) -> np.ndarray:
    if name == "fraud":
        return np.asarray(rng.normal(size=(n, features)) * np.linspace(2, 0.3, features))
    if name == "higgs":
        X = rng.normal(size=(n, features))
        X[:, ::3] = np.exp(0.5 * X[:, ::3])
        return np.asarray(X)
    if name == "year":
        return np.asarray(rng.standard_t(5, size=(n, features)) * np.geomspace(5, 500, features))
    if name == "covtype":
        numbers = np.rint(rng.normal(size=(n, 10)) * 300 + 1_000)
        areas = np.eye(4)[rng.integers(4, size=n)]
        soils = np.eye(40)[np.minimum(rng.geometric(0.08, size=n) - 1, 39)]
        return np.hstack([numbers, areas, soils])
    if name == "epsilon":
        X = rng.normal(size=(n, features))
        return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))
    return np.stack([rng.integers(values, size=n) for values in _AIRLINE], axis=1).astype(np.float64)


def _signal(Z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of about unit variance, from standardised columns: a linear part, products, a wave, and noise."""
    features = Z.shape[1]
    weights = rng.normal(size=features) / np.sqrt(features)
    left, right = rng.integers(features, size=(2, 8))
    products = (Z[:, left] * Z[:, right]).sum(1) / np.sqrt(8)
    wave = np.sin(3 * Z[:, rng.integers(features)]) * Z[:, rng.integers(features)]
    return np.asarray(0.7 * (Z @ weights) + 0.5 * products + 0.5 * wave + 0.5 * rng.normal(size=len(Z)))
