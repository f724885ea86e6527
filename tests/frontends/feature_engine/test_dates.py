"""Parts of dates: feature-engine's DatetimeFeatures against the library, in all containers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.tree import DecisionTreeClassifier

import hbtvm
from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import registry
from hbtvm.frontends.pickles import from_live

pytest.importorskip("feature_engine")

from feature_engine.datetime import DatetimeFeatures


def dates(count: int = 300, seed: int = 0) -> pd.Series:
    """Dates of six centuries, with first and last days of years, quarters and leap months."""
    rng = np.random.default_rng(seed)
    seconds = rng.integers(-9_000_000_000, 9_000_000_000, count)
    edges = [
        f"{year}-{day}{time}"
        for year in (1900, 1969, 1970, 2000, 2020, 2021, 2024, 2100)
        for day in ("01-01", "02-28", "03-01", "03-31", "04-01", "12-28", "12-31")
        for time in ("", "T00:00:01", "T23:59:59")
    ]
    return pd.Series(np.concatenate([seconds.astype("M8[s]"), np.array(edges, "M8[s]")]))


def frame_of(when: Any) -> pd.DataFrame:
    return pd.DataFrame({"when": when, "x": np.linspace(-1, 1, len(when))})


def compare(transformer: Any, frame: pd.DataFrame, rows: Any = None) -> None:
    result = hbtvm.compile(transformer).transform(frame if rows is None else rows)
    expected = transformer.transform(frame)
    assert list(result.columns) == list(expected.columns)
    np.testing.assert_array_equal(result.to_numpy(float), expected.to_numpy(float))


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_all_parts(unit: str) -> None:
    frame = frame_of(dates()[lambda x: abs(x.dt.year - 1970) < 280].reset_index(drop=True))
    frame["when"] = frame["when"].astype(f"datetime64[{unit}]")
    compare(DatetimeFeatures(features_to_extract="all").fit(frame), frame)


def test_missing_dates() -> None:
    frame = frame_of(dates())
    frame.loc[::3, "when"] = pd.NaT
    parts = ["year", "semester", "weekend", "month_end", "leap_year", "second", "quarter"]
    compare(DatetimeFeatures(features_to_extract=parts, missing_values="ignore").fit(frame), frame)
    strict = hbtvm.compile(DatetimeFeatures().fit(frame.dropna()))
    with pytest.raises(InputError, match="NaN"):
        strict.transform(frame)


def test_time_zones() -> None:
    frame = frame_of(dates()[:100].dt.tz_localize("UTC").dt.tz_convert("Australia/Adelaide"))
    compare(DatetimeFeatures().fit(frame), frame)
    compare(DatetimeFeatures(utc=True).fit(frame), frame)
    compare(DatetimeFeatures().fit(frame), frame, pa.Table.from_pandas(frame))


def pipelines() -> dict[str, Pipeline]:
    parts = DatetimeFeatures(features_to_extract=["month", "hour", "day_of_week", "weekend"])
    return {
        "linear": make_pipeline(parts, LogisticRegression()),
        "trees": make_pipeline(parts, DecisionTreeClassifier(max_depth=6, random_state=0)),
    }


@pytest.fixture(scope="module", params=["linear", "trees"])
def models(request: Any) -> tuple[Pipeline, hbtvm.Model]:
    frame = frame_of(dates())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = pipelines()[request.param].fit(frame, frame["when"].dt.month + 4 * frame["x"] > 6)
    return pipeline, hbtvm.compile(pipeline, batch_sizes=1)


def test_models_read_dates_of_all_containers(models: tuple[Pipeline, hbtvm.Model]) -> None:
    pipeline, compiled = models
    frame = frame_of(dates(seed=1)[:80])
    expected = pipeline.predict_proba(frame)
    texts = frame["when"].dt.strftime("%Y-%m-%d %H:%M:%S")
    for rows in (
        frame,
        frame.assign(when=frame["when"].astype(object)),
        frame.assign(when=texts),
        frame.convert_dtypes(dtype_backend="pyarrow"),
        pl.from_pandas(frame),
        pa.Table.from_pandas(frame),
        frame.to_dict("records"),
    ):
        np.testing.assert_allclose(compiled.predict_proba(rows), expected, rtol=1e-6)
    for row in (frame.iloc[:1], frame.iloc[0].to_dict(), {"when": texts[0], "x": frame["x"][0]}):
        np.testing.assert_allclose(compiled.predict_proba(row), expected[:1], rtol=1e-6)


def test_other_values_are_refused(models: tuple[Pipeline, hbtvm.Model]) -> None:
    _, compiled = models
    for value in ("31.12.2020", "2020-13-01", "soon"):
        with pytest.raises(InputError, match=r"'when'.* expected a date such as 2024-01-31 or"):
            compiled.predict({"when": value, "x": 1.0})
    frame = frame_of(dates()[:9])
    with pytest.raises(InputError, match=r"'x'.* got datetime64"):
        compiled.predict(frame.assign(x=frame["when"]))


def test_a_file_of_dates(models: tuple[Pipeline, hbtvm.Model], tmp_path: Path) -> None:
    pipeline, compiled = models
    frame = frame_of(dates(seed=1)[:40])
    compiled.save(tmp_path / "model.tar")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    command = [
        sys.executable,
        "-m",
        "hbtvm",
        "predict",
        str(tmp_path / "model.tar"),
        str(tmp_path / "rows.csv"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line == "True" for line in done.stdout.split() if line in ("True", "False")] == list(
        pipeline.predict(frame)
    )


def test_texts_of_a_format() -> None:
    frame = frame_of(dates())
    texts = frame.assign(when=frame["when"].dt.strftime("%d/%m/%Y %H:%M"))
    transformer = DatetimeFeatures(format="%d/%m/%Y %H:%M").fit(texts)
    compare(transformer, texts)
    with pytest.raises(InputError, match=r"expected a date %d/%m/%Y %H:%M, got '2020-01-02'"):
        hbtvm.compile(transformer).transform(texts.assign(when="2020-01-02"))


def test_refusals() -> None:
    frame = frame_of(dates()).set_index("when", drop=False)
    with pytest.raises(UnsupportedModel, match="reads the index of frames"):
        registry.read(from_live(DatetimeFeatures(variables="index").fit(frame)))
