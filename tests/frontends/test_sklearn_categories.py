"""Category columns of HistGradientBoosting, against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from tests.by_reference import predict


def rows(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3))
    X[:, 1] = rng.integers(0, 5, n)
    y = X[:, 0] + (X[:, 1] == 2) * 2 - (X[:, 1] == 4)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("kind", [HistGradientBoostingRegressor, HistGradientBoostingClassifier])
def test_infinite_categories_are_refused(kind: Any, value: float) -> None:
    X, y = rows()
    model = kind(max_iter=5, categorical_features=[1]).fit(X, np.round(y))
    graph = from_object(model)
    np.testing.assert_allclose(predict(graph, X), model.predict(X), rtol=1e-12)
    bad = X.copy()
    bad[7, 1] = value
    typed = pd.DataFrame(bad).astype({1: "category"})
    for given in (bad, bad.astype(np.float32), pd.DataFrame(bad), typed):
        with pytest.raises(ValueError, match="infinity"):
            model.predict(given)
        with pytest.raises(InputError, match=r"column 1.*got infinity"):
            predict(graph, given)
    # Among objects, and in a column of numbers, scikit-learn takes them.
    for given in (bad.astype(object), pd.DataFrame(bad).astype({1: object})):
        np.testing.assert_allclose(predict(graph, given), model.predict(given), rtol=1e-12)
    X[7, 0] = value
    np.testing.assert_allclose(predict(graph, X), model.predict(X), rtol=1e-12)


def test_missing_and_unknown_categories_are_taken() -> None:
    X, y = rows()
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features=[1]).fit(X, y)
    X[3:9, 1] = [np.nan, 77, -1, 2.5, 1e300, 4]
    np.testing.assert_allclose(predict(from_object(model), X), model.predict(X), rtol=1e-12)
