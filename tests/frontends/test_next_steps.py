"""Refusals say the next step: the slice that compiles, other libraries' files, a column's right name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import DBSCAN
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import hbtvm
from hbtvm.errors import InputError, ModelError, PackageError, UnsupportedModel
from hbtvm.frontends import load_model

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(60, 3)), columns=["age", "income", "tenure"])
Y = (X["age"] > 0).to_numpy(int)


class Ratios(TransformerMixin, BaseEstimator):
    """A user's own step."""

    def fit(self, X: Any, y: Any = None) -> Ratios:
        self.n_features_in_ = np.shape(X)[1]
        return self

    def transform(self, X: Any) -> Any:
        return np.asarray(X) * 2

    def __sklearn_is_fitted__(self) -> bool:
        return True


def test_a_step_of_ones_own_in_front() -> None:
    model = Pipeline([("ratios", Ratios()), ("scale", StandardScaler()), ("clf", LogisticRegression())])
    model.fit(X, Y)
    with pytest.raises(UnsupportedModel) as error:
        load_model(model)
    text = str(error.value)
    assert text.startswith("step 'ratios' is a Ratios (tests), which is not supported: hbtvm")
    assert "docs/reference/models.md" in text
    assert "hbtvm.compile(model[1:]) compiles the steps behind it, for what step 'ratios' returns" in text
    assert "hbtvm.compile(model, python_steps='keep') of a model in memory keeps step 'ratios'" in text
    assert len(text) < 500
    ours = hbtvm.compile(model[1:], batch_sizes=10, threads=1)
    rows = model[:1].transform(X)
    np.testing.assert_allclose(ours.predict_proba(rows), model.predict_proba(X), rtol=1e-5)


def test_a_last_step_that_does_not_compile() -> None:
    model = make_pipeline(StandardScaler(), DBSCAN()).fit(X)
    with pytest.raises(
        UnsupportedModel, match=r"model\[:1\], whose transform gives step 'dbscan' its rows\."
    ):
        load_model(model)
    load_model(model[:1])


def test_steps_within_steps_and_functions() -> None:
    prep = ColumnTransformer([("own", Ratios(), ["age"]), ("rest", StandardScaler(), ["income"])])
    model = Pipeline([("prep", prep), ("clf", LogisticRegression())]).fit(X, Y)
    with pytest.raises(UnsupportedModel, match=r"step 'prep__own' is a Ratios .*model\[1:\]\) compiles"):
        load_model(model)
    load_model(model[1:])
    inner = make_pipeline(FunctionTransformer(lambda rows: np.sort(rows)), LogisticRegression()).fit(X, Y)
    with pytest.raises(UnsupportedModel, match=r"<lambda>.*model\[1:\]\) compiles"):
        load_model(inner)
    alone = make_pipeline(Ratios()).fit(X)
    with pytest.raises(UnsupportedModel) as error:
        load_model(alone)
    assert "model[" not in str(error.value)


def test_other_libraries_and_files(tmp_path: Path) -> None:
    """The bytes are CatBoost's; the library is not needed to say what is wrong."""
    (tmp_path / "churn.cbm").write_bytes(b"CBM10)\0\0\x14" + bytes(100))
    (tmp_path / "churn.json").write_text('{\n  "features_info":\n    {"float_features": []}}')
    for name in ("churn.cbm", "churn.json"):
        with pytest.raises(ModelError, match=f"{name}: the CatBoost model is cut short or damaged"):
            load_model(tmp_path / name)
    boost = type("CatBoostClassifier", (), {"__module__": "catboost.core"})()
    with pytest.raises(UnsupportedModel, match="the CatBoostClassifier is not fitted"):
        load_model(boost)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "model.pkl").write_bytes(b"")
    with pytest.raises(ModelError, match=r"it is a folder; pass the model in it, .*models/model\.pkl"):
        load_model(folder)


def test_loading_a_model_as_a_package(tmp_path: Path) -> None:
    path = tmp_path / "churn.pkl"
    pd.to_pickle(LogisticRegression(), path)
    with pytest.raises(PackageError, match="seems to be a trained model, expected a package; compile it"):
        hbtvm.load(path)
    with pytest.raises(PackageError, match="seems to be a trained model"):
        hbtvm.load(path.read_bytes())


@pytest.fixture(scope="module")
def forest() -> hbtvm.Model:
    model = RandomForestClassifier(2, max_depth=2, random_state=0).fit(X, Y)
    return hbtvm.compile(model, batch_sizes=10, threads=1)


@pytest.fixture(scope="module")
def by_name() -> hbtvm.Model:
    words = X.assign(city=np.where(Y > 0, "Bern", "Rome"))
    prep = ColumnTransformer([("city", OneHotEncoder(), ["city"])], remainder="passthrough")
    return hbtvm.compile(make_pipeline(prep, LogisticRegression()).fit(words, Y), batch_sizes=10, threads=1)


def test_misspelt_columns(forest: hbtvm.Model, by_name: hbtvm.Model) -> None:
    wrong = X.rename(columns={"tenure": "tenur"})
    frames = [wrong, pl.from_pandas(wrong), pa.Table.from_pandas(wrong), wrong.to_dict("records")]
    for rows in (*frames, frames[-1][0]):
        with pytest.raises(
            InputError, match=r"column 'tenure' is missing.*; did you mean 'tenure' by 'tenur'\?"
        ):
            forest.predict(rows)
    cased = X.rename(columns={"age": "Age"}).assign(city="Bern")
    for rows in (cased, pl.from_pandas(cased), cased.to_dict("records"), cased.to_dict("records")[0]):
        with pytest.raises(InputError, match=r"column 'age'.* is missing.*; did you mean 'age' by 'Age'\?"):
            by_name.predict(rows)
    with pytest.raises(InputError, match=r"column 'tenure' is missing\.$"):
        forest.predict(X.drop(columns="tenure").assign(zebra=1.0))
