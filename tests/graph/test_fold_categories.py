"""Trees behind encoders of categories: every row ends in the leaf that the library finds."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn import ensemble, preprocessing
from sklearn.pipeline import make_pipeline

from hbtvm.frontends.files import from_object
from hbtvm.graph.columns.steps import (
    Encode,
    Equals,
    Lookup,
    ZeroIsMissing,
)
from hbtvm.graph.columns.table import Column, Raw
from tests.feeds import feed_matrix
from tests.folded_trees import (
    TREES,
    WORDS,
    Steps,
    assert_same_leaves,
    check,
    folded,
    numbers,
    reached,
    standard,
    words,
)


def fit_words(trees: str, matrix: Any, y: np.ndarray) -> Any:
    """A model that splits on codes."""
    return TREES[trees]().fit(matrix, y)


def unknown_rows() -> np.ndarray:
    """Rows with words that were not in the training data."""
    rng = np.random.default_rng(6)
    return rng.choice(np.append(WORDS, ["pink", "Red"]), (200, 3))


ON_SPARSE = [name for name in TREES if name not in ("hist", "lightgbm")]
"""Trees that are trained on sparse rows as well."""


@pytest.mark.parametrize(
    ("trees", "sparse"), [*((name, False) for name in TREES), *((name, True) for name in ON_SPARSE)]
)
def test_one_hot_columns_become_splits_on_one_code(trees: str, sparse: bool) -> None:
    """Also where XGBoost takes the zeros of a sparse matrix for missing."""
    X, y = words()
    fitted = preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=sparse).fit(X)
    model = fit_words(trees, fitted.transform(X), y)
    columns = []
    for j, known in enumerate(fitted.categories_):
        encode = Encode(tuple(known))
        zeros: Steps = (ZeroIsMissing(),) if sparse and trees == "xgboost" else ()
        columns += [Column(Raw(j), (encode, Equals((code,)), *zeros)) for code in range(len(known))]
    result = folded(model, columns)
    rows = np.concatenate([X, unknown_rows()])
    matrix = feed_matrix(result.feeds.feeds, rows.T, result.anchor.compare_dtype)
    assert_same_leaves(model, reached(result.anchor, matrix), fitted.transform(rows))
    assert len(result.feeds.feeds) == 3 and result.single is None
    assert result.anchor.compare_dtype == from_object(model).anchor.compare_dtype


@pytest.mark.parametrize("trees", TREES)
@pytest.mark.parametrize("unknown", [np.nan, -1, 99])
def test_ordinal_columns_become_splits_on_codes(trees: str, unknown: float) -> None:
    """Unknown words go where their number goes, or NaN; scaled codes too."""
    X, y = words()
    encoder = preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=unknown)
    fitted = make_pipeline(encoder, preprocessing.StandardScaler()).fit(X)
    model = fit_words(trees, fitted.transform(X), y)
    columns = []
    for j, known in enumerate(fitted[0].categories_):
        values = np.append(np.arange(len(known), dtype=float), unknown)
        columns.append(Column(Raw(j), (Encode(tuple(known)), Lookup(values), *standard(fitted[1], j))))
    result = folded(model, columns)
    rows = np.concatenate([X, unknown_rows()])
    matrix = feed_matrix(result.feeds.feeds, rows.T, result.anchor.compare_dtype)
    assert_same_leaves(model, reached(result.anchor, matrix), fitted.transform(rows))
    if unknown == unknown:
        assert not result.anchor.category_sets


def test_codes_in_any_order_become_thresholds() -> None:
    """The codes of a column that looks numbers up are sorted by these numbers."""
    X, y = words()
    numbers_of = np.array([3.0, -7.0, 3.0, 0.5, 12.0, 1.0, -8.0])
    known = tuple(sorted(WORDS))
    steps = (Encode(known), Lookup(numbers_of))

    def transform(rows: np.ndarray) -> np.ndarray:
        codes = [known.index(word) if word in known else len(known) for word in rows[:, 0].tolist()]
        return numbers_of[codes][:, None]

    model = TREES["lightgbm"]().fit(transform(X), y)
    result = folded(model, [Column(Raw(0), steps)])
    rows = np.concatenate([X, unknown_rows()])
    matrix = feed_matrix(result.feeds.feeds, rows.T, "float64")
    assert_same_leaves(model, reached(result.anchor, matrix), transform(rows))
    assert not result.anchor.category_sets and result.anchor.n_nodes > result.anchor.n_trees


def test_codes_on_one_side_become_thresholds() -> None:
    """Where unknown words are errors, the first and the last category need no set."""
    X, y = words()
    fitted = preprocessing.OneHotEncoder(sparse_output=False).fit(X[:, 2:])
    model = fit_words("forest", fitted.transform(X[:, 2:]), y)
    encode = Encode(tuple(fitted.categories_[0]), "error", "step")
    result = folded(model, [Column(Raw(2), (encode, Equals((code,)))) for code in range(2)])
    assert not result.anchor.category_sets
    matrix = feed_matrix(result.feeds.feeds, X.T, "float32")
    assert_same_leaves(model, reached(result.anchor, matrix), fitted.transform(X[:, 2:]))


@pytest.mark.parametrize("trees", ["hist", "lightgbm", "xgboost"])
def test_categories_of_the_trees_behind_an_encoder(trees: str) -> None:
    """Categorical splits on an encoder's numbers become sets of its codes, NaN included."""
    X, y = words()
    encoder = preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan).fit(X)
    codes = encoder.transform(X)
    if trees == "hist":
        model = ensemble.HistGradientBoostingRegressor(max_iter=5, categorical_features=[0, 1]).fit(codes, y)
        spec = from_object(model).input
        assert spec.numbers_are_categories
        behind = {
            j: (Encode(tuple(known)), Lookup(np.append(np.arange(len(known), dtype=float), np.nan)))
            for j, known in spec.categories.items()
        }
    elif trees == "lightgbm":
        model = lgb.LGBMRegressor(n_estimators=5, min_child_samples=2, n_jobs=1, verbose=-1)
        model.fit(codes, y, categorical_feature=[0, 1])
        behind = {}
    else:
        model = xgb.XGBRegressor(
            n_estimators=5, n_jobs=1, feature_types=["c", "c", "q"], enable_categorical=True
        ).fit(codes, y)
        behind = {}
    columns = []
    for j, known in enumerate(encoder.categories_):
        values = np.append(np.arange(len(known), dtype=float), np.nan)
        columns.append(Column(Raw(j), (Encode(tuple(known)), Lookup(values), *behind.get(j, ()))))
    result = folded(model, columns)
    rows = np.concatenate([X, unknown_rows()])
    matrix = feed_matrix(result.feeds.feeds, rows.T, result.anchor.compare_dtype)
    assert_same_leaves(model, reached(result.anchor, matrix), encoder.transform(rows))


def test_categories_and_zeros_among_raw_numbers() -> None:
    """Beside scaled columns, category numbers stay; XGBoost's are cut to float32 first."""
    X, y = numbers()
    X[:, 3] %= 7
    scaled = preprocessing.StandardScaler().fit(X[:, :3])

    def transform(rows: np.ndarray) -> np.ndarray:
        return np.column_stack([scaled.transform(rows[:, :3]), rows[:, 3]])

    columns = [Column(Raw(j), standard(scaled, j), allow_inf=False) for j in range(3)] + [Column(Raw(3))]
    for model in (
        xgb.XGBRegressor(n_estimators=5, n_jobs=1, feature_types=["q"] * 3 + ["c"], enable_categorical=True),
        lgb.LGBMRegressor(n_estimators=5, min_child_samples=2, zero_as_missing=True, n_jobs=1, verbose=-1),
    ):
        model.fit(transform(X), y)
        check(model, columns, X, transform, (0.0, 2.0, 3.0, np.nan))
    boosted = lgb.LGBMRegressor(n_estimators=5, min_child_samples=2, n_jobs=1, verbose=-1)
    boosted.fit(transform(X), y, categorical_feature=[3])
    check(boosted, columns, X, transform)
