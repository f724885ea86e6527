"""skrub's TableVectorizer and DatetimeEncoder against the library."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import hbtvm
from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import from_live
from tests.frontends.transformers.oracle import record_of
from tests.lying_records import is_read, put_junk

skrub = pytest.importorskip("skrub")

ROWS = 90


def frame_of(seed: int, more: bool = False) -> pd.DataFrame:
    """Columns of all kinds; `more`: with categories and missing values that training lacks."""
    rng = np.random.default_rng(seed)
    new = ["zz", None] if more else []
    when = pd.Series(pd.Timestamp("2019-12-30") + pd.to_timedelta(rng.integers(0, 9e7, ROWS), "s"))
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=ROWS),
            "whole": rng.integers(0, 5, ROWS),
            "city": pd.Series(rng.choice(["a", "b", "c", "N/A", "  ", *new], ROWS), dtype="str"),
            "when": when,
            "kind": pd.Categorical(rng.choice(["u", "v", "w", *new], ROWS)),
            "text date": pd.Series(when.dt.strftime("%d/%m/%Y %H:%M"), dtype="str"),
            "flag": rng.choice([True, False], ROWS),
            "binary": pd.Series(rng.choice(["yes", "no", *new], ROWS), dtype=object),
            "nothing": np.full(ROWS, np.nan),
        }
    )
    frame.loc[rng.random(ROWS) < 0.1, ["number", "when", "text date"]] = np.nan
    return frame


def target(frame: pd.DataFrame) -> Any:
    return (frame["whole"] + (frame["city"] == "a") + frame["when"].dt.month.fillna(0) / 6) > 3


def fitted(transformer: Any, frame: pd.DataFrame) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformer.fit(frame, target(frame_of(0)))


@pytest.mark.parametrize(
    "vectorizer",
    [
        skrub.TableVectorizer(),
        skrub.TableVectorizer(drop_if_constant=True, null_strings="b", numeric=StandardScaler()),
        skrub.TableVectorizer(
            datetime=skrub.DatetimeEncoder("second", add_weekday=True, add_day_of_year=True),
            low_cardinality=OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        ),
        skrub.TableVectorizer(
            datetime=skrub.DatetimeEncoder(add_weekday=True, periodic_encoding="circular"),
            low_cardinality="drop",
            specific_transformers=[("passthrough", ["whole"])],
        ),
    ],
    ids=["default", "scaled", "ordinal", "circular"],
)
def test_table_vectorizer(vectorizer: Any) -> None:
    fitted(vectorizer, frame_of(0))
    compiled = hbtvm.compile(vectorizer)
    for rows in (frame_of(1, more=True), frame_of(2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = vectorizer.transform(rows)
        result = compiled.transform(rows)
        assert list(result.columns) == list(expected.columns)
        np.testing.assert_allclose(result.to_numpy(float), expected.to_numpy(float), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("last", ["linear", "trees"])
def test_models_behind_it(last: str) -> None:
    frame = frame_of(0).dropna(subset=["number", "when"])
    model = LogisticRegression() if last == "linear" else DecisionTreeClassifier(max_depth=6, random_state=0)
    steps = [StandardScaler(), model] if last == "linear" else [model]
    rows = frame_of(1, more=True).dropna(subset=["number", "when"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = make_pipeline(skrub.TableVectorizer(), *steps).fit(frame, target(frame))
        expected = pipeline.predict_proba(rows)
    compiled = hbtvm.compile(pipeline, batch_sizes=1)
    # skrub's numbers are float32, in which scikit-learn adds up.
    np.testing.assert_allclose(compiled.predict_proba(rows), expected, atol=5e-7)
    np.testing.assert_allclose(compiled.predict_proba(rows[:1]), expected[:1], atol=5e-7)


@pytest.mark.parametrize(
    "chosen",
    [
        skrub.ApplyToCols(StandardScaler(), cols=["number", "whole"]),
        skrub.ApplyToCols(StandardScaler(), cols=["number", "whole"], keep_original=True),
        skrub.ApplyToCols(skrub.ToFloat(), cols=["whole"], rename_columns="{}_float"),
        skrub.ApplyToCols(PCA(2), cols=["number", "whole", "flag"]),
        skrub.SelectCols(["whole", "number"]),
        skrub.DropCols("flag"),
        skrub.Cleaner(),
    ],
    ids=lambda x: type(getattr(x, "transformer", x)).__name__,
)
def test_chosen_columns(chosen: Any) -> None:
    """By themselves, or before a model if kernels compute them."""
    columns = ["number", "whole", "flag"]
    frame, rows = (frame_of(seed)[columns].fillna(0.5) for seed in (0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(getattr(chosen, "transformer", None), PCA):
            pipeline = make_pipeline(chosen, LogisticRegression()).fit(frame, frame["whole"] > 2)
            compiled = hbtvm.compile(pipeline, batch_sizes=1)
            expected = pipeline.predict_proba(rows)
            np.testing.assert_allclose(compiled.predict_proba(rows), expected, rtol=1e-6)
            return
        expected = fitted(chosen, frame).transform(rows)
    result = hbtvm.compile(chosen).transform(rows)
    assert list(result.columns) == list(expected.columns)
    np.testing.assert_array_equal(result.to_numpy(float), expected.to_numpy(float))


@pytest.mark.parametrize("zone", [None, "Asia/Kolkata"])
def test_datetime_encoder_of_a_column_transformer(zone: str | None) -> None:
    frame = frame_of(0)[["when"]]
    frame["when"] = frame["when"].dt.tz_localize(zone)
    columns = ColumnTransformer([("when", skrub.DatetimeEncoder("nanosecond", add_weekday=True), "when")])
    columns.fit(frame)
    rows = frame_of(1)[["when"]]
    rows["when"] = rows["when"].dt.tz_localize(zone)
    np.testing.assert_array_equal(
        np.asarray(hbtvm.compile(columns).transform(rows), np.float32), columns.transform(rows)
    )


def test_refusals() -> None:
    frame = frame_of(0)
    texts = frame[["number"]].assign(words=[f"word {i}" for i in range(ROWS)])
    numbers = frame[["number"]].assign(level=pd.Categorical(frame["whole"]))
    zoned = frame[["when"]].apply(lambda column: column.dt.tz_localize("UTC"))
    for rows, vectorizer, words in (
        (
            texts,
            skrub.TableVectorizer(),
            "StringEncoder .* it embeds texts; fit TableVectorizer with another",
        ),
        (texts, skrub.TableVectorizer(high_cardinality=skrub.MinHashEncoder()), "MinHashEncoder .* embeds"),
        (numbers, skrub.TableVectorizer(), "turns numbers in column 'level' into texts; convert them"),
        (zoned, skrub.TableVectorizer(), "was fitted on dates with a time zone"),
        (frame[["whole"]].astype(str), skrub.TableVectorizer(), "parses texts as numbers"),
        (
            frame[["when"]],
            skrub.TableVectorizer(datetime=skrub.DatetimeEncoder(periodic_encoding="spline")),
            "makes splines, which is not supported",
        ),
    ):
        with pytest.raises(UnsupportedModel, match=words):
            registry.read(from_live(fitted(vectorizer, rows)))
    with pytest.raises(UnsupportedModel, match="TableVectorizer is not fitted"):
        registry.read(from_live(skrub.TableVectorizer()))


def test_damaged_pickles() -> None:
    vectorizer = fitted(skrub.TableVectorizer(), frame_of(0))
    choose, read = random.Random(0), 0
    for _ in range(120):
        record = record_of(vectorizer)
        put_junk(record.get("_pipeline"), choose, others=False)
        read += is_read(record)
    assert 10 < read < 115
