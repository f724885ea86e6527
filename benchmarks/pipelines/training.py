"""How the pipelines that are compared are trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.pipelines.data import (
    CATEGORIES,
    NUMBERS,
    adult,
    adult_target,
    bundled,
    strings,
    strings_target,
    texts,
    wide,
    wide_target,
)


def _numbers() -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(SimpleImputer(strategy="median"), StandardScaler())


def _onehot(**options: Any) -> Any:
    from sklearn.preprocessing import OneHotEncoder

    return OneHotEncoder(handle_unknown="ignore", **options)


def on_adult(last: Callable[[], Any], rows: int = 20_000, kind: str = "onehot") -> Any:
    """A pipeline on the mixed frame `adult`; `kind` tells how strings are encoded."""
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


def on_wide(*last: Callable[[], Any]) -> Any:
    """A pipeline on the frame of 119 columns, with these last steps."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline

    frame = wide(5_000)
    numbers, categories = [f"n{i}" for i in range(89)], [f"c{i}" for i in range(30)]
    columns = ColumnTransformer([("num", _numbers(), numbers), ("cat", _onehot(), categories)])
    return make_pipeline(columns, *(make() for make in last)).fit(frame, wide_target(frame))


def logistic(**options: Any) -> Any:
    """A logistic regression."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=500, **options)


def sparse_logistic() -> Any:
    """A logistic regression of few weights other than zero."""
    return logistic(l1_ratio=1.0, C=0.01, solver="saga", tol=1e-3)


def forest() -> Any:
    """A forest of 100 deep trees."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(100, random_state=0, n_jobs=1)


def lightgbm() -> Any:
    """LightGBM's classifier of 100 trees."""
    from lightgbm import LGBMClassifier

    return LGBMClassifier(verbose=-1, n_jobs=1)


def xgboost() -> Any:
    """XGBoost's classifier of 100 trees."""
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=100, n_jobs=1)


def hist() -> Any:
    """scikit-learn's histogram-based gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


def percentile() -> Any:
    """The fifth of the columns that tell most."""
    from sklearn.feature_selection import SelectPercentile

    return SelectPercentile(percentile=20)


def ridge() -> Any:
    """A ridge regression on three columns of 1,000 strings each."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    frame = strings(5_000)
    return make_pipeline(_onehot(), Ridge()).fit(frame, strings_target(frame))


def thirty() -> Any:
    """A logistic regression on 30 numbers."""
    frame = wide(5_000, numbers=30, categories=0)
    return numbers_then(logistic, frame)


def numbers_then(last: Callable[[], Any], frame: Any) -> Any:
    """Imputed and scaled numbers in front of a last step."""
    from sklearn.pipeline import make_pipeline

    return make_pipeline(_numbers(), last()).fit(frame, wide_target(frame))


def _small_forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(50, max_depth=8, random_state=0, n_jobs=1)


def stacking() -> Any:
    """A forest and a logistic regression below another one."""
    from sklearn.ensemble import StackingClassifier

    return StackingClassifier([("rf", _small_forest()), ("lr", logistic())], logistic(), cv=3)


def voting() -> Any:
    """The mean of a forest's and a logistic regression's probabilities."""
    from sklearn.ensemble import VotingClassifier

    return VotingClassifier([("rf", _small_forest()), ("lr", logistic())], voting="soft")


def polynomial() -> Any:
    """Products of two columns, the 30 that tell most, and a logistic regression."""
    from sklearn.feature_selection import SelectKBest
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    frame = wide(5_000, numbers=20, categories=0, missing=0.0)
    steps = StandardScaler(), PolynomialFeatures(2), SelectKBest(k=30), logistic()
    return make_pipeline(*steps).fit(frame, wide_target(frame))


def digits() -> Any:
    """Support vectors on 20 principal components of 64 pixels."""
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    frame, target = bundled("digits")
    return make_pipeline(StandardScaler(), PCA(20), SVC()).fit(frame, target)


def cancer(last: Callable[[], Any]) -> Any:
    """Scaled numbers of tumours in front of a last step."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    frame, target = bundled("breast_cancer")
    return make_pipeline(StandardScaler(), last()).fit(frame, target)


def network() -> Any:
    """A network of one hidden layer of 100."""
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier(random_state=0)


def calibrated() -> Any:
    """Five linear support vector machines with calibrated probabilities."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import LinearSVC

    return CalibratedClassifierCV(LinearSVC(), cv=5)


def neighbors() -> Any:
    """Neighbours among 10,000 rows of quantiles."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import QuantileTransformer

    frame = wide(10_000, numbers=20, categories=0, missing=0.0)
    steps = QuantileTransformer(random_state=0), KNeighborsClassifier()
    return make_pipeline(*steps).fit(frame, wide_target(frame))


def tfidf() -> Any:
    """A logistic regression on weights of 5,000 words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    found = texts(20_000)
    return make_pipeline(TfidfVectorizer(), logistic()).fit(found, found.str.len() % 2)
