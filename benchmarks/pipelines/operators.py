"""Operators with parameters drawn at random, by what they take: the parts of generated pipelines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Random = np.random.Generator
Make = Callable[[Random], Any]


@dataclass(frozen=True)
class Last:
    """A last step.

    Attributes
    ----------
    make
        Makes it, not fitted.
    target
        ``classes``, ``numbers``, ``several classes``, ``several numbers`` or ``none``.
    needs
        What it needs of the columns: ``dense``, ``positive`` (which is dense too), ``bins`` or nothing.
    """

    make: Make
    target: str
    needs: str = ""


def pick(rng: Random, choices: Sequence[Any]) -> Any:
    """One of them."""
    return choices[int(rng.integers(len(choices)))]


def maybe(rng: Random, share: float = 0.5) -> bool:
    """True in such a share of calls."""
    return bool(rng.random() < share)


def imputers(narrow: bool) -> list[Make]:
    """For columns of numbers; `narrow`: few of them."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    simple: list[Make] = [
        lambda r: SimpleImputer(strategy="mean"),
        lambda r: SimpleImputer(strategy="median", add_indicator=maybe(r, 0.3)),
        lambda r: SimpleImputer(strategy="most_frequent"),
        lambda r: SimpleImputer(strategy="constant", fill_value=-1.0),
    ]
    others: list[Make] = [
        lambda r: KNNImputer(n_neighbors=int(r.integers(1, 6)), weights=pick(r, ["uniform", "distance"])),
        lambda r: IterativeImputer(pick(r, [None, Ridge()]), max_iter=3, add_indicator=maybe(r, 0.3)),
        # A model of its own for each column.
        lambda r: IterativeImputer(DecisionTreeRegressor(max_depth=3, random_state=0), max_iter=1),
    ]
    return simple * 3 + others * narrow


def scalers(narrow: bool) -> list[Make]:
    """From dense numbers without missing ones to others."""
    from sklearn import preprocessing as p

    def standard(r: Random) -> Any:
        return p.StandardScaler(with_mean=maybe(r, 0.8), with_std=maybe(r, 0.8))

    found: list[Make] = [
        standard,
        standard,
        lambda r: p.MinMaxScaler(feature_range=pick(r, [(0, 1), (-1, 1)]), clip=maybe(r, 0.3)),
        lambda r: p.MaxAbsScaler(),
        lambda r: p.RobustScaler(with_centering=maybe(r, 0.8), quantile_range=pick(r, [(25, 75), (10, 90)])),
        lambda r: p.Normalizer(norm=pick(r, ["l1", "l2", "max"])),
        lambda r: p.Binarizer(threshold=0.5),
        lambda r: p.FunctionTransformer(pick(r, [np.abs, np.square, np.sin, np.cos])),
        lambda r: p.QuantileTransformer(n_quantiles=50, output_distribution=pick(r, ["uniform", "normal"])),
        lambda r: p.PowerTransformer(standardize=maybe(r)),
        lambda r: p.KBinsDiscretizer(
            int(r.integers(2, 6)),
            encode=pick(r, ["ordinal", "onehot-dense"]),
            strategy=pick(r, ["uniform", "quantile"]),
        ),
    ]
    wider: list[Make] = [
        lambda r: p.PolynomialFeatures(2, interaction_only=maybe(r), include_bias=maybe(r)),
        lambda r: p.SplineTransformer(
            n_knots=int(r.integers(3, 6)), degree=int(r.integers(1, 4)), extrapolation="constant"
        ),
    ]
    return found + wider * narrow


def encoders() -> list[Make]:
    """From strings to numbers."""
    from sklearn import preprocessing as p

    def onehot(**options: Any) -> Make:
        return lambda r: p.OneHotEncoder(**{"handle_unknown": "ignore", **options})

    return [
        onehot(),
        onehot(sparse_output=False),
        onehot(handle_unknown="infrequent_if_exist", min_frequency=20),
        onehot(handle_unknown="infrequent_if_exist", max_categories=4),
        onehot(drop="first"),
        onehot(drop="if_binary"),
        lambda r: p.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        lambda r: p.OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
        ),
        lambda r: p.TargetEncoder(cv=3, random_state=0),
    ]


