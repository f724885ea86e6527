"""Training data by kind, and the target that a class is fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

FEATURES = 4
ROWS = 60
NAMES = ("a", "b", "c", "d")

_WORDS = ("apple", "Banana", "cat", "the", "über", "x1", "dog", "a", "naïve", "42")
_CITIES = ("Rome", "Oslo", "Bonn", "Lima")


@dataclass(frozen=True)
class Training:
    """What a model is fitted on.

    Attributes
    ----------
    X
        Rows, in the container that the setting asks for.
    y
        Target; None without.
    kind
        ``"numbers"``, ``"positive"``, ``"column"``, ``"categories"``, ``"texts"``, ``"dicts"``, ``"labels"``
        or ``"sets"``.
    plain
        The rows of kinds of numbers as float64, shape (`ROWS`, columns); else None.
    """

    X: Any
    y: Any
    kind: str
    plain: np.ndarray | None


def numbers(rng: np.random.Generator, rows: int, *, integers: bool, positive: bool) -> np.ndarray:
    """Return float64 rows, shape (rows, `FEATURES`): whole numbers that int8 holds if `integers`."""
    if integers:
        return rng.integers(0 if positive else -6, 10, (rows, FEATURES)).astype(np.float64)
    X = rng.normal(size=(rows, FEATURES)) * (1.0, 3.0, 0.5, 10.0) + (0.0, 1.0, -0.5, 2.0)
    return np.abs(X) if positive else X


def training(kind: str, target: str, container: str, rng: np.random.Generator) -> Training:
    """Draw the data of one setting.

    Parameters
    ----------
    kind
        See `Training`.
    target
        See `_target`.
    container
        ``"float64"``, ``"float32"``, ``"int64"``, ``"frame"`` (mixed types), ``"csr"``, ``"missing"``.
    """
    if kind in ("texts", "dicts", "labels", "sets", "categories"):
        drawn = _OTHERS[kind](rng, ROWS)
        y = _target(target, rng.normal(size=(ROWS, FEATURES)), rng)
        return Training(frame_of_categories(drawn) if container == "frame" else drawn, y, kind, None)
    plain = numbers(rng, ROWS, integers=container == "int64", positive=kind == "positive")
    if kind == "column":
        plain = plain[:, 0]
    if container == "csr":
        plain[rng.random(plain.shape) < 0.4] = 0
    if container == "frame":
        plain[:, 1:3] = np.round(plain[:, 1:3])
    y = _target(target, plain.reshape(ROWS, -1), rng)
    X: Any = plain
    if container == "missing":
        plain[rng.random(plain.shape) < 0.2] = np.nan
    elif container == "csr":
        X = sparse.csr_array(plain)
    elif container == "frame":
        X = pd.DataFrame(plain, columns=list(NAMES)).astype({"b": np.int64, "c": np.int16})
    else:
        X = plain.astype(container)
    return Training(X, y, kind, plain)


def _target(name: str, X: np.ndarray, rng: np.random.Generator) -> Any:
    """Return a target that depends on rows of numbers.

    ``"classes"`` (three words), ``"binary"`` (integers), ``"number"``, ``"positive"``, ``"numbers"`` (two
    columns), ``"multilabel"``, ``"multiclass"`` (two columns of classes) or ``""`` (None).
    """
    X = np.nan_to_num(X)
    signal = X[:, 0] + 0.5 * X[:, -1] + rng.normal(size=len(X)) * 0.3
    order = np.argsort(np.argsort(signal))
    classes = order * 3 // len(X)
    other = (X.sum(1) + rng.normal(size=len(X)) > np.median(X.sum(1))).astype(np.int64)
    return {
        "": None,
        "classes": np.array(["no", "perhaps", "yes"])[classes],
        "binary": (order * 2 // len(X)).astype(np.int64) * 3 + 1,
        "number": signal,
        "positive": np.abs(signal) + 0.1,
        "numbers": np.stack([signal, other - signal**2], axis=1),
        "multilabel": np.stack([order * 2 // len(X), other], axis=1),
        "multiclass": np.stack([classes, other], axis=1),
    }[name]


def frame_of_categories(X: np.ndarray) -> pd.DataFrame:
    """Return columns of categories as a frame with a text column, a category column and a number column."""
    frame = pd.DataFrame(X, columns=["city", "size"])
    return frame.astype({"city": "str", "size": "category"})


def categories(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return object rows of texts, shape (rows, 2)."""
    cities = rng.choice(np.array(_CITIES, object), rows)
    sizes = rng.choice(np.array(["big", "small", "tiny"], object), rows)
    return np.stack([cities, sizes], axis=1)


def texts(rng: np.random.Generator, rows: int) -> list[str]:
    """Return texts of some words."""
    return [" ".join(rng.choice(_WORDS, rng.integers(1, 9))) for _ in range(rows)]


def dicts(rng: np.random.Generator, rows: int) -> list[dict[str, Any]]:
    """Return rows by name: numbers and texts, some absent."""
    result = []
    for _ in range(rows):
        row: dict[str, Any] = {"n": float(np.round(rng.normal(), 3)), "city": str(rng.choice(_CITIES))}
        if rng.random() < 0.5:
            row["m"] = int(rng.integers(0, 9))
        result.append(row)
    return result


def labels(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Return labels, shape (rows,)."""
    return np.asarray(rng.choice(_CITIES, rows))


def sets(rng: np.random.Generator, rows: int) -> list[tuple[str, ...]]:
    """Return sets of labels."""
    return [tuple(city for city in _CITIES if rng.random() < 0.5) for _ in range(rows)]


_OTHERS: dict[str, Any] = {
    "categories": categories,
    "texts": texts,
    "dicts": dicts,
    "labels": labels,
    "sets": sets,
}
