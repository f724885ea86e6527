"""Trees behind transformers: every row ends in the leaf that the libraries' own operations lead to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn import ensemble, impute, preprocessing
from sklearn.pipeline import make_pipeline

from hbtvm.frontends.files import from_object
from hbtvm.graph.ensemble import TreeEnsemble
from hbtvm.graph.evaluate import feed_matrix
from hbtvm.graph.fold_trees import Folded, fold
from hbtvm.graph.reference import leaves
from hbtvm.graph.steps import (
    Above,
    Arithmetic,
    Cast,
    Clip,
    Encode,
    Equals,
    Fill,
    Function,
    IsMissing,
    Lookup,
    Step,
    Within,
    ZeroIsMissing,
)
from hbtvm.graph.table import Column, Raw, Table

ROWS, COLUMNS = 400, 4
Steps = tuple[Step, ...]

TREES: dict[str, Callable[[], Any]] = {
    "forest": lambda: ensemble.RandomForestRegressor(8, max_leaf_nodes=40, random_state=0),
    "extra": lambda: ensemble.ExtraTreesRegressor(8, max_leaf_nodes=40, random_state=0),
    "hist": lambda: ensemble.HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=2),
    "lightgbm": lambda: lgb.LGBMRegressor(n_estimators=8, min_child_samples=2, n_jobs=1, verbose=-1),
    "xgboost": lambda: xgb.XGBRegressor(n_estimators=8, max_depth=5, n_jobs=1),
}


def numbers(missing: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows of columns of several magnitudes, and targets."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, COLUMNS)) * [1, 1e-3, 300, 10] + [5, 0, -1e4, 30]
    X[:, 3] = np.round(np.abs(X[:, 3]))
    y = X[:, 0] + 1e3 * X[:, 1] + np.sin(X[:, 2]) + (X[:, 3] % 3)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def marked(trees: TreeEnsemble) -> TreeEnsemble:
    """The ensemble with each node's own number as its value, by which a leaf is known after folding."""
    return replace(trees, value=np.arange(trees.n_nodes, dtype=np.float64)[:, None])


def reached(trees: TreeEnsemble, matrix: np.ndarray) -> np.ndarray:
    """The marks of the leaves that rows reach, shape (n, T)."""
    return trees.value[leaves(trees, matrix) + trees.offset[:-1], 0]


def folded(model: Any, columns: Sequence[Column], sparse: bool = False) -> Folded:
    """Fold a fitted model's trees behind columns."""
    graph = from_object(model)
    assert isinstance(graph.anchor, TreeEnsemble)
    spec = graph.input
    return fold(Table(tuple(columns), sparse), marked(graph.anchor), None, spec.allow_nan, spec.allow_inf)


def library_leaves(model: Any, matrix: np.ndarray) -> np.ndarray:
    """The leaves that the library itself says, by whatever numbers, shape (n, T)."""
    if isinstance(model, lgb.LGBMRegressor):
        return np.asarray(model.predict(matrix, pred_leaf=True))
    if isinstance(model, ensemble.HistGradientBoostingRegressor):
        graph = from_object(model)
        return leaves(graph.anchor, matrix)
    return np.asarray(model.apply(matrix))


def assert_same_leaves(model: Any, got: np.ndarray, matrix: Any) -> None:
    """Check that marks and the library's leaves of the same rows stand for each other, tree by tree."""
    dense = matrix.toarray() if hasattr(matrix, "toarray") and not isinstance(model, xgb.XGBModel) else matrix
    expected = library_leaves(model, dense).reshape(got.shape)
    for ours, theirs in zip(got.T, expected.T, strict=True):
        pairs = np.unique(np.stack([ours, theirs]), axis=1).shape[1]
        assert pairs == len(np.unique(ours)) == len(np.unique(theirs))


def edges(trees: TreeEnsemble, result: Folded, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows whose values are raw thresholds, or up to two floats beside them."""
    rows = rng.choice(X.ravel(), (600, X.shape[1])).astype(X.dtype)
    for at, feed in enumerate(result.feeds.feeds):
        assert isinstance(feed.source, Raw)
        rows[:, feed.source.index] = rng.choice(X[:, feed.source.index], len(rows))
        thresholds = trees.threshold[(trees.feature == at) & np.isfinite(trees.threshold)]
        if len(thresholds) and not any(isinstance(step, Arithmetic) for step in feed.steps):
            rows[:, feed.source.index] = rng.choice(thresholds, len(rows))
    for _ in range(2):
        away = rng.choice([-np.inf, 0, np.inf], rows.shape).astype(rows.dtype)
        rows = np.where(away == 0, rows, np.nextafter(rows, away))
    return rows


def check(
    model: Any,
    columns: Sequence[Column],
    X: np.ndarray,
    transform: Callable[[np.ndarray], Any],
    special: Sequence[float] = (),
) -> Folded:
    """Compare leaves for float64 and float32 rows: the given ones, edges, and some with special values."""
    result = folded(model, columns)
    rng = np.random.default_rng(1)
    for dtype in ("float64", "float32"):
        trees = result.single if dtype == "float32" and result.single is not None else result.anchor
        rows = np.concatenate([X.astype(dtype), edges(trees, result, X.astype(dtype), rng)])
        if special:
            odd = rng.choice(rows.ravel(), (300, X.shape[1]))
            odd[rng.random(odd.shape) < 0.4] = rng.choice(np.array(special, dtype))
            for value in special:
                odd[rng.random(odd.shape) < 0.2] = value
            rows = np.concatenate([rows, odd])
        matrix = feed_matrix(result.feeds.feeds, rows.T, trees.compare_dtype)
        behind = np.asarray(transform(rows))
        assert_same_leaves(model, reached(trees, matrix), behind)
        if dtype == "float64" and result.scaled is not None:
            computed = result.scaled.prologue.reference(matrix)
            assert_same_leaves(model, reached(result.scaled.ensemble, computed), behind)
    return result


def standard(one: Any, j: int) -> Steps:
    """Steps of a StandardScaler's column."""
    return Arithmetic("subtract", one.mean_[j], True), Arithmetic("divide", one.scale_[j], True)


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
    assert any("computed by numpy" in one for one in result.told)


WORDS = np.array(["red", "green", "blue", "black", "white", "grey"], object)


def words(n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Rows of strings in three columns, and targets."""
    rng = np.random.default_rng(5)
    X = WORDS[rng.integers(0, [6, 4, 2], (n, 3))]
    y = (X[:, 0] == "blue") * 2.0 + (X[:, 1] == "red") + (X[:, 2] == "red") * (X[:, 0] == "red") * 3
    return X, y + 0.1 * rng.normal(size=n)


def fit_words(trees: str, matrix: Any, y: np.ndarray) -> Any:
    """A model that splits on codes."""
    return TREES[trees]().fit(matrix, y)


def unknown_rows() -> np.ndarray:
    """Rows with words that were not there in training."""
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
    assert result.told == (
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
