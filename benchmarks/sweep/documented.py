"""Differences that docs/reference/models.md states: they count as ``more``, with the sentence."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from benchmarks.sweep import compare
from benchmarks.sweep.edges import has_trees, parts, steps_before
from benchmarks.sweep.judge import Answers, far_rows

_TOO_LARGE = re.compile("the library raises ValueError: Input.*too large for dtype")

_WHOLE = re.compile("int|bool|Int64|integers|category")
"""Names of rows that are whole numbers."""


def sentence(answers: Answers, reason: str) -> str:
    """Return the sentence that states why answers differ; empty if there is none.

    Parameters
    ----------
    reason
        How they differ, or what the library says where it raises.
    """
    model, title, rows = answers.judge.model, answers.title, answers.rows
    if not reason.startswith(("[", "type float")):
        return _of_containers(model, title, reason)
    far = far_rows(rows)
    if far.any() and not has_trees(model) and not answers.of_finite().difference():
        return "Values that overflow within a model are infinite there."
    overflow = _overflows(rows)
    if overflow.any() and not has_trees(model) and not answers.among(~overflow).difference():
        return "Values that overflow within a model are infinite there."
    if "float16" in title and not answers.of_floats().difference():
        return "float16 rows are computed, and returned, in float32 or float64."
    if reason.endswith(" for object") and "pandas, Float" in title:
        return "Nullable columns are plain numbers."
    if reason.startswith("type float"):
        keeps = _WHOLE.search(title) and _has(model, "FunctionTransformer")
        return "A FunctionTransformer gives float64 where its function leaves integers." if keeps else ""
    mixture = _has(model, "GaussianMixture", "BayesianGaussianMixture")
    if mixture and _WHOLE.search(title) and not answers.of_floats().difference():
        return "Mixtures compute for integers as for the same numbers in float64."
    small = _small(model, rows)
    if small.any() and not answers.among(~small).difference():
        return "A Normalizer divides float32 rows with a norm below 1.2e-6."
    tied = _tied(model, rows)
    if tied.any() and not answers.among(~tied).difference():
        return "Of tied neighbours, those that come first are taken."
    return ""


def _overflows(rows: Any) -> np.ndarray:
    """Return in which rows a square overflows, shape (n,)."""
    if not isinstance(rows, np.ndarray) or rows.dtype.kind != "f" or not rows.size:
        return np.zeros(1, bool)
    with np.errstate(all="ignore"):
        huge = np.isinf(rows * rows) & np.isfinite(rows)
    return np.asarray(huge.reshape(len(rows), -1).any(axis=1))


def _of_containers(model: Any, title: str, reason: str) -> str:
    """As `sentence`, of errors of the library, and of containers."""
    if _TOO_LARGE.search(reason) and title.startswith("extreme"):
        return "Values that overflow within a model are infinite there."
    if "Negative values" in reason and title.startswith(("extreme", "huge")) and _has(model, "CategoricalNB"):
        return "Values that overflow within a model are infinite there."
    unread = _has(model, "DummyClassifier", "DummyRegressor") and "infinity" in reason
    marks = _has(model, "MissingIndicator") and (
        "infinity" in reason or "missing values in transform" in reason
    )
    if unread or marks:
        return "Columns whose numbers do not matter are not checked."
    if "infinity" in reason and title.startswith(("extreme", "huge", "large")):
        return "Values that overflow within a model are infinite there."
    if reason == "sparse array for sparse matrix" and _has(
        model, "PolynomialFeatures", "AdditiveChi2Sampler", "SimpleImputer", "MissingIndicator"
    ):
        return "Sparse arrays give sparse arrays."
    if re.match("array for (list|.*DataFrame)", reason) and _has(model, "FunctionTransformer"):
        return "A FunctionTransformer gives an array for frames and lists, too."
    return ""


def _has(model: Any, *names: str) -> bool:
    """Whether an estimator of some classes is part of a model."""
    return any(type(part).__name__ in names for part in parts(model))


def _small(model: Any, rows: Any) -> np.ndarray:
    """Return which float32 rows a Normalizer takes for zero or infinite, shape (n,)."""
    small = np.zeros(1, bool)
    for part in parts(model):
        if type(part).__name__ != "Normalizer":
            continue
        X = rows
        for step in steps_before(model, part):
            X, error = compare.call(step.transform, X)
            if error is not None:
                return small
        if isinstance(X, np.ndarray) and X.dtype == np.float32:
            with np.errstate(all="ignore"):
                largest = np.abs(X).max(axis=1)
            small = small | (largest < 1.2e-6) | (largest > 1e18)
    return small


def _tied(model: Any, rows: Any) -> np.ndarray:
    """Return for which rows the last neighbour is as far as the next, by the model's searches, shape (n,)."""
    tied = np.zeros(1, bool)
    for part in parts(model):
        if not hasattr(part, "kneighbors") or not hasattr(part, "n_neighbors"):
            continue

        def search(X: Any, part: Any = part) -> Any:
            for step in steps_before(model, part):
                X = step.transform(X)
            return part.kneighbors(X, part.n_neighbors + 1)[0]

        distances, error = compare.call(search, rows)
        if error is None:
            tied = tied | np.isclose(distances[:, -2], distances[:, -1], rtol=1e-12, atol=0.0)
    return tied
