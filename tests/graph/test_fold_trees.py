"""Trees behind transformers: every row ends in the leaf that the libraries' own operations lead to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import impute, preprocessing
from sklearn.pipeline import make_pipeline

from hbtvm.frontends.files import from_object
from hbtvm.graph.columns.steps import (
    Above,
    Arithmetic,
    Cast,
    Clip,
    Encode,
    Equals,
    Fill,
    Function,
    IsMissing,
    Within,
    ZeroIsMissing,
)
from hbtvm.graph.columns.table import Column, Raw
from tests.feeds import feed_matrix
from tests.folded_trees import (
    COLUMNS,
    ROWS,
    TREES,
    Steps,
    assert_same_leaves,
    check,
    folded,
    numbers,
    reached,
    standard,
    words,
)

SCALERS: dict[str, tuple[Callable[[], Any], Callable[[Any, int], Steps]]] = {
    "standard": (preprocessing.StandardScaler, standard),
    "minmax": (
        lambda: preprocessing.MinMaxScaler((-3, 0.7)),
        lambda one, j: (Arithmetic("multiply", one.scale_[j]), Arithmetic("add", one.min_[j])),
    ),
    "minmax_clip": (
        lambda: preprocessing.MinMaxScaler(clip=True),
        lambda one, j: (
            Arithmetic("multiply", one.scale_[j]),
            Arithmetic("add", one.min_[j]),
            Clip(0, 1),
        ),
    ),
    "robust": (
        preprocessing.RobustScaler,
        lambda one, j: (Arithmetic("subtract", one.center_[j]), Arithmetic("divide", one.scale_[j])),
    ),
    "maxabs": (
        preprocessing.MaxAbsScaler,
        lambda one, j: (Arithmetic("divide", one.scale_[j]),),
    ),
    "binarizer": (
        lambda: preprocessing.Binarizer(threshold=4.5),
        lambda one, j: (Above(4.5),),
    ),
    "arcsinh": (
        lambda: preprocessing.FunctionTransformer(np.arcsinh),
        lambda one, j: (Function("arcsinh"),),
    ),
    "cbrt_negative": (
        lambda: make_pipeline(
            preprocessing.FunctionTransformer(np.cbrt), preprocessing.FunctionTransformer(np.negative)
        ),
        lambda one, j: (Function("cbrt"), Function("negative")),
    ),
    "arctan_standard": (
        lambda: make_pipeline(preprocessing.FunctionTransformer(np.arctan), preprocessing.StandardScaler()),
        lambda one, j: (Function("arctan"), *standard(one[1], j)),
    ),
    "square": (
        lambda: preprocessing.FunctionTransformer(np.square),
        lambda one, j: (Function("square"),),
    ),
}


@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize("trees", TREES)
def test_numbers_behind_scalers_end_in_the_same_leaves(trees: str, scaler: str) -> None:
    """At thresholds and beside them, in float64 and float32."""
    X, y = numbers()
    make, steps = SCALERS[scaler]
    fitted = make().fit(X)
    model = TREES[trees]().fit(fitted.transform(X), y)
    columns = [Column(Raw(j), steps(fitted, j), allow_inf=False) for j in range(COLUMNS)]
    result = check(model, columns, X, fitted.transform, (0.0, -0.0, 1e15, -1e15, 1e-30))
    if scaler not in ("square", "arctan_standard"):
        assert not any(feed.steps for feed in result.feeds.feeds)


@pytest.mark.parametrize("trees", TREES)
def test_imputers_become_default_directions(trees: str) -> None:
    """A missing number goes where the number goes that is put in its place; indicators split on it."""
    X, y = numbers(missing=True)
    fitted = make_pipeline(impute.SimpleImputer(add_indicator=True), preprocessing.StandardScaler()).fit(X)
    model = TREES[trees]().fit(fitted.transform(X), y + 10 * np.isnan(X[:, 0]))
    fill = fitted[0].statistics_
    columns = [Column(Raw(j), (Fill(fill[j]), *standard(fitted[1], j))) for j in range(COLUMNS)]
    columns += [Column(Raw(j), (IsMissing(), *standard(fitted[1], COLUMNS + j))) for j in range(COLUMNS)]
    result = check(model, columns, X, fitted.transform, (np.nan,))
    assert len(result.feeds.feeds) <= COLUMNS
    assert all(feed.allow_nan and not feed.steps for feed in result.feeds.feeds)


@pytest.mark.parametrize("trees", TREES)
def test_imputers_alone_keep_the_type_that_trees_compare_in(trees: str) -> None:
    """Numbers are what they were, so that kernels in float32 stay.

    Where trees compare in float64, a fill value rounded to float32 may be on another side of a threshold.
    """
    X, y = numbers(missing=True)
    fitted = impute.SimpleImputer(strategy="median").fit(X)
    model = TREES[trees]().fit(fitted.transform(X), y)
    columns = [Column(Raw(j), (Fill(fitted.statistics_[j]),)) for j in range(COLUMNS)]
    result = check(model, columns, X, fitted.transform, (np.nan,))
    assert result.anchor.compare_dtype == from_object(model).anchor.compare_dtype
    assert result.single is None or result.anchor.compare_dtype == "float64"


@pytest.mark.parametrize("trees", TREES)
def test_missing_numbers_behind_scalers_keep_their_direction(trees: str) -> None:
    """Scalers let NaN pass; so do all of these trees."""
    X, y = numbers(missing=True)
    fitted = preprocessing.StandardScaler().fit(X)
    model = TREES[trees]().fit(fitted.transform(X), y)
    columns = [Column(Raw(j), standard(fitted, j)) for j in range(COLUMNS)]
    check(model, columns, X, fitted.transform, (np.nan,))


@pytest.mark.parametrize("trees", ["hist", "lightgbm"])
def test_infinities_behind_functions(trees: str) -> None:
    """Where functions and trees let infinities pass, they end in the same leaves."""
    X, y = numbers(missing=True)
    transform = preprocessing.FunctionTransformer(lambda x: -(x - 1.5)).transform
    model = TREES[trees]().fit(transform(X), y)
    steps = (Arithmetic("subtract", 1.5, True), Function("negative"))
    columns = [Column(Raw(j), steps) for j in range(COLUMNS)]
    result = check(model, columns, X, transform, (np.nan, np.inf, -np.inf))
    assert all(feed.allow_inf for feed in result.feeds.feeds)


@pytest.mark.parametrize("name", ["log1p", "log", "sqrt", "log10"])
@pytest.mark.parametrize("trees", TREES)
def test_numbers_outside_a_domain_are_missing(trees: str, name: str) -> None:
    """The function's NaN takes the default direction; the function itself is not computed."""
    X, y = numbers()
    X = np.abs(X) + 1e-3
    X[:100, 0] = np.nan
    function = getattr(np, name)

    def transform(rows: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(function(rows))

    model = TREES[trees]().fit(transform(X), y)
    columns = [Column(Raw(j), (Function(name),)) for j in range(COLUMNS)]
    # XGBoost and forests refuse the logarithm of 0.
    special = (-3.0, -1e30, np.nan) if name == "log1p" else (-3.0, -1e-30, np.nan)
    result = check(model, columns, X, transform, special)
    assert all(isinstance(feed.steps[0], Within) for feed in result.feeds.feeds)


def test_missing_values_that_a_function_made_are_not_taken_for_raw_ones() -> None:
    """An imputer behind a logarithm is computed by numpy: it fills what the logarithm made missing, too."""
    X, y = numbers()
    X = np.abs(X)

    def transform(rows: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            logs = np.log(rows)
        return np.where(np.isnan(logs), logs.dtype.type(2.5), logs)

    model = TREES["lightgbm"]().fit(transform(X), y)
    columns = [Column(Raw(j), (Function("log"), Fill(2.5))) for j in range(COLUMNS)]
    result = check(model, columns, X, transform, (-3.0, np.nan))
    assert any("computed by numpy" in one for one in result.rewrites)


def test_zeros_of_scaled_numbers_that_are_missing_are_computed_by_numpy() -> None:
    """XGBoost on a sparse matrix: what scales to zero is missing."""
    X, y = numbers()
    fitted = preprocessing.MaxAbsScaler().fit(X)
    X[::3, 3] = 0
    scaled = fitted.transform(X)
    model = TREES["xgboost"]().fit(np.where(scaled == 0, np.nan, scaled), y)

    def transform(rows: np.ndarray) -> np.ndarray:
        found = fitted.transform(rows)
        return np.where(found == 0, found.dtype.type(np.nan), found)

    steps = [(Arithmetic("divide", fitted.scale_[j]), ZeroIsMissing()) for j in range(COLUMNS)]
    result = check(model, [Column(Raw(j), steps[j]) for j in range(COLUMNS)], X, transform, (0.0, -0.0))
    assert result.anchor.compare_dtype == "float32"


def test_numbers_computed_by_numpy_beside_moved_ones() -> None:
    """A forest that compares in float64 from then on gets the others cast as the library casts them."""
    X, y = numbers()

    def transform(rows: np.ndarray) -> np.ndarray:
        return np.column_stack([rows[:, 0] - rows.dtype.type(0.3), np.sin(rows[:, 1]), rows[:, 2:]])

    model = TREES["forest"]().fit(transform(X), y)
    columns = [
        Column(Raw(0), (Arithmetic("subtract", 0.3, True),)),
        Column(Raw(1), (Function("sin"),)),
        Column(Raw(2)),
        Column(Raw(3)),
    ]
    result = check(model, columns, X, transform)
    assert result.anchor.compare_dtype == "float64"
    assert result.single is not None and result.single.compare_dtype == "float32"
    sines = [feed for feed in result.feeds.feeds if feed.steps]
    assert [type(step) for step in sines[0].steps] == [Function, Cast] and len(sines) == 1


def test_float64_results_of_float32_rows() -> None:
    """What widens float32 rows is compared in float64."""
    X, y = numbers()

    def transform(rows: np.ndarray) -> np.ndarray:
        wide = rows.astype(np.float64)
        return np.column_stack([wide[:, 0] - 0.3, np.sin(wide[:, 1]), wide[:, 2:]])

    model = TREES["lightgbm"]().fit(transform(X), y)
    wide = Cast("float64")
    columns = [
        Column(Raw(0), (wide, Arithmetic("subtract", 0.3, True))),
        Column(Raw(1), (wide, Function("sin"))),
        *(Column(Raw(j), (wide,)) for j in (2, 3)),
    ]
    result = check(model, columns, X, transform)
    assert result.single is not None and result.single.compare_dtype == "float64"


def test_what_no_split_reads_is_not_fed() -> None:
    """Columns without splits vanish; trees that are leaves need a column all the same."""
    X = numbers()[0]
    model = TREES["forest"]().set_params(max_leaf_nodes=4).fit(X * [1, 1e-9, 1e-9, 1], X[:, 0])
    result = folded(model, [Column(Raw(j), (Function("negative"),)) for j in range(COLUMNS)])
    assert {feed.source for feed in result.feeds.feeds} < {Raw(j) for j in range(COLUMNS)}
    stump = TREES["forest"]().fit(X, np.ones(ROWS))
    result = folded(stump, [Column(Raw(j)) for j in range(COLUMNS)])
    assert result.anchor.n_features == len(result.feeds.feeds) == 1
    assert feed_matrix(result.feeds.feeds, [np.array(["any", None], object)], "float32").tolist() == [
        [0],
        [0],
    ]


def test_decided_splits_vanish() -> None:
    """An indicator of what is never missing, and numbers beyond what a clip lets pass."""
    X, y = numbers()
    model = TREES["forest"]().fit(X, y)
    columns = [Column(Raw(j), (Clip(100.0, 200.0),), allow_nan=False) for j in range(COLUMNS)]
    result = check(model, columns, X, lambda rows: np.clip(rows, 100, 200).astype(rows.dtype))
    assert result.anchor.n_nodes < from_object(model).anchor.n_nodes / 4
    columns = [Column(Raw(j), (IsMissing(),), allow_nan=False) for j in range(COLUMNS)]
    result = check(model, columns, X, np.zeros_like)
    assert result.anchor.n_nodes == result.anchor.n_trees


def test_what_was_done_is_told() -> None:
    """In numbers of columns and thresholds."""
    X, y = numbers()
    fitted = preprocessing.StandardScaler().fit(X)
    model = TREES["forest"]().set_params(max_depth=1).fit(fitted.transform(X), y)
    result = folded(model, [Column(Raw(j), standard(fitted, j)) for j in range(COLUMNS)])
    used = len(result.feeds.feeds)
    assert result.rewrites == (
        *((f"{used} of 4 columns are read",) if used < 4 else ()),
        f"scalers and imputers of {used} columns: moved into 8 thresholds",
        f"for float64 rows, kernels for CPUs compute the scalers of {used} columns",
    )


@pytest.mark.parametrize("number", [False, True])
def test_numbers_for_codes_are_rounded_as_those_beside_them(number: bool) -> None:
    """XGBoost splits at values: where float32 rounds them otherwise, float32 rows need their own trees."""
    words_, y = words()
    encoder = preprocessing.OneHotEncoder(dtype=np.float32, sparse_output=False).fit(words_)
    beside = np.arange(len(y), dtype=np.float32)[:, None] % 5

    def rows_of(dtype: str) -> np.ndarray:
        return np.column_stack([encoder.transform(words_), *([beside] if number else [])]).astype(dtype)

    for scale in (0.03, 0.12, 0.29):
        step = Arithmetic("divide", scale, True)
        divided = {dtype: step.apply(rows_of(dtype)) for dtype in ("float32", "float64")}
        model = TREES["xgboost"]().fit(divided["float32"], y + (3 * beside[:, 0] if number else 0))
        columns = []
        for j, known in enumerate(encoder.categories_):
            encode = Encode(tuple(known))
            columns += [Column(Raw(j), (encode, Equals((code,)), step)) for code in range(len(known))]
        columns += [Column(Raw(3), (step,))] if number else []
        result = folded(model, columns)
        assert (result.single is not None) == number
        for dtype in ("float64", "float32") if number else ("float64",):
            raw = [*words_.T, beside[:, 0].astype(dtype)]
            trees = result.single if dtype == "float32" and result.single is not None else result.anchor
            matrix = feed_matrix(result.feeds.feeds, raw, trees.compare_dtype)
            assert_same_leaves(model, reached(trees, matrix), divided[dtype])