def vectorizers() -> list[Make]:
    """From texts to sparse rows."""
    from sklearn.feature_extraction import text as t
    from sklearn.pipeline import make_pipeline

    def words(r: Random) -> dict[str, Any]:
        analyzer = pick(r, ["word", "word", "char", "char_wb"])
        few = pick(r, [(1, 1), (1, 2)]) if analyzer == "word" else (2, 3)
        return {"analyzer": analyzer, "ngram_range": few, "lowercase": maybe(r, 0.8)}

    return [
        lambda r: t.CountVectorizer(**words(r), binary=maybe(r, 0.3), max_features=pick(r, [None, 40])),
        lambda r: t.CountVectorizer(stop_words=pick(r, [None, "english"]), min_df=2),
        lambda r: t.TfidfVectorizer(
            **words(r), norm=pick(r, ["l1", "l2", None]), sublinear_tf=maybe(r), use_idf=maybe(r, 0.8)
        ),
        lambda r: t.TfidfVectorizer(max_features=50),
        lambda r: t.HashingVectorizer(n_features=pick(r, [64, 256]), alternate_sign=maybe(r)),
        lambda r: make_pipeline(t.CountVectorizer(**words(r)), t.TfidfTransformer()),
    ]


def selections(target: str) -> list[Make]:
    """Of columns, for a kind of target."""
    from sklearn import feature_selection as f
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
    from sklearn.linear_model import LogisticRegression, Ridge

    score: Any = f.f_classif if target == "classes" else f.f_regression
    trees: Any = ExtraTreesClassifier if target == "classes" else ExtraTreesRegressor
    linear: Any = LogisticRegression if target == "classes" else Ridge
    found: list[Make] = [lambda r: f.VarianceThreshold()]
    if target not in ("classes", "numbers"):
        return found
    return [
        *found,
        lambda r: f.SelectKBest(score, k=1),
        lambda r: f.SelectPercentile(score, percentile=int(r.integers(20, 80))),
        lambda r: f.SelectFpr(score, alpha=0.9),
        lambda r: f.GenericUnivariateSelect(score, mode="percentile", param=50),
        lambda r: f.SelectFromModel(trees(5, max_depth=3, random_state=0)),
        lambda r: f.SelectFromModel(linear(), max_features=5),
        lambda r: f.RFE(linear(), n_features_to_select=2, step=0.5),
    ]


def projections(target: str) -> list[Make]:
    """From dense numbers to fewer of them."""
    from sklearn import decomposition as d
    from sklearn import kernel_approximation as k
    from sklearn import random_projection as p
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import RandomTreesEmbedding

    kernels = ["linear", "poly", "rbf", "sigmoid", "cosine"]
    found: list[Make] = [
        lambda r: d.PCA(2, whiten=maybe(r), random_state=0),
        lambda r: d.PCA(0.9),
        lambda r: d.IncrementalPCA(2),
        lambda r: d.TruncatedSVD(2, random_state=0),
        lambda r: d.FastICA(2, random_state=0, max_iter=1_000, tol=1e-2),
        lambda r: d.KernelPCA(2, kernel=pick(r, kernels), random_state=0),
        lambda r: k.Nystroem(kernel=pick(r, ["rbf", "poly"]), degree=2, n_components=10, random_state=0),
        lambda r: k.RBFSampler(gamma=0.1, n_components=10, random_state=0),
        lambda r: p.GaussianRandomProjection(3, random_state=0),
        lambda r: p.SparseRandomProjection(3, random_state=0, dense_output=True),
        lambda r: RandomTreesEmbedding(4, max_depth=3, sparse_output=False, random_state=0),
    ]
    if target == "classes":
        found.append(lambda r: LinearDiscriminantAnalysis())
    return found
