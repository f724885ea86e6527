"""The pipelines that are compared: how each is trained, and the rows that it predicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.pipelines import training
from benchmarks.pipelines.data import adult, repeated, strings, texts, wide


@dataclass(frozen=True)
class Case:
    """A pipeline.

    Attributes
    ----------
    title
        What a report calls it.
    fit
        Trains it.
    rows
        Makes a frame of so many rows that it predicts.
    method
        What is called of it.
    numbers
        Whether all columns are numbers, so that an array of them is all that a peer needs.
    """

    title: str
    fit: Callable[[], Any]
    rows: Callable[[int], Any]
    method: str = "predict_proba"
    numbers: bool = False


_DIRTY = partial(adult, missing_strings=True)
_TWENTY = partial(wide, numbers=20, categories=0, missing=0.0)

CASES: dict[str, Case] = {
    "adult-missing-lr": Case(
        "adult, missing strings: impute, scale | impute, one-hot → LogisticRegression",
        partial(training.on_adult, training.logistic, kind="missing"),
        _DIRTY,
    ),
    "adult-lr": Case(
        "adult: impute, scale | one-hot → LogisticRegression",
        partial(training.on_adult, training.logistic),
        adult,
    ),
    "adult-rf": Case(
        "adult: impute, scale | one-hot → RandomForest(100)",
        partial(training.on_adult, training.forest, 10_000),
        adult,
    ),
    "adult-lgbm": Case(
        "adult: impute, scale | one-hot → LightGBM(100)", partial(training.on_adult, training.lightgbm), adult
    ),
    "adult-xgb": Case(
        "adult: impute, scale | one-hot → XGBoost(100)", partial(training.on_adult, training.xgboost), adult
    ),
    "adult-hist": Case(
        "adult: passthrough | ordinal → HistGradientBoosting(100)",
        partial(training.on_adult, training.hist, kind="ordinal"),
        adult,
    ),
    "wide-percentile": Case(
        "119 columns: impute, scale | one-hot → SelectPercentile(20) → LogisticRegression",
        partial(training.on_wide, training.percentile, training.logistic),
        wide,
        numbers=True,
    ),
    "wide-l1": Case(
        "119 columns: impute, scale | one-hot → LogisticRegression, L1",
        partial(training.on_wide, training.sparse_logistic),
        wide,
        numbers=True,
    ),
    "wide-lr": Case(
        "119 columns: impute, scale | one-hot → LogisticRegression",
        partial(training.on_wide, training.logistic),
        wide,
        numbers=True,
    ),
    "strings-ridge": Case("one-hot of 3 x 1,000 strings → Ridge", training.ridge, strings, "predict"),
    "numbers-lr": Case(
        "impute, scale of 30 numbers → LogisticRegression",
        training.thirty,
        partial(wide, numbers=30, categories=0),
        numbers=True,
    ),
    "numbers-lgbm": Case(
        "impute, scale of 30 numbers → LightGBM(100)",
        lambda: training.numbers_then(training.lightgbm, wide(20_000, numbers=30, categories=0)),
        partial(wide, numbers=30, categories=0),
        numbers=True,
    ),
    "numbers-rf": Case(
        "impute, scale of 30 numbers → RandomForest(100)",
        lambda: training.numbers_then(training.forest, wide(5_000, numbers=30, categories=0)),
        partial(wide, numbers=30, categories=0),
        numbers=True,
    ),
    "adult-stacking": Case(
        "adult: impute, scale | one-hot → Stacking(forest 50, LogisticRegression → LogisticRegression)",
        partial(training.on_adult, training.stacking, 8_000),
        adult,
    ),
    "adult-voting": Case(
        "adult: impute, scale | one-hot → Voting, soft (forest 50, LogisticRegression)",
        partial(training.on_adult, training.voting, 8_000),
        adult,
    ),
    "polynomial-lr": Case(
        "scale → PolynomialFeatures(2) → SelectKBest(30) → LogisticRegression",
        training.polynomial,
        _TWENTY,
        numbers=True,
    ),
    "digits-svc": Case(
        "digits: scale → PCA(20) → SVC, rbf",
        training.digits,
        partial(repeated, "digits"),
        "predict",
        numbers=True,
    ),
    "cancer-mlp": Case(
        "cancer: scale → MLP(100)",
        partial(training.cancer, training.network),
        partial(repeated, "breast_cancer"),
        numbers=True,
    ),
    "cancer-calibrated": Case(
        "cancer: scale → CalibratedClassifierCV(LinearSVC)",
        partial(training.cancer, training.calibrated),
        partial(repeated, "breast_cancer"),
        numbers=True,
    ),
    "quantile-knn": Case("quantiles → KNeighbors(5), 10,000 x 20", training.neighbors, _TWENTY, numbers=True),
    "tfidf-lr": Case("tf-idf of texts (5,000 words) → LogisticRegression", training.tfidf, texts),
}
"""By name."""
