"""Imputers and indicators: numbers and strings, and every kind of missing value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hbtvm.errors import InputError
from hbtvm.graph.columns.evaluate import evaluate
from tests.frontends.transformers.oracle import check, raw_of, table_of

pytestmark = pytest.mark.filterwarnings("ignore:Skipping features without any observed values")


def numbers(seed: int, dtype: str = "float64", missing: float = np.nan) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=(200, 5)), 1).astype(dtype)
    x[rng.random(x.shape) < 0.2] = missing
    x[:, 1] = np.round(rng.normal(size=200), 1)
    x[:, 3] = missing if seed == 0 else x[:, 3]
    return x


def words(seed: int, missing: Any) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.choice(["a", "bb", "ccc", "dé"], (150, 4)).astype(object)
    x[rng.random(x.shape) < 0.2] = missing
    x[:, 2] = missing if seed == 0 else "z"
    return x


@pytest.mark.parametrize("indicator", [False, True])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant"])
@pytest.mark.parametrize(
    ("fitted", "dtype"), [("float64", "float64"), ("float32", "float64"), ("float64", "float32")]
)
def test_numbers(strategy: str, empty: bool, indicator: bool, fitted: str, dtype: str) -> None:
    imputer = SimpleImputer(strategy=strategy, keep_empty_features=empty, add_indicator=indicator)
    imputer.fit(numbers(0, fitted))
    table = check(imputer, numbers(1, dtype))
    assert len(table) == 4 + empty + (4 * indicator)
    check(make_pipeline(imputer, StandardScaler()).fit(numbers(0, fitted)), numbers(1, dtype))


@pytest.mark.parametrize("missing", [-1.0, 0.0, -1])
def test_a_number_that_means_missing(missing: float) -> None:
    imputer = SimpleImputer(missing_values=missing, strategy="median", add_indicator=True)
    table = check(imputer.fit(numbers(0, missing=missing)), numbers(1, missing=missing))
    with pytest.raises(InputError, match="NaN"):
        evaluate(table, raw_of(numbers(1)))


@pytest.mark.parametrize("missing", [np.nan, None, "", "?", pd.NA])
@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
@pytest.mark.parametrize("indicator", [False, True])
def test_strings(missing: Any, strategy: str, indicator: bool) -> None:
    fill = "none" if strategy == "constant" else None
    imputer = SimpleImputer(
        missing_values=missing, strategy=strategy, fill_value=fill, add_indicator=indicator
    )
    table = check(imputer.fit(words(0, missing)), words(1, missing))
    assert len(table) == 3 + 4 * indicator


def test_pandas_na_stands_for_every_missing_value() -> None:
    rows = words(1, pd.NA)
    rows[0, 0], rows[1, 0], rows[2, 0] = None, np.nan, pd.NA
    check(SimpleImputer(missing_values=pd.NA, strategy="most_frequent").fit(words(0, pd.NA)), rows)
    frame = pd.DataFrame(
        {"n": pd.array([1, 2, None, 4], "Int64"), "m": pd.array([0.5, None, 1, 2], "Float64")}
    )
    table = table_of(SimpleImputer(missing_values=pd.NA).fit(frame), 2, ["n", "m"])
    plain = frame.to_numpy("float64", na_value=np.nan)
    np.testing.assert_array_equal(
        evaluate(table, raw_of(plain)), SimpleImputer(missing_values=pd.NA).fit_transform(frame)
    )


def test_an_imputer_of_integers_keeps_whole_numbers() -> None:
    rows = np.random.default_rng(0).integers(-1, 4, (50, 3))
    check(SimpleImputer(missing_values=-1, strategy="mean").fit(rows), rows)
    check(SimpleImputer(missing_values=-1, strategy="constant", fill_value=9).fit(rows), rows)


@pytest.mark.parametrize("features", ["missing-only", "all"])
@pytest.mark.parametrize("missing", [np.nan, 0.0])
def test_indicator(features: str, missing: float) -> None:
    indicator = MissingIndicator(features=features, missing_values=missing, error_on_new=False)
    indicator.fit(numbers(0, missing=missing))
    check(indicator, numbers(1, missing=missing))
    sparse = MissingIndicator(features=features, missing_values=missing, error_on_new=False, sparse=True)
    check(sparse.fit(numbers(0, missing=missing)), numbers(1, missing=missing))
    chain = make_pipeline(indicator, StandardScaler()).fit(numbers(0, missing=missing))
    check(chain, numbers(1, "float32", missing=missing))


def test_infinities_are_refused() -> None:
    table = table_of(SimpleImputer().fit(numbers(1)), 5)
    rows = numbers(1)
    rows[0, 0] = np.inf
    with pytest.raises(InputError, match="infinity"):
        evaluate(table, raw_of(rows))


@pytest.mark.parametrize("strategy", ["mean", "most_frequent", "constant"])
@pytest.mark.parametrize("indicator", [False, True])
def test_texts_are_refused_by_imputers_of_numbers(strategy: str, indicator: bool) -> None:
    model = SimpleImputer(strategy=strategy, add_indicator=indicator).fit(numbers(0))
    table = table_of(model, 5)
    rows = numbers(1).astype(object)
    check(model, rows)
    rows[3, 2] = "some text"
    with pytest.raises(ValueError, match=r"non-numeric|does not support"):
        model.transform(rows.astype(str))
    for texts in (rows, rows.astype(str).astype(object)):
        with pytest.raises(InputError, match="expected numbers, got 'some text'"):
            evaluate(table, raw_of(texts))
