"""RareLabelEncoder before encoders, against the libraries."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, TargetEncoder

import hbtvm
from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import from_live
from hbtvm.frontends.transformers import apply
from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Column, Raw, Table
from tests.frontends.transformers.oracle import PLACE, raw_of, record_of

pytest.importorskip("feature_engine")

from feature_engine import encoding, imputation

ROWS = 200
Y = pd.Series((np.random.default_rng(5).random(ROWS) > 0.5).astype(int))


def frame_of(seed: int, dtype: Any, missing: Any = ..., more: bool = False) -> pd.DataFrame:
    """Categories, two of them rare; `more`: with a new category, and with the name of rare ones."""
    rng = np.random.default_rng(seed)
    shares = [0.4, 0.3, 0.1, 0.06, 0.04, 0.05, 0.05] if more else [0.5, 0.3, 0.1, 0.06, 0.04, 0, 0]
    values = rng.choice(["x", "y", "z", "w", "v", "new", "Rare"], ROWS, p=shares).astype(object)
    if missing is not ...:
        values[rng.random(ROWS) < 0.1] = missing
    if dtype == "category" and more:  # the library adds "Rare" to the categories
        values[values == "Rare"] = "new"
    column = pd.Categorical(values) if dtype == "category" else pd.Series(values, dtype=dtype)
    return pd.DataFrame({"a": column, "b": rng.normal(size=ROWS), "n": rng.integers(0, 4, ROWS)})


def in_column(encoder: Any) -> Any:
    return ColumnTransformer([("a", encoder, ["a"])], remainder="passthrough", sparse_threshold=0)


def encoders(missing: str) -> list[Any]:
    return [
        in_column(OneHotEncoder(handle_unknown="ignore", sparse_output=False)),
        in_column(OneHotEncoder(min_frequency=40, handle_unknown="infrequent_if_exist")),
        in_column(OrdinalEncoder()),
        in_column(OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)),
        in_column(TargetEncoder(random_state=0)),
        encoding.MeanEncoder(variables=["a"], missing_values=missing),
        encoding.OneHotEncoder(variables=["a"]),
        encoding.OrdinalEncoder(variables=["a"], unseen="encode", missing_values=missing),
    ]


def check(pipeline: Any, frame: pd.DataFrame) -> bool:
    """Compare a pipeline with the library, or that both refuse the rows; return whether they are read."""
    names = tuple(frame.columns)
    raw = Table(tuple(Column(Raw(i)) for i in range(len(names))), names=names)
    table = apply(record_of(pipeline), raw, replace(PLACE, names=names))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = pipeline.transform(frame)
        except ValueError:
            with pytest.raises(InputError):
                evaluate(table, raw_of(frame))
            return False
    np.testing.assert_allclose(evaluate(table, raw_of(frame)), np.asarray(expected, float), rtol=1e-15)
    return True


@pytest.mark.parametrize("value", ["Rare", "x"])
@pytest.mark.parametrize("missing", ["raise", "ignore"])
@pytest.mark.parametrize("dtype", ["str", object, "category"])
def test_encoders_behind(dtype: Any, missing: str, value: str) -> None:
    read = refused = 0
    for absent in (..., np.nan) if missing == "ignore" else (...,):
        for encoder in encoders(missing):
            rare = encoding.RareLabelEncoder(
                tol=0.08, n_categories=2, missing_values=missing, replace_with=value, variables=["a"]
            )
            pipeline = make_pipeline(rare, encoder)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    pipeline.fit(frame_of(0, dtype, absent), Y)
                except (TypeError, ValueError):  # the class refuses missing values, or the value is known
                    continue
            for rows in (frame_of(0, dtype), frame_of(1, dtype, more=True), frame_of(2, dtype, np.nan, True)):
                if check(pipeline, rows):
                    read += 1
                else:
                    refused += 1
    assert (read > 10 and refused > 1) or (dtype == "category" and value == "x")


def test_none_beside_nan() -> None:
    """In columns of objects, the library takes None for a rare category."""
    rare = encoding.RareLabelEncoder(tol=0.08, n_categories=2, missing_values="ignore", variables=["a"])
    pipeline = make_pipeline(rare, in_column(OneHotEncoder(handle_unknown="ignore")))
    pipeline.fit(frame_of(0, object, np.nan), Y)
    assert check(pipeline, frame_of(1, object, None, more=True))


def test_numbers_and_all_categories() -> None:
    rare = encoding.RareLabelEncoder(
        tol=0.3, n_categories=2, replace_with=-1, ignore_format=True, variables=["n"]
    )
    pipeline = make_pipeline(rare, encoding.MeanEncoder(variables=["n"], ignore_format=True))
    pipeline.fit(frame_of(0, "str").assign(a=1.0), Y)
    assert check(pipeline, frame_of(1, "str").assign(a=2.0))
    with pytest.warns(UserWarning, match="considered frequent"):
        everything = make_pipeline(
            encoding.RareLabelEncoder(n_categories=9, missing_values="ignore", variables=["a"]),
            in_column(OneHotEncoder(handle_unknown="ignore")),
        ).fit(frame_of(0, object, None), Y)
    assert check(everything, frame_of(1, object, None, more=True))


def test_a_model_behind() -> None:
    pipeline = make_pipeline(
        imputation.CategoricalImputer(variables=["a"]),
        encoding.RareLabelEncoder(tol=0.08, n_categories=2, variables=["a"]),
        encoding.OneHotEncoder(variables=["a"]),
        LogisticRegression(),
    ).fit(frame_of(0, "str", np.nan), Y)
    compiled = hbtvm.compile(pipeline, batch_sizes=1)
    rows = frame_of(1, "str", np.nan, more=True)
    np.testing.assert_allclose(compiled.predict_proba(rows), pipeline.predict_proba(rows), rtol=1e-6)
    np.testing.assert_allclose(compiled.predict_proba(rows[:1]), pipeline.predict_proba(rows[:1]), rtol=1e-6)


def test_steps_that_read_texts_are_refused() -> None:
    def rare(**settings: Any) -> Any:
        return encoding.RareLabelEncoder(tol=0.08, n_categories=2, variables=["a"], **settings)

    filled = in_column(make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()))
    twice = make_pipeline(rare(), rare(replace_with="x"), in_column(OrdinalEncoder()))
    for pipeline in (make_pipeline(rare()), make_pipeline(rare(), filled), twice):
        pipeline.fit(frame_of(0, "str"), Y)
        with pytest.raises(UnsupportedModel, match="which only an encoder directly behind it may read"):
            registry.read(from_live(pipeline))
