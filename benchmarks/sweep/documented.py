"""Differences that docs/reference/models.md states: they count as ``more``, with the sentence."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import nan_euclidean_distances

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
    if mixture and (_WHOLE.search(title) or far.any()) and not answers.of_floats().difference():
        return "Mixtures compute for integers and float32 as for the same numbers in float64."
    if _has(model, "KernelRidge") and "float32" in title and not answers.of_floats().difference():
        return "A KernelRidge that was fitted on float32 adds up float64 numbers."
    if _of_narrow_density(answers):
        return "The density of a PCA fitted on float32 has float32's digits."
    small = _small(model, rows)
    if small.any() and not answers.among(~small).difference():
        return "A Normalizer divides float32 rows with a norm below 1.2e-6."
    if title == "NaN, all" and _has(model, "IterativeImputer"):
        return "Rows do not depend on the other rows of a call."
    same = _in_one_centre(model, rows)
    if same.any() and not answers.among(~same).difference():
        return "Distances that agree in nine digits are equal."
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
    dropped = any(hasattr(part, "get_support") and not part.get_support().any() for part in parts(model))
    if unread or marks or (dropped and ("infinity" in reason or "NaN" in reason)):
        return "Columns whose numbers do not matter are not checked."
    overflows = "infinity" in reason or "NaN" in reason
    if (
        overflows
        and title.startswith(("extreme", "huge", "large"))
        and not _has(model, "RadiusNeighborsRegressor")
    ):
        return "Values that overflow within a model are infinite there."
    if "NaN" in reason and _has(model, "RadiusNeighborsRegressor", "LabelPropagation", "LabelSpreading"):
        return "Rows without a neighbour are NaN to a stack."
    if re.match("column .*: type float", reason) and "category" in title:
        return "Data frames of selectors hold plain numbers, also of categorical columns."
    if reason == "sparse array for sparse matrix" and _has(
        model,
        "PolynomialFeatures",
        "AdditiveChi2Sampler",
        "SimpleImputer",
        "MissingIndicator",
        "SparseRandomProjection",
    ):
        return "Sparse arrays give sparse arrays."
    if reason.startswith("shape (1, ") and _has(model, "SparsePCA", "MiniBatchSparsePCA"):
        return "A SparsePCA returns a matrix for a single row, too."
    if re.match("array for (list|.*DataFrame)", reason) and _has(model, "FunctionTransformer"):
        return "A FunctionTransformer gives an array for frames and lists, too."
    return ""


def _has(model: Any, *names: str) -> bool:
    """Whether an estimator of some classes is part of a model."""
    return any(type(part).__name__ in names for part in parts(model))


def _of_narrow_density(answers: Answers) -> bool:
    """Whether scores of a PCA fitted on float32 differ as the last bits of its precision's entries tell."""
    model, rows = answers.judge.model, answers.rows
    if answers.judge.method != "score_samples" or type(model).__name__ != "PCA":
        return False
    if model.components_.dtype != np.float32:
        return False
    precision = model.get_precision().astype(np.float64)
    away = np.abs(np.asarray(rows, np.float64) - model.mean_).sum(axis=1)
    share = np.abs(precision).max() * away**2 + np.linalg.cond(precision)
    return bool((np.abs(answers.got - answers.expected) <= 4 * np.finfo(np.float32).eps * share).all())


def _small(model: Any, rows: Any) -> np.ndarray:
    """Return which float32 rows a Normalizer takes for zero or infinite, shape (n,)."""
    small = np.zeros(1, bool)
    for part in parts(model):
        if type(part).__name__ not in ("Normalizer", "TfidfTransformer"):
            continue
        X = rows
        for step in steps_before(model, part):
            X, error = compare.call(step.transform, X)
            if error is not None:
                return small
        for container in parts(model):
            for _, transformer, columns in getattr(container, "transformers_", ()):
                X = X[:, columns] if transformer is part and isinstance(X, np.ndarray) else X
        if isinstance(X, np.ndarray) and X.dtype == np.float32:
            with np.errstate(all="ignore"):
                largest = np.abs(X).max(axis=1)
            small = small | (largest < 1.2e-6) | (largest > 1e18)
    return small


def _in_one_centre(model: Any, rows: Any) -> np.ndarray:
    """Return which rows are as far from one centroid as from another, within rounding, shape (n,)."""
    same = np.zeros(1, bool)
    for part in parts(model):
        if not hasattr(part, "centroids_"):
            continue

        def squares(X: Any, part: Any = part) -> Any:
            for step in steps_before(model, part):
                X = step.transform(X)
            return np.sort(((np.asarray(X, np.float64)[:, None] - part.centroids_) ** 2).sum(2), axis=1)

        found, error = compare.call(squares, rows)
        if error is None:
            same = same | np.isclose(found[:, 1:], found[:, :-1], rtol=1e-9, atol=0.0).any(axis=1)
    return same


def _tied(model: Any, rows: Any) -> np.ndarray:
    """Return for which rows the last neighbour is as far as the next, by the model's searches, shape (n,)."""
    tied = np.zeros(1, bool)
    for part in parts(model):
        if type(part).__name__ == "KNNImputer":
            imputed, error = compare.call(partial(_tied_donors, model, part), rows)
            tied = tied if error is not None else tied | imputed
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


def _tied_donors(model: Any, imputer: Any, rows: Any) -> np.ndarray:
    """Return in which rows a KNNImputer's last donor of a missing value is as far as the next, shape (n,)."""
    X = rows
    for step in steps_before(model, imputer):
        X = step.transform(X)
    values, trained = (np.array(one, np.float64) for one in (X, imputer._fit_X))
    for one in (values, trained):
        one[one == imputer.missing_values] = np.nan
    distances = nan_euclidean_distances(values, trained)
    tied = np.zeros(len(values), bool)
    for column in range(values.shape[1]):
        known = np.sort(distances[:, ~np.isnan(trained[:, column])], axis=1)
        if known.shape[1] <= imputer.n_neighbors:
            continue
        last, following = known[:, imputer.n_neighbors - 1], known[:, imputer.n_neighbors]
        # scikit-learn computes distances by products, which keep half of the digits of near ones.
        tied |= np.isnan(values[:, column]) & np.isclose(last, following, rtol=1e-7, atol=1e-7)
    return tied
