"""The operators that are compared: how each is fitted, the rows that it takes, and the least time for a row.

Models are fitted on float64 rows, but for those that scikit-learn predicts for rows of the fitted type only
(KMeans), or fast for those only (neighbours).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.operators import data
from benchmarks.operators.limits import Limit, distances, moved, product

FAMILIES = (
    "linear",
    "support vectors",
    "Bayes",
    "network",
    "clusters",
    "neighbours",
    "projection",
    "scaling",
    "expansion",
    "missing",
    "categories",
    "selection",
    "text",
)
"""Groups of operators that a report gives means of."""


@dataclass(frozen=True)
class Case:
    """An operator.

    Attributes
    ----------
    title
        What a report calls it.
    family
        One of `FAMILIES`.
    fit
        Trains it; its argument is the type of the rows that it will predict.
    rows
        Makes so many rows, of a type where they are numbers.
    method
        What is called of it.
    limit
        The least that a row takes.
    most
        Rows that it is called with at most.
    """

    title: str
    family: str
    fit: Callable[[str], Any]
    rows: Callable[[int, str], Any]
    method: str
    limit: Limit
    most: int = 1_000_000


@functools.cache
def cases() -> dict[str, Case]:
    """All of them, by title."""
    families = (_linear, _vectors, _bayes, _networks, _clusters, _neighbours, _projections)
    families += (_scaling, _expansions, _missing, _categories, _selections, _text)
    return {one.title: one for family in families for one in family()}


def _classifier(
    title: str,
    family: str,
    make: Callable[[], Any],
    limit: Limit,
    *,
    features: int = 20,
    classes: int = 3,
    rows: int = 5_000,
    method: str = "predict_proba",
    source: Callable[..., Any] = data.numbers,
    own: bool = False,
) -> Case:
    """A classifier on numbers; `own`: fitted on the type of its rows."""
    source = partial(source, features=features)

    def fit(dtype: str) -> Any:
        X = source(rows, dtype if own else "float64")
        return make().fit(X, data.labels(X, classes))

    return Case(title, family, fit, source, method, limit)


def _regressor(
    title: str,
    family: str,
    make: Callable[[], Any],
    limit: Limit,
    *,
    rows: int = 5_000,
    target: Callable[[np.ndarray], np.ndarray] = data.target,
    own: bool = False,
) -> Case:
    """A regressor on 20 numbers; `own`: fitted on the type of its rows."""

    def fit(dtype: str) -> Any:
        X = data.numbers(rows, dtype if own else "float64")
        return make().fit(X, target(X))

    return Case(title, family, fit, data.numbers, "predict", limit)


def _transformer(
    title: str,
    family: str,
    make: Callable[[], Any],
    limit: Limit,
    *,
    rows: int = 5_000,
    source: Callable[..., Any] = data.numbers,
    method: str = "transform",
    most: int = 1_000_000,
) -> Case:
    """A transformer without targets."""
    return Case(title, family, lambda dtype: make().fit(source(rows, "float64")), source, method, limit, most)


def _counts_of_first(X: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).poisson(np.exp(X[:, 0] / 2))


def _linear() -> Iterator[Case]:
    from sklearn import linear_model as linear
    from sklearn.svm import LinearSVC, LinearSVR

    three = product(20, 3)
    one = product(20, 1)
    named = partial(_classifier, family="linear", limit=three)
    yield named("LogisticRegression, 3 classes", make=linear.LogisticRegression)
    yield _classifier(
        "LogisticRegression, binary, 100 features",
        "linear",
        linear.LogisticRegression,
        product(100, 1, 2),
        features=100,
        classes=2,
    )
    yield named(
        "SGDClassifier, log_loss", make=partial(linear.SGDClassifier, loss="log_loss", random_state=0)
    )
    yield named("LinearSVC", make=LinearSVC, limit=product(20, 3, 2), method="predict")
    regressors = {
        "LinearRegression": linear.LinearRegression,
        "Ridge": linear.Ridge,
        "Lasso": partial(linear.Lasso, alpha=0.1),
        "ElasticNet": partial(linear.ElasticNet, alpha=0.1),
        "LinearSVR": partial(LinearSVR, max_iter=5_000),
    }
    for title, make in regressors.items():
        yield _regressor(title, "linear", make, one)
    yield _regressor("PoissonRegressor", "linear", linear.PoissonRegressor, one, target=_counts_of_first)


def _vectors() -> Iterator[Case]:
    from sklearn.svm import SVC, SVR, NuSVC

    def limit(outputs: int) -> Limit:
        return distances(20, 1_000, outputs, 12, "for exp or power")

    named = partial(_classifier, family="support vectors", method="predict", limit=limit(2))
    yield named("SVC, rbf, binary", make=SVC, classes=2, rows=1_800)
    yield named("SVC, poly, binary", make=partial(SVC, kernel="poly"), classes=2, rows=1_500)
    yield named("NuSVC, rbf, 3 classes", make=partial(NuSVC, nu=0.5), rows=1_500)
    yield _regressor("SVR, rbf", "support vectors", SVR, limit(1), rows=1_100)


def _bayes() -> Iterator[Case]:
    from sklearn.naive_bayes import BernoulliNB, GaussianNB, MultinomialNB

    yield _classifier("GaussianNB", "Bayes", GaussianNB, moved(20, 3, 240, "4·20·3"))
    yield _classifier("BernoulliNB", "Bayes", BernoulliNB, product(20, 3))
    yield _classifier("MultinomialNB", "Bayes", MultinomialNB, product(20, 3), source=data.counts)


def _networks() -> Iterator[Case]:
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    options = {"max_iter": 30, "random_state": 0}
    yield _classifier(
        "MLPClassifier (100)",
        "network",
        partial(MLPClassifier, **options),
        moved(20, 3, 2 * 100 * 23, "2·100·(20 + 3)"),
    )
    yield _regressor(
        "MLPRegressor (100)",
        "network",
        partial(MLPRegressor, **options),
        moved(20, 1, 2 * 100 * 21, "2·100·(20 + 1)"),
    )


def _clusters() -> Iterator[Case]:
    from sklearn.cluster import KMeans, MiniBatchKMeans

    for title, kind, count in (
        ("KMeans, 8", KMeans, 8),
        ("KMeans, 64", KMeans, 64),
        ("MiniBatchKMeans, 8", MiniBatchKMeans, 8),
    ):
        make = partial(kind, count, n_init=1, random_state=0)
        yield Case(
            title,
            "clusters",
            lambda dtype, make=make: make().fit(data.numbers(5_000, dtype)),
            data.numbers,
            "predict",
            product(20, count, 1),
        )


def _neighbours() -> Iterator[Case]:
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    def limit(features: int, outputs: int) -> Limit:
        return distances(features, 10_000, outputs, 1, "to compare")

    options = {"rows": 10_000, "own": True}
    family = "neighbours"
    brute = {"algorithm": "brute"}
    yield _classifier(
        "KNeighborsClassifier, brute, k = 5",
        family,
        partial(KNeighborsClassifier, **brute),
        limit(20, 3),
        **options,
    )
    yield _regressor(
        "KNeighborsRegressor, brute, k = 5",
        family,
        partial(KNeighborsRegressor, **brute),
        limit(20, 1),
        **options,
    )
    yield _classifier(
        "KNeighborsClassifier, kd_tree, 8 features",
        family,
        partial(KNeighborsClassifier, algorithm="kd_tree"),
        limit(8, 3),
        features=8,
        **options,
    )


def _projections() -> Iterator[Case]:
    from sklearn.decomposition import PCA, FastICA, KernelPCA, TruncatedSVD

    ten = product(20, 10)
    yield _transformer("PCA, 10", "projection", lambda: PCA(10), ten)
    yield _transformer("TruncatedSVD, 10", "projection", lambda: TruncatedSVD(10, random_state=0), ten)
    yield _transformer("FastICA, 10", "projection", lambda: FastICA(10, random_state=0), ten)
    yield _transformer(
        "KernelPCA, rbf, 10",
        "projection",
        lambda: KernelPCA(10, kernel="rbf"),
        distances(20, 1_000, 10, 32, "for exp and product"),
        rows=1_000,
    )


def _scaling() -> Iterator[Case]:
    from sklearn import preprocessing as p

    same = moved(20, 20)
    named = partial(_transformer, family="scaling", limit=same)
    yield named("StandardScaler", make=p.StandardScaler)
    yield named("MinMaxScaler", make=p.MinMaxScaler)
    yield named("MaxAbsScaler", make=p.MaxAbsScaler)
    yield named("RobustScaler", make=p.RobustScaler)
    yield named("Normalizer, l2", make=p.Normalizer)
    yield named("Binarizer", make=p.Binarizer)
    yield named(
        "QuantileTransformer",
        make=partial(p.QuantileTransformer, random_state=0),
        limit=moved(20, 20, 20 * 24, "20·24 to search and interpolate"),
    )
    yield named(
        "PowerTransformer, yeo-johnson",
        make=p.PowerTransformer,
        limit=moved(20, 20, 20 * 30, "20·30 for pow"),
    )


def _expansions() -> Iterator[Case]:
    from sklearn import preprocessing as p

    search = {"operations": 80, "what": "20·4 to search"}
    named = partial(_transformer, family="expansion")
    yield named(
        "KBinsDiscretizer, ordinal",
        make=lambda: p.KBinsDiscretizer(5, encode="ordinal"),
        limit=moved(20, 20, **search),
    )
    yield named(
        "KBinsDiscretizer, onehot-dense",
        make=lambda: p.KBinsDiscretizer(5, encode="onehot-dense"),
        limit=moved(20, 100, **search),
    )
    yield named(
        "PolynomialFeatures, 2",
        make=lambda: p.PolynomialFeatures(2),
        limit=moved(20, 231, 231, "231"),
    )


def _missing() -> Iterator[Case]:
    from sklearn.impute import MissingIndicator, SimpleImputer

    source = partial(data.numbers, missing=0.1)
    yield _transformer("SimpleImputer, mean", "missing", SimpleImputer, moved(20, 20), source=source)
    yield _transformer("MissingIndicator", "missing", MissingIndicator, moved(20, 5), source=source)


def _categories() -> Iterator[Case]:
    from sklearn import preprocessing as p

    def onehot(**more: Any) -> Callable[[], Any]:
        return partial(p.OneHotEncoder, handle_unknown="ignore", **more)

    named = partial(_transformer, family="categories", rows=20_000)
    dense = {"sparse_output": False}
    # Sparse rows are five values and five places.
    yield named(
        "OneHotEncoder, integers, dense", make=onehot(**dense), limit=moved(5, 100), source=data.integers
    )
    yield named("OneHotEncoder, integers, sparse", make=onehot(), limit=moved(5, 15), source=data.integers)
    strings = partial(named, source=data.categories)
    yield strings("OneHotEncoder, strings, dense", make=onehot(**dense), limit=moved(5, 100, width=8))
    yield strings("OneHotEncoder, strings, sparse", make=onehot(), limit=moved(5, 15, width=8))
    yield strings(
        "OrdinalEncoder, strings",
        make=partial(p.OrdinalEncoder, handle_unknown="use_encoded_value", unknown_value=-1),
        limit=moved(5, 5, width=8),
    )
    yield named("LabelEncoder, strings", make=p.LabelEncoder, limit=moved(1, 2, width=8), source=data.column)
    three = partial(data.categories, columns=3, each=100)
    yield Case(
        "TargetEncoder, strings",
        "categories",
        lambda dtype: p.TargetEncoder(random_state=0).fit(
            three(20_000), np.random.default_rng(0).integers(0, 2, 20_000)
        ),
        three,
        "transform",
        moved(3, 3, width=8),
    )


def _selections() -> Iterator[Case]:
    from sklearn import feature_selection as f

    def fit(make: Callable[[], Any], dtype: str) -> Any:
        X = data.numbers(5_000)
        return make().fit(X, data.labels(X, 3))

    for title, make in (
        ("SelectKBest, 10", partial(f.SelectKBest, k=10)),
        ("SelectPercentile, 50", partial(f.SelectPercentile, percentile=50)),
        ("VarianceThreshold", partial(f.VarianceThreshold, 0.99)),
    ):
        yield Case(title, "selection", partial(fit, make), data.numbers, "transform", moved(10, 10))


def _text() -> Iterator[Case]:
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

    # About 18 different words of a text, each a value and a place; the text counts as its 130 letters.
    limit = Limit(130 + 8 * 18, 0, "130 + 8·18 B")
    named = partial(_transformer, family="text", rows=20_000, source=data.texts, limit=limit, most=100_000)
    yield named("CountVectorizer", make=CountVectorizer)
    yield named("TfidfVectorizer", make=TfidfVectorizer)
    yield Case(
        "FeatureHasher, 1,024",
        "text",
        lambda dtype: FeatureHasher(1_024, input_type="string").fit([]),
        data.categories,
        "transform",
        moved(5, 10, width=8),
        100_000,
    )
