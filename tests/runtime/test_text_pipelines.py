"""Pipelines that read texts and predict: scikit-learn's answers, from any rows, of one row and of many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MaxAbsScaler, Normalizer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from xgboost import XGBClassifier

import hbtvm
from hbtvm.errors import InputError
from hbtvm.runtime.model import Model

WORDS = np.array(
    ["alpha", "beta", "gamma", "delta", "épsilon", "Zeta", "eta", "THETA", "iota", "kappa", "ΛΑΜΔΑΣ", "mu"]
)
_RNG = np.random.default_rng(0)
TEXTS = [" ".join(_RNG.choice(WORDS, size)) for size in _RNG.integers(0, 9, 200)]
THREE = np.array([("beta" in text) + 2 * ("mu" in text) for text in TEXTS])
TWO = np.array(["no", "yes"])[(THREE > 0).astype(int)]


def compiled(pipeline: Any, rows: Any, labels: Any) -> Model:
    """Fit, compile, and check all outputs of all rows, and of the first few one by one."""
    pipeline.fit(rows, labels)
    model = hbtvm.compile(pipeline, batch_sizes=(50,), threads=1)
    for name in ("predict", "predict_proba", "decision_function"):
        output = {"predict_proba": "proba", "decision_function": "decision"}.get(name)
        if output is not None and output not in model.package.output.outputs:
            continue
        expected, predict = getattr(pipeline, name)(rows), getattr(model, name)
        # Leaf values are float32 unless told otherwise.
        exact = model.package.forest["operator"] == "linear"
        assert_equal(predict(rows), expected, exact)
        for row in range(4):
            one = rows.iloc[row : row + 1] if isinstance(rows, pd.DataFrame) else rows[row : row + 1]
            assert_equal(predict(one), expected[row : row + 1], exact)
    return model


def assert_equal(found: np.ndarray, expected: np.ndarray, exact: bool = True) -> None:
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        limit = 1e-9 if exact else 1e-5
        np.testing.assert_allclose(found, expected, rtol=limit, atol=limit)
    else:
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("pipeline", "labels"),
    [
        (make_pipeline(TfidfVectorizer(), LogisticRegression()), TWO),
        (
            make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), SelectKBest(chi2, k=9), LogisticRegression()),
            THREE,
        ),
        (
            make_pipeline(CountVectorizer(), TfidfTransformer(), MaxAbsScaler(), SGDClassifier("log_loss")),
            THREE,
        ),
        (make_pipeline(HashingVectorizer(), SGDClassifier(random_state=0)), TWO),
        (make_pipeline(HashingVectorizer(n_features=30), TfidfTransformer(), Ridge()), THREE * 1.5),
        (make_pipeline(CountVectorizer(), StandardScaler(with_mean=False), Normalizer(), LinearSVC()), TWO),
        (
            make_pipeline(
                make_union(TfidfVectorizer(), TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3))),
                LinearSVC(),
            ),
            THREE,
        ),
    ],
)
def test_linear_models(pipeline: Any, labels: np.ndarray) -> None:
    model = compiled(pipeline, TEXTS, labels)
    assert any("without a matrix" in one for one in model.package.rewrites)
    assert "without a matrix" in model.summary()


@pytest.mark.parametrize(
    "pipeline",
    [
        make_pipeline(TfidfVectorizer(), RandomForestClassifier(5, random_state=0)),
        make_pipeline(CountVectorizer(), XGBClassifier(n_estimators=4)),
        make_pipeline(CountVectorizer(), TfidfTransformer(), XGBClassifier(n_estimators=4)),
    ],
)
def test_trees(pipeline: Any) -> None:
    model = compiled(pipeline, TEXTS, THREE)
    # Only what they read is computed.
    (operation,) = {feed.source.operation for feed in model.package.parts.feeds}  # type: ignore[union-attr]
    assert operation.width == len(model.package.parts.feeds)


def test_features() -> None:
    rows = [{"a": float(i % 3), "w": WORDS[i % 7]} for i in range(200)]
    compiled(make_pipeline(DictVectorizer(), LogisticRegression()), rows, THREE)
    compiled(make_pipeline(DictVectorizer(sparse=False), RandomForestClassifier(3)), rows, THREE)
    hashed = compiled(make_pipeline(FeatureHasher(16), LogisticRegression()), rows, TWO)
    assert np.array_equal(hashed.predict(rows[0]), hashed.predict(rows[:1]))


def test_searches_and_files(tmp_path: Path) -> None:
    search = GridSearchCV(
        make_pipeline(TfidfVectorizer(), LogisticRegression()), {"logisticregression__C": [1, 2]}
    )
    model = compiled(search, TEXTS, TWO)
    model.save(tmp_path / "model.tar")
    loaded = hbtvm.load(tmp_path / "model.tar", threads=2)
    many = TEXTS * 60
    assert np.array_equal(loaded.predict_proba(many), model.predict_proba(many))
    assert np.array_equal(loaded.predict_proba(pa.array(many)), model.predict_proba(many))


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "text": TEXTS,
            "n": rng.normal(size=200),
            "kind": WORDS[rng.integers(0, 3, 200)],
            "more": TEXTS[::-1],
        }
    )
    table.loc[3, "n"] = np.nan
    return table


def columns(**options: Any) -> ColumnTransformer:
    return ColumnTransformer(
        [
            ("text", TfidfVectorizer(), "text"),
            ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["n"]),
            ("kind", OneHotEncoder(handle_unknown="ignore"), ["kind"]),
            ("more", CountVectorizer(), "more"),
        ],
        **options,
    )


@pytest.fixture(scope="module")
def mixed() -> Model:
    return compiled(make_pipeline(columns(), LogisticRegression(max_iter=1000)), frame(), THREE)


def test_texts_beside_other_columns(mixed: Model) -> None:
    table = frame()
    expected = mixed.predict_proba(table)
    rows: list[Any] = [
        pl.from_pandas(table),
        pa.Table.from_pandas(table),
        table.astype({"text": object, "more": "category"}),
        table[["kind", "more", "n", "text"]],
        table.to_dict("records"),
    ]
    for one in rows:
        assert_equal(mixed.predict_proba(one), expected)
    assert_equal(mixed.predict_proba(table.iloc[5].to_dict()), expected[5:6])
    with pytest.raises(InputError, match="column 'text', row 2: expected a text"):
        mixed.predict(table.assign(text=["a", "b", None, *TEXTS[3:]]))
    with pytest.raises(InputError, match=r"column 'more'.*expected texts, got numbers"):
        mixed.predict(table.assign(more=1.0))
    with pytest.raises(InputError, match="expected a text, got None"):
        mixed.predict({"text": None, "n": 1.0, "kind": "mu", "more": ""})


@pytest.mark.parametrize("last", [XGBClassifier(n_estimators=4), HistGradientBoostingClassifier(max_iter=4)])
def test_trees_behind_texts_and_other_columns(last: Any) -> None:
    dense = isinstance(last, HistGradientBoostingClassifier)
    pipeline = make_pipeline(columns(sparse_threshold=0 if dense else 1), last).fit(frame(), THREE)
    model = hbtvm.compile(pipeline, batch_sizes=(50,), threads=1, dtype="float64")
    np.testing.assert_allclose(
        model.predict_proba(frame()), pipeline.predict_proba(frame()), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_transformed_beside_other_columns(threshold: float) -> None:
    fitted = columns(sparse_threshold=threshold).fit(frame())
    found, expected = hbtvm.compile(fitted, threads=1).transform(frame()), fitted.transform(frame())
    assert isinstance(found, np.ndarray) == isinstance(expected, np.ndarray)
    assert found.dtype == expected.dtype and abs(found - expected).max() < 1e-12
