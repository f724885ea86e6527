"""What transforms rows in their own type, and labels by themselves: bit-equal to scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import preprocessing as p
from sklearn.pipeline import make_pipeline

import hbtvm

SCALERS: list[Any] = [
    p.StandardScaler(),
    p.StandardScaler(with_std=False),
    p.StandardScaler(with_mean=False),
    p.RobustScaler(),
    p.RobustScaler(with_scaling=False),
    p.MaxAbsScaler(),
    p.MinMaxScaler((-3, 7), clip=True),
    make_pipeline(p.StandardScaler(), p.MinMaxScaler(), p.RobustScaler()),
]


def numbers(seed: int) -> np.ndarray:
    """Columns far from 0, so that a difference shows how its operands were rounded."""
    rng = np.random.default_rng(seed)
    return rng.normal(rng.uniform(-900, 900, 6), rng.uniform(1, 200, 6), (200, 6))


@pytest.mark.parametrize(("fitted", "dtype"), [("float64", "float32"), ("float32", "float64")])
@pytest.mark.parametrize("scaler", SCALERS, ids=lambda one: str(one)[:40])
def test_scalers_of_float32(scaler: Any, fitted: str, dtype: Any) -> None:
    scaler.fit(numbers(0).astype(fitted))
    rows = numbers(1)
    model = hbtvm.compile(scaler, dtype=dtype, batch_sizes=16, threads=1)
    found, wanted = model.transform(rows.astype("float32")), scaler.transform(rows.astype("float32"))
    assert found.dtype == wanted.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)
    wide = model.transform(rows)
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, scaler.transform(rows), rtol=1e-12, atol=1e-12)


def _dense(rows: Any) -> np.ndarray:
    return rows if isinstance(rows, np.ndarray) else rows.toarray()


@pytest.mark.parametrize("labels", [["b", "a", "c"], [3, 1, 7], [True, False]], ids=str)
def test_labels_by_themselves(labels: list[Any]) -> None:
    values = labels * 3
    for made in (p.LabelEncoder(), p.LabelBinarizer(), p.LabelBinarizer(sparse_output=True)):
        made.fit(values)
        model, wanted = hbtvm.compile(made, batch_sizes=16, threads=1), made.transform(values)
        array = np.array(values)
        for given in (values, array, array.astype(object), array[:, None], pd.Series(values)):
            found = model.transform(given)
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype == np.int64
            np.testing.assert_array_equal(_dense(found), _dense(wanted))
        np.testing.assert_array_equal(_dense(model.transform(values[:1])), _dense(made.transform(values[:1])))
        if isinstance(made, p.LabelEncoder):
            with pytest.raises(hbtvm.InputError):
                model.transform(["z"] if isinstance(labels[0], str) else [99])
