"""CatBoost's estimators in pickles, in pipelines and ensembles, and as packages; from files on the shell."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.cli.main import main
from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import load_model
from hbtvm.graph.networks.network import Network
from tests.by_reference import predict
from tests.data.catboost.make import frame

catboost = pytest.importorskip("catboost")

OPTIONS: dict[str, Any] = {
    "iterations": 4, "depth": 3, "thread_count": 1, "verbose": False, "allow_writing_files": False,
}  # fmt: skip
FILES = Path(__file__).parents[2] / "data" / "catboost"


@functools.cache
def data() -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of numbers and categories, and a number to predict."""
    X = frame()
    return X, (X["amount"].fillna(0) + X["shop"].str.len() + (X["day"] > 4)).to_numpy()


def test_pickles(tmp_path: Path) -> None:
    X, y = data()
    model = catboost.CatBoostClassifier(cat_features=["city", "shop"], **OPTIONS).fit(X, y > np.median(y))
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    joblib.dump(model, tmp_path / "model.joblib", compress=3)
    for name in ("model.pkl", "model.joblib"):
        graph = load_model(tmp_path / name)
        labels = predict(graph, X)
        assert labels.dtype == bool and np.array_equal(labels, model.predict(X))
        np.testing.assert_allclose(predict(graph, X, "proba"), model.predict_proba(X), rtol=1e-9)


def test_a_threshold_of_probability() -> None:
    X, y = data()
    model = catboost.CatBoostClassifier(cat_features=["city", "shop"], **OPTIONS).fit(X, y > np.median(y))
    model.set_probability_threshold(0.7)
    labels = predict(load_model(model), X)
    assert np.array_equal(labels, model.predict(X))
    assert not np.array_equal(labels, model.predict_proba(X)[:, 1] > 0.5)


def test_not_fitted() -> None:
    with pytest.raises(UnsupportedModel, match="the CatBoostRegressor is not fitted"):
        load_model(catboost.CatBoostRegressor())


@pytest.mark.parametrize("kind", ["text", "embedding"])
def test_features_beside_numbers_and_categories(kind: str) -> None:
    X, y = data()
    column = X["shop"] + " of " + X["city"] if kind == "text" else [[row, 1.0 - row] for row in y]
    model = catboost.CatBoostClassifier(**{f"{kind}_features": ["more"]}, **OPTIONS)
    model.fit(X[["amount"]].assign(more=column), y > np.median(y))
    with pytest.raises(UnsupportedModel, match=f"the CatBoost model reads {kind} features; supported are"):
        load_model(model)


def test_classes_that_training_lacked() -> None:
    X, _ = data()
    model = catboost.CatBoostClassifier(loss_function="MultiClass", classes_count=5, **OPTIONS)
    model.fit(X[["amount"]], X["day"] % 3)
    with pytest.raises(UnsupportedModel, match="has 5 classes, and training had rows of 3"):
        load_model(model)


def _passthrough() -> Any:
    steps = make_column_transformer((SimpleImputer(), ["amount"]), remainder="passthrough")
    return steps.set_output(transform="pandas")


