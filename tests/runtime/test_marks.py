"""Marks of missing values: bools as from the library, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import MissingIndicator
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import MinMaxScaler

import hbtvm
from hbtvm.errors import InputError


def rows_of(missing: Any, dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.integers(1, 9, (200, 4)).astype(dtype)
    x[rng.random(x.shape) < 0.2] = missing
    x[:, 1] = 5
    return x


@pytest.mark.parametrize("features", ["missing-only", "all"])
@pytest.mark.parametrize("missing", [np.nan, 0, -1.0])
def test_as_the_library(features: str, missing: float) -> None:
    X = rows_of(missing)
    indicator = MissingIndicator(missing_values=missing, features=features).fit(X)
    model = hbtvm.compile(indicator)
    kinds = [np.float64, np.float32, *([np.int32] if missing == missing else [])]
    for dtype in kinds:
        rows = X.astype(dtype)
        for given in (rows, np.asfortranarray(rows), rows[:1], rows[::3]):
            found, expected = model.transform(given), indicator.transform(given)
            assert found.dtype == expected.dtype == bool
            assert found.flags.c_contiguous
            np.testing.assert_array_equal(found, expected)
    for other in (X.tolist(), pd.DataFrame(X)):
        found = model.transform(other)
        assert found.dtype == bool
        np.testing.assert_array_equal(found, indicator.transform(X))
    bad: list[tuple[float, str]] = [(np.inf, "infinity"), (-np.inf, "infinity")]
    if missing == missing:
        bad.append((np.nan, "NaN"))
    for value, message in bad:
        X[7, 2] = value
        with pytest.raises(InputError, match=rf"column 2, row 7: got {message}"):
            model.transform(X)
    for wrong in (X[:, :3], X[0], np.array(3.0)):
        with pytest.raises(InputError, match="columns"):
            model.transform(wrong)
    with pytest.raises(InputError, match="row"):
        model.transform(X[:0])


def test_marks_of_texts() -> None:
    X = np.array([["a", None], [None, "b"], ["c", "d"]], object)
    indicator = MissingIndicator(missing_values=None, features="all").fit(X)
    found = hbtvm.compile(indicator).transform(X)
    assert found.dtype == bool
    np.testing.assert_array_equal(found, indicator.transform(X))


def test_marks_in_a_frame() -> None:
    frame = pd.DataFrame(rows_of(np.nan), columns=list("abcd"))
    indicator = MissingIndicator(features="all").set_output(transform="pandas").fit(frame)
    pd.testing.assert_frame_equal(hbtvm.compile(indicator).transform(frame), indicator.transform(frame))


def test_several_indicators() -> None:
    X = rows_of(np.nan)
    union = FeatureUnion([("a", MissingIndicator(missing_values=np.nan)), ("b", MissingIndicator())]).fit(X)
    for rows in (X, X[:1], X.astype(np.float32)):
        found = hbtvm.compile(union).transform(rows)
        assert found.dtype == bool
        np.testing.assert_array_equal(found, union.transform(rows))


def test_numbers_are_made_of_marks() -> None:
    X = rows_of(np.nan)
    scaled = make_pipeline(MissingIndicator(), MinMaxScaler((1, 3))).fit(X)
    found = hbtvm.compile(scaled).transform(X)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, scaled.transform(X))
