"""Scalers, to the bit, in float32 and in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.transformers import apply
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Column, Raw, Table
from tests.frontends.transformers.oracle import PLACE, check, raw_of, record_of, table_of

SCALERS = {
    "standard": StandardScaler(),
    "without mean": StandardScaler(with_mean=False),
    "without scale": StandardScaler(with_std=False),
    "neither": StandardScaler(with_mean=False, with_std=False),
    "minmax": MinMaxScaler((-0.3, 0.9)),
    "minmax clipped": MinMaxScaler(clip=True),
    "maxabs": MaxAbsScaler(),
    "maxabs clipped": MaxAbsScaler(clip=True),
    "robust": RobustScaler(),
    "robust unit variance": RobustScaler(unit_variance=True, quantile_range=(10, 80)),
    "robust scale alone": RobustScaler(with_centering=False),
}


def rows_of(seed: int, dtype: str, n: int = 300, nan: bool = True) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)) * [1, 1e-3, 1e5, 7, 0.1, 3] + [0, 5, 1e6, -3, 0, 0.1]
    x[:, 4] = 2.5
    if nan:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("fitted", ["float32", "float64"])
@pytest.mark.parametrize("name", SCALERS)
def test_scalers_round_as_the_library(name: str, fitted: str, dtype: str) -> None:
    scaler = SCALERS[name].fit(rows_of(0, fitted))
    table = check(scaler, rows_of(1, dtype))
    assert all(column.allow_nan and not column.allow_inf for column in table.columns)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_normalizer(norm: str, dtype: str) -> None:
    rows = rows_of(1, dtype, nan=False)
    rows[3] = 0
    table = check(Normalizer(norm).fit(rows), rows)
    with pytest.raises(InputError, match="NaN"):
        evaluate(table, raw_of(rows_of(1, dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binarizer(dtype: str) -> None:
    rows = rows_of(1, dtype, nan=False)
    rows[5:40, 0] = np.array(0.1, dtype)
    table = check(Binarizer(threshold=0.1).fit(rows), rows)
    assert not any(column.allow_nan or column.allow_inf for column in table.columns)


@pytest.mark.parametrize(
    "last",
    [
        MaxAbsScaler(),
        StandardScaler(with_mean=False),
        RobustScaler(with_centering=False),
        Normalizer("l1"),
        Normalizer("l2"),
        Normalizer("max"),
        Binarizer(threshold=0.5),
    ],
)
def test_sparse_rows_are_scaled_as_the_library_does(last: Any) -> None:
    rows = np.random.default_rng(0).integers(0, 5, (200, 3)).astype(float)
    pipe = make_pipeline(OneHotEncoder(handle_unknown="ignore"), last).fit(rows)
    assert sparse.issparse(pipe.transform(rows))
    check(pipe, rows + np.eye(200, 3))


@pytest.mark.parametrize(
    "function", [None, np.log1p, np.sqrt, np.square, np.abs, np.expm1, np.sin, np.cbrt, np.sign]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_numpy(function: Any, dtype: str) -> None:
    rows = np.abs(rows_of(2, dtype)) / 1e6
    check(FunctionTransformer(function, feature_names_out="one-to-one").fit(rows), rows)
    check(make_pipeline(FunctionTransformer(function), StandardScaler()).fit(rows), rows)


def twice(x: np.ndarray) -> np.ndarray:
    return 2 * x


@pytest.mark.parametrize(
    ("transformer", "said"),
    [
        (FunctionTransformer(twice), r"function tests\.frontends\.transformers\.test_scaling\.twice"),
        (FunctionTransformer(np.log1p, kw_args={"out": None}), "numpy.log1p the argument 'out'"),
        (FunctionTransformer(np.nan_to_num), "function numpy.nan_to_num"),
    ],
)
def test_other_functions_are_refused_by_name(transformer: Any, said: str) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        table_of(transformer, 3)


def test_chains_share_the_types_of_their_steps() -> None:
    for dtype in ("float32", "float64"):
        rows = rows_of(3, dtype)
        check(
            make_pipeline(MinMaxScaler(), VarianceThreshold(), StandardScaler(), RobustScaler()).fit(rows),
            rows,
        )


@pytest.mark.filterwarnings("ignore:Feature 4 is constant")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [MinMaxScaler(clip=True)],
        [Binarizer()],
        [StandardScaler(), Binarizer(threshold=0.3)],
        [KBinsDiscretizer(3, encode="ordinal", quantile_method="averaged_inverted_cdf")],
        [QuantileTransformer(n_quantiles=9)],
        [SimpleImputer(), Binarizer()],
        [FunctionTransformer(np.arctan), Binarizer()],
        [FunctionTransformer(np.arctan), MinMaxScaler(clip=True)],
    ],
    ids=str,
)
def test_infinities_and_nan_are_refused_where_the_library_refuses(steps: list[Any], value: float) -> None:
    rows = rows_of(4, "float64", nan=False)
    pipeline = make_pipeline(*steps).fit(rows)
    table = table_of(pipeline, 6)
    rows[3, 2] = value
    try:
        expected = pipeline.transform(rows)
    except ValueError:
        with pytest.raises(InputError, match=r"NaN|infinity"):
            evaluate(table, raw_of(rows))
    else:
        np.testing.assert_allclose(evaluate(table, raw_of(rows)), expected, 1e-12, 1e-12)


def test_constants_of_older_releases_are_not_rounded_first() -> None:
    """Before scikit-learn 1.8, float32 rows met float64 constants, in place."""
    scaler = StandardScaler().fit(rows_of(0, "float64"))
    record = record_of(scaler)
    record.attributes["_sklearn_version"] = "1.5.2"
    table = apply(record, Table(tuple(Column(Raw(i)) for i in range(6))), PLACE)
    expected = rows_of(1, "float32")
    newest = scaler.transform(expected)
    expected -= scaler.mean_
    expected /= scaler.scale_
    np.testing.assert_array_equal(evaluate(table, raw_of(rows_of(1, "float32"))), expected)
    assert np.any(np.nan_to_num(expected) != np.nan_to_num(newest))


def test_functions_as_older_releases_of_numpy_pickled_them() -> None:
    record = record_of(FunctionTransformer(np.log1p).fit(np.eye(2)))
    named = Record(Global("numpy.core", "_ufunc_reconstruct"), ("numpy.core._multiarray_umath", "log1p"))
    record.attributes["func"] = named
    table = apply(record, Table((Column(Raw(0)), Column(Raw(1)))), PLACE)
    np.testing.assert_array_equal(evaluate(table, raw_of(np.eye(2))), np.log1p(np.eye(2)))
    record.attributes["func"] = Record(Global("numpy.core", "_ufunc_reconstruct"), ("numpy", "add"))
    with pytest.raises(UnsupportedModel, match="has the function"):
        apply(record, Table((Column(Raw(0)), Column(Raw(1)))), PLACE)
