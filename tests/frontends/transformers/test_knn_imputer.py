"""``KNNImputer`` against scikit-learn, by the operators' references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.impute import KNNImputer

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.graph.columns.evaluate import evaluate
from tests.frontends.predictors.data import ROWS, X
from tests.frontends.transformers.oracle import raw_of, table_of

RNG = np.random.default_rng(3)


def holes(rows: np.ndarray, share: float) -> np.ndarray:
    result: np.ndarray = np.where(RNG.random(rows.shape) < share, np.nan, rows)
    return result


TRAINING = holes(X, 0.2)
TRAINING[:, 3] = X[:, 3]
NEW = holes(ROWS[:60], 0.4)
NEW[3] = np.nan
"""A row that has nothing in common with any."""


@pytest.mark.parametrize(
    "options",
    [{}, {"weights": "distance"}, {"n_neighbors": 1}, {"n_neighbors": 500}, {"add_indicator": True}],
)
def test_options(options: dict[str, Any]) -> None:
    model = KNNImputer(**options).fit(TRAINING)
    table = table_of(model, 6)
    np.testing.assert_allclose(evaluate(table, raw_of(NEW)), model.transform(NEW), rtol=1e-9)
    assert table.names == tuple(model.get_feature_names_out())
    single = NEW.astype(np.float32)
    np.testing.assert_allclose(evaluate(table, raw_of(single), "float32"), model.transform(single), rtol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_columns_that_training_lacked(keep: bool) -> None:
    training = TRAINING.copy()
    training[:, 2] = np.nan
    model = KNNImputer(keep_empty_features=keep, n_neighbors=3).fit(training)
    np.testing.assert_allclose(evaluate(table_of(model, 6), raw_of(NEW)), model.transform(NEW), rtol=1e-9)


def test_a_number_for_missing() -> None:
    training, rows = (np.nan_to_num(one, nan=-1.0) for one in (TRAINING, NEW))
    model = KNNImputer(missing_values=-1).fit(training)
    np.testing.assert_allclose(evaluate(table_of(model, 6), raw_of(rows)), model.transform(rows), rtol=1e-9)


def test_refusals() -> None:
    with pytest.raises(UnsupportedModel, match="the KNNImputer has custom weights"):
        table_of(KNNImputer(weights=np.exp).fit(TRAINING), 6)
    model = KNNImputer().fit(TRAINING)
    model._fit_X = model._fit_X[:-1]
    with pytest.raises(ModelError, match="training rows have the shape"):
        table_of(model, 6)