PIPELINES: dict[str, Any] = {
    "no step": lambda: make_pipeline(catboost.CatBoostRegressor(cat_features=["city", "shop"], **OPTIONS)),
    "categories behind steps": lambda: make_pipeline(
        _passthrough(), catboost.CatBoostRegressor(cat_features=[1, 2, 3], max_ctr_complexity=3, **OPTIONS)
    ),
    "filled categories": lambda: make_pipeline(
        make_column_transformer((SimpleImputer(strategy="constant", fill_value="none"), ["city", "shop"])),
        catboost.CatBoostRegressor(cat_features=[0, 1], **OPTIONS),
    ),
    "numbers": lambda: make_pipeline(
        make_column_transformer((StandardScaler(), ["amount", "day"])), catboost.CatBoostRegressor(**OPTIONS)
    ),
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_pipelines(kind: str) -> None:
    X, y = data()
    X = X.astype({"city": object, "shop": object})
    if kind == "filled categories":
        X.loc[::5, "city"] = np.nan
    model = PIPELINES[kind]().fit(X, y)
    graph = load_model(model)
    assert not isinstance(graph.anchor, Network)
    np.testing.assert_allclose(predict(graph, X), model.predict(X), rtol=1e-9)


def test_in_ensembles() -> None:
    X, y = data()
    rows = X[["amount", "day"]].to_numpy()
    regressor = catboost.CatBoostRegressor(**OPTIONS)
    both = make_pipeline(
        SimpleImputer(),
        VotingRegressor([("a", regressor), ("b", catboost.CatBoostRegressor(**{**OPTIONS, "depth": 2}))]),
    )
    targets = np.column_stack([y, -y])
    for model, y_fit in ((both, y), (MultiOutputRegressor(regressor), targets)):
        model.fit(rows, y_fit)
        np.testing.assert_allclose(predict(load_model(model), rows), model.predict(rows), rtol=1e-9)
    calibrated = CalibratedClassifierCV(catboost.CatBoostClassifier(**OPTIONS), cv=2).fit(rows, y > 6)
    assert load_model(calibrated).model == "CalibratedClassifierCV"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the stored model of categories, compiled by the command."""
    path = tmp_path_factory.mktemp("catboost") / "shop.tar"
    model = str(FILES / "1.2.10-counters.cbm")
    assert main(["compile", model, "-o", str(path), "--batch-size", "64", "--threads", "1"]) == 0
    return path


def test_a_package_of_categories(shop: Path) -> None:
    X, package = frame(), hbtvm.load(shop)
    answers = np.load(FILES / "1.2.10-counters.npy")
    np.testing.assert_allclose(package.predict(X), answers, rtol=1e-6)
    np.testing.assert_allclose(package.predict(X.iloc[:1]), answers[:1], rtol=1e-6)
    with pytest.raises(InputError, match="column 'city', row 3: expected a category"):
        package.predict(X.assign(city=["Bern"] * 3 + [None] * 197))


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows(shop: Path, threads: int) -> None:
    """Blocks of a long frame have the answers of short frames."""
    X, package = frame(5000), hbtvm.load(shop, threads=threads)
    parts = [package.predict(X.iloc[i : i + 500]) for i in range(0, 5000, 500)]
    for _ in range(2):  # at first, code is loaded
        np.testing.assert_array_equal(package.predict(X), np.concatenate(parts))
    assert len(np.unique(parts)) > 100
    with pytest.raises(InputError, match="column 'city', row 4321: expected a category"):
        package.predict(X.assign(city=["Bern"] * 4321 + [None] * 679))


def test_commands(shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    frame().to_csv(data, index=False)
    assert main(["predict", str(shop), str(data), "-o", str(out)]) == 0
    answers = np.load(FILES / "1.2.10-counters.npy")
    np.testing.assert_allclose(pd.read_csv(out)["prediction"], answers, rtol=1e-6)
    assert main(["inspect", str(shop)]) == 0
    assert "catboost CatBoostRegressor" in capsys.readouterr().out
    model = str(FILES / "1.2.10-counters.json")
    assert main(["check", str(shop), "--model", model, "--data", str(data)]) == 0
    assert "the package agrees with the library in all 200 rows" in capsys.readouterr().out
    assert main(["export", str(shop), "-o", str(tmp_path / "c")]) == 2
    assert "the operation Counters can't be computed outside of Python" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_package_of_classes() -> None:
    """Labels of several classes have shape (n, 1), as CatBoost returns them."""
    rows = frame().drop(columns=["city", "shop"])
    package = hbtvm.compile(FILES / "1.2.10-steps.cbm", batch_sizes=64, threads=1)
    raw = np.load(FILES / "1.2.10-steps.npy")
    labels = package.predict(rows)
    assert labels.dtype == object and labels.shape == (200, 1)
    assert np.array_equal(labels[:, 0], np.array(["high", "low", "mid"])[raw.argmax(axis=1)])
    np.testing.assert_allclose(package.predict(rows, output="raw"), raw, rtol=1e-5)
