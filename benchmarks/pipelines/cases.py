"""The pipelines that are compared: how each is trained, and the rows that it predicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.pipelines.data import (
    CATEGORIES,
    NUMBERS,
    adult,
    adult_target,
    strings,
    strings_target,
    wide,
    wide_target,
)


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


def _numbers() -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(SimpleImputer(strategy="median"), StandardScaler())


def _onehot(**options: Any) -> Any:
    from sklearn.preprocessing import OneHotEncoder

    return OneHotEncoder(handle_unknown="ignore", **options)


def _adult(last: Callable[[], Any], rows: int = 20_000, kind: str = "onehot") -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    frame = adult(rows, missing_strings=kind == "missing")
    number: Any = _numbers()
    category: Any = _onehot()
    if kind == "missing":
        category = make_pipeline(SimpleImputer(strategy="most_frequent"), category)
    if kind == "ordinal":
        number = "passthrough"
        category = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    columns = ColumnTransformer([("num", number, list(NUMBERS)), ("cat", category, list(CATEGORIES))])
    return make_pipeline(columns, last()).fit(frame, adult_target(frame))


def _wide(*last: Callable[[], Any]) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline

    frame = wide(5_000)
    numbers, categories = [f"n{i}" for i in range(89)], [f"c{i}" for i in range(30)]
    columns = ColumnTransformer([("num", _numbers(), numbers), ("cat", _onehot(), categories)])
    return make_pipeline(columns, *(make() for make in last)).fit(frame, wide_target(frame))


def _logistic(**options: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=500, **options)


def _sparse_logistic() -> Any:
    return _logistic(l1_ratio=1.0, C=0.01, solver="saga", tol=1e-3)


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, random_state=0, n_jobs=1)


def _lightgbm() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(verbose=-1, n_jobs=1)


def _xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=100, n_jobs=1)


def _hist() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


def _percentile() -> Any:
    from sklearn.feature_selection import SelectPercentile

    return SelectPercentile(percentile=20)


def _ridge() -> Any:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    frame = strings(5_000)
    return make_pipeline(_onehot(), Ridge()).fit(frame, strings_target(frame))


def _thirty() -> Any:
    frame = wide(5_000, numbers=30, categories=0)
    return _numbers_then(_logistic, frame)


def _numbers_then(last: Callable[[], Any], frame: Any) -> Any:
    from sklearn.pipeline import make_pipeline

    return make_pipeline(_numbers(), last()).fit(frame, wide_target(frame))


_DIRTY = partial(adult, missing_strings=True)

CASES: dict[str, Case] = {
    "adult-missing-lr": Case(
        "adult, missing strings: impute, scale | impute, one-hot → LogisticRegression",
        partial(_adult, _logistic, kind="missing"),
        _DIRTY,
    ),
    "adult-lr": Case(
        "adult: impute, scale | one-hot → LogisticRegression", partial(_adult, _logistic), adult
    ),
    "adult-rf": Case(
        "adult: impute, scale | one-hot → RandomForest(100)", partial(_adult, _forest, 10_000), adult
    ),
    "adult-lgbm": Case("adult: impute, scale | one-hot → LightGBM(100)", partial(_adult, _lightgbm), adult),
    "adult-xgb": Case("adult: impute, scale | one-hot → XGBoost(100)", partial(_adult, _xgboost), adult),
    "adult-hist": Case(
        "adult: passthrough | ordinal → HistGradientBoosting(100)",
        partial(_adult, _hist, kind="ordinal"),
        adult,
    ),
    "wide-percentile": Case(
        "119 columns: impute, scale | one-hot → SelectPercentile(20) → LogisticRegression",
        partial(_wide, _percentile, _logistic),
        wide,
        numbers=True,
    ),
    "wide-l1": Case(
        "119 columns: impute, scale | one-hot → LogisticRegression, L1",
        partial(_wide, _sparse_logistic),
        wide,
        numbers=True,
    ),
    "wide-lr": Case(
        "119 columns: impute, scale | one-hot → LogisticRegression",
        partial(_wide, _logistic),
        wide,
        numbers=True,
    ),
    "strings-ridge": Case("one-hot of 3 x 1,000 strings → Ridge", _ridge, strings, "predict"),
    "numbers-lr": Case(
        "impute, scale of 30 numbers → LogisticRegression",
        _thirty,
        partial(wide, numbers=30, categories=0),
        numbers=True,
    ),
    "numbers-lgbm": Case(
        "impute, scale of 30 numbers → LightGBM(100)",
        lambda: _numbers_then(_lightgbm, wide(20_000, numbers=30, categories=0)),
        partial(wide, numbers=30, categories=0),
        numbers=True,
    ),
    "numbers-rf": Case(
        "impute, scale of 30 numbers → RandomForest(100)",
        lambda: _numbers_then(_forest, wide(5_000, numbers=30, categories=0)),
        partial(wide, numbers=30, categories=0),
        numbers=True,
    ),
}
"""By name."""
