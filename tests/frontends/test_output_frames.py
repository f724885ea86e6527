"""Pipelines that were told to give data frames give them, as the libraries do."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

import hbtvm
from hbtvm.codec import CodecError
from hbtvm.errors import MissingPackageError, UnsupportedModel
from hbtvm.runtime.package.file import from_bytes, to_bytes
from hbtvm.runtime.package.manifest import from_manifest, to_manifest


def frame(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    job = pd.Series(rng.choice(["tech", "law", "sales"], rows), dtype="str")
    age = rng.normal(40, 9, rows).round(1)
    job[rng.random(rows) < 0.2] = np.nan
    age[rng.random(rows) < 0.2] = np.nan
    return pd.DataFrame(
        {"age": age, "pay": rng.normal(size=rows), "job": job}, index=np.arange(rows)[::-1] * 3
    )


def columns(**given: Any) -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    return ColumnTransformer(
        [
            ("numbers", numbers, ["age", "pay"]),
            ("onehot", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["job"]),
            ("code", OrdinalEncoder(encoded_missing_value=-1), ["job"]),
            ("text", SimpleImputer(strategy="most_frequent"), make_column_selector(dtype_exclude="number")),
        ],
        **given,
    )


def numbers() -> ColumnTransformer:
    return columns().set_params(text="drop")


MODELS = {
    "columns": columns(),
    "short names": columns(verbose_feature_names_out=False).set_params(code="drop", text="drop"),
    "pipeline": Pipeline(
        [
            ("columns", numbers()),
            ("s", StandardScaler()),
        ]
    ),
    "union": FeatureUnion([("a", numbers()), ("b", numbers())]),
}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", MODELS)
def test_as_the_library(name: str, library: str) -> None:
    X = frame()
    made = MODELS[name].set_output(transform=library).fit(X)
    model = hbtvm.Model.from_package(from_bytes(to_bytes(hbtvm.compile(made).package)))
    for rows in (X, X[:1], X[::2]):
        wanted, found = made.transform(rows), model.transform(rows)
        assert type(found) is type(wanted)
        assert list(found.columns) == list(wanted.columns) == list(made.get_feature_names_out())
        if library == "pandas":
            pd.testing.assert_frame_equal(found, wanted, check_dtype=False)
        else:
            for one in wanted.columns:
                assert found[one].to_list() == pytest.approx(wanted[one].to_list(), abs=0, nan_ok=True)
    alike = model.transform(pl.from_pandas(X))
    assert type(alike) is (pd.DataFrame if library == "pandas" else pl.DataFrame)
    if library == "pandas":
        assert alike.index.tolist() == list(range(len(X)))


def test_arrays_by_default_and_again() -> None:
    X = frame()
    made = numbers().fit(X)
    plain = hbtvm.compile(made)
    assert "frame" not in to_manifest(plain.package, lambda *_: "")
    assert plain.package.frame is None
    made.set_output(transform="pandas")
    assert hbtvm.compile(made).package.frame == "pandas"
    made.set_output(transform="default")
    again = hbtvm.compile(made)
    assert again.package.frame is None
    np.testing.assert_array_equal(again.transform(X), made.transform(X))


@pytest.mark.filterwarnings("ignore")
def test_the_best_of_a_search_tells() -> None:
    X = frame()
    steps = Pipeline([("columns", numbers())])
    search = GridSearchCV(
        steps, {"columns__numbers__standardscaler__with_mean": [True]}, scoring=lambda *_: 1.0
    )
    search.fit(X, np.arange(len(X)) % 2)
    search.best_estimator_.set_output(transform="pandas")
    pd.testing.assert_frame_equal(hbtvm.compile(search).transform(X), search.best_estimator_.transform(X))


def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = hbtvm.compile(columns().set_output(transform="polars").fit(frame()))
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingPackageError, match="need polars, which is not"):
        model.transform(frame())


def test_what_makes_no_frame_is_refused() -> None:
    X = frame()
    sparse = OneHotEncoder().fit(X[["job"]]).set_output(transform="pandas")
    with pytest.raises(UnsupportedModel, match="data frames of pandas can"):
        hbtvm.compile(sparse)
    scaler = StandardScaler().fit(X[["age"]])
    scaler._sklearn_output_config = {"transform": "arrow"}
    with pytest.raises(UnsupportedModel, match="returns its output as 'arrow'"):
        hbtvm.compile(scaler)
    unnamed = ColumnTransformer(
        [("a", FunctionTransformer(np.log1p), ["age"]), ("b", StandardScaler(), ["pay"])]
    )
    unnamed.fit(X.assign(age=1.0)).set_output(transform="pandas")
    with pytest.raises(UnsupportedModel, match="the names of its columns are unknown"):
        hbtvm.compile(unnamed)


@pytest.mark.parametrize("value", ["", "arrow", 1, ["pandas"], {}])
def test_damaged_entry_is_refused(value: Any) -> None:
    package = hbtvm.compile(columns().set_output(transform="pandas").fit(frame())).package
    manifest = to_manifest(package, lambda *_: "")
    assert from_manifest(manifest, {}).frame == "pandas"
    manifest["frame"] = value
    with pytest.raises(CodecError, match="frame"):
        from_manifest(manifest, {})


def _typed_frames(frame: Any) -> dict[str, Any]:
    return {
        "int64": frame,
        "int8": frame.astype("int8"),
        "bool": frame > 0,
        "float32": frame.astype("float32"),
        "mixed": frame.astype({"a": "int8", "b": "float32"}),
        "array": frame.to_numpy(),
        "small array": frame.to_numpy().astype(np.uint8),
    }


@pytest.mark.parametrize(
    "step",
    [
        VarianceThreshold(),
        ColumnTransformer([("kept", "passthrough", ["a", "b"])], remainder=StandardScaler()),
        FeatureUnion([("kept", VarianceThreshold()), ("scaled", MaxAbsScaler())]),
        make_pipeline(VarianceThreshold(), MaxAbsScaler()),
        StandardScaler(with_mean=False, with_std=False),
        SimpleImputer(),
    ],
    ids=lambda step: type(step).__name__,
)
def test_columns_of_frames_have_the_types_of_the_library(step: Any) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).integers(-50, 50, (40, 4)), columns=list("abcd"))
    fitted = clone(step).set_output(transform="pandas").fit(frame)
    compiled = hbtvm.compile(fitted)
    for rows in _typed_frames(frame).values():
        if isinstance(rows, np.ndarray) and isinstance(step, ColumnTransformer):
            continue  # which are found by name
        expected, result = fitted.transform(rows), compiled.transform(rows)
        pd.testing.assert_frame_equal(result, expected, rtol=1e-6)
