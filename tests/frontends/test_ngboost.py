"""NGBoost against the library: sums of learners for each parameter, and means of distributions."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from tests.frontends.predictors.oracle import found
from tests.oracle import edge_rows

ngboost = pytest.importorskip("ngboost")
from ngboost.distns import (  # noqa: E402
    Exponential,
    Gamma,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    Poisson,
    TFixedDf,
    k_categorical,
)

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(4)
X = RNG.normal(size=(200, 4))
Y = np.exp(X[:, 0] + 0.3 * RNG.normal(size=200)) + 1.0


def fitted(cls: str, y: Any, **options: Any) -> Any:
    model = getattr(ngboost, cls)(
        n_estimators=20, learning_rate=0.1, verbose=False, random_state=1, **options
    )
    return model.fit(X, y)


@pytest.mark.parametrize("dist", [Normal, LogNormal, Exponential, Laplace, TFixedDf, Gamma, Poisson])
def test_regressors(dist: Any):
    y = np.round(Y) if dist is Poisson else Y
    model = fitted("NGBRegressor", y, Dist=dist, col_sample=0.5)
    graph = from_object(model)
    for dtype in ("float64", "float32"):
        rows = edge_rows(graph, dtype)
        np.testing.assert_allclose(found(graph, rows), model.predict(rows), rtol=1e-12)
        raw = np.atleast_2d(found(graph, rows, "raw").T).T
        np.testing.assert_allclose(raw, model.pred_param(rows), rtol=1e-12, atol=1e-13)
    assert np.isnan(rows).any()


@pytest.mark.parametrize("classes", [2, 4])
def test_classifiers(classes: int):
    y = np.digitize(X[:, 1] + 0.2 * RNG.normal(size=200), [-0.5, 0.0, 0.5][: classes - 1])
    model = fitted("NGBClassifier", y, Dist=k_categorical(classes), minibatch_frac=0.7)
    graph = from_object(model)
    rows = edge_rows(graph, "float64")
    np.testing.assert_array_equal(found(graph, rows), model.predict(rows))
    np.testing.assert_allclose(found(graph, rows, "proba"), model.predict_proba(rows), rtol=1e-12)


def test_survival_and_a_file(tmp_path: Path):
    model = ngboost.NGBSurvival(n_estimators=10, verbose=False, random_state=1).fit(X, Y, X[:, 2] > -1)
    Path(tmp_path, "m.pkl").write_bytes(pickle.dumps(model))
    for graph in (from_object(model), load_model(tmp_path / "m.pkl")):
        np.testing.assert_allclose(found(graph, X), model.predict(X), rtol=1e-12)


def test_linear_learners():
    model = fitted("NGBRegressor", Y, Base=Ridge(alpha=0.1), col_sample=0.5)
    np.testing.assert_allclose(found(from_object(model), X), model.predict(X), rtol=1e-11)


def test_behind_a_step():
    scaler, model = StandardScaler().fit(X), fitted("NGBRegressor", Y)
    # A pipeline of scikit-learn 1.9 takes NGBoost's estimators for unfitted when it predicts.
    graph = from_object(make_pipeline(scaler, model))
    np.testing.assert_allclose(found(graph, X), model.predict(scaler.transform(X)), rtol=1e-12)


def test_refusals():
    with pytest.raises(UnsupportedModel, match="distribution HalfNormal, which is not supported; supported"):
        from_object(fitted("NGBRegressor", Y, Dist=HalfNormal))
    with pytest.raises(UnsupportedModel, match="a RandomForestRegressor among its learners"):
        from_object(fitted("NGBRegressor", Y, Base=RandomForestRegressor(2)))
    with pytest.raises(UnsupportedModel, match="among its learners"):
        from_object(fitted("NGBRegressor", Y, Base=[Ridge(), DecisionTreeRegressor(max_depth=2)]))
    with pytest.raises(UnsupportedModel, match="is not fitted"):
        from_object(ngboost.NGBRegressor())
    model = fitted("NGBRegressor", Y)
    model.scalings = model.scalings[1:]
    with pytest.raises(ModelError, match="is damaged"):
        from_object(model)
