"""Times of whole calls: of an array, a frame and a dict; in the package, and in what commands print."""

from __future__ import annotations

import json
from pathlib import Path

import joblib
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hbtvm
from hbtvm.cli.main import main
from hbtvm.measuring.calls import add_call_times, random_rows
from hbtvm.runtime.model import Model
from hbtvm.runtime.package import calls as package_calls
from hbtvm.runtime.package.calls import CallTimes
from hbtvm.runtime.package.file import from_bytes, to_bytes


def pipeline(text: bool = False) -> Pipeline:
    """A pipeline of numbers and categories, and maybe of texts."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 9, 60),
            "plan": rng.choice(["a", "b", "c"], 60),
            "rooms": rng.choice([2, 3, 5], 60),
            "note": rng.choice(["good plan", "bad plan", "no idea"], 60),
        }
    )
    steps = [(StandardScaler(), ["age"]), (OneHotEncoder(), ["plan", "rooms"])]
    if text:
        steps.append((TfidfVectorizer(), "note"))
    return make_pipeline(make_column_transformer(*steps), LogisticRegression()).fit(frame, frame.age > 40)


@pytest.fixture(scope="module")
def model() -> Model:
    return hbtvm.compile(pipeline(text=True), batch_sizes=(1, 7), threads=1)


def test_calls_of_a_pipeline(model: Model) -> None:
    before = to_bytes(model.package)
    assert from_bytes(before).calls == ()
    add_call_times(model)
    assert [(call.rows, sorted(call.seconds)) for call in model.package.calls] == [
        (1, ["array", "dict", "frame"]),
        (7, ["array", "frame"]),
    ]
    assert from_bytes(to_bytes(model.package)).calls == model.package.calls
    assert "calls, with reading of the rows" in model.summary() and "call, dict" in model.summary()
    for rows in (1, 7):
        answers = [model.predict(X) for X in random_rows(model, rows).values()]
        assert all(answer.shape == (rows,) and (answer == answers[0]).all() for answer in answers)


def test_rows_of_categories(model: Model) -> None:
    """Arrays for boosted models hold codes, frames hold categories."""
    row = random_rows(model, 1)["dict"]
    assert row["plan"] in "abc" and row["rooms"] in (2, 3, 5) and 0 <= row["age"] < 1
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=90), "plan": pd.Categorical(rng.choice(["a", "b", "c"], 90))})
    boosted = lgb.LGBMRegressor(n_estimators=3, verbose=-1).fit(frame, frame.x + frame.plan.cat.codes)
    compiled = hbtvm.compile(boosted, batch_sizes=1, threads=1)
    rows = random_rows(compiled, 1)
    assert [compiled.predict(X) for X in rows.values()] == 3 * [compiled.predict(rows["array"])]
    add_call_times(compiled, {1: {"array": rows["array"], "frame": rows["array"][:, :1]}})
    assert [list(call.seconds) for call in compiled.package.calls] == [["array"]]  # the other call failed


def test_columns_of_what_was_measured() -> None:
    calls = [CallTimes(1, {"array": 2e-6, "dict": 1e-6, "unknown": 1.0}), CallTimes(9, {"array": 3e-6})]
    assert list(package_calls.call_heads(calls).values()) == ["call, array", "call, dict"]
    assert package_calls.call_cells(calls, 9) == ("3.00 µs", "-")
    assert package_calls.call_cells(calls, 5) == ("-", "-")
    assert package_calls.call_cells((), 1) == ()


@pytest.mark.usefixtures("shared_workers")
def test_where_tuning_can_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts of 64 rows take some two hundred times as long to read as a linear kernel to run."""
    monkeypatch.chdir(tmp_path)
    joblib.dump(pipeline(text=True), "m.pkl")
    assert main(["tune", "m.pkl", "--batch-size", "64", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "1 trial; tuning can't help here" in printed
    assert "tuning can't help where the kernel takes less than a tenth of a call: " in printed
    assert "call, array" in printed and "call, frame" in printed
    lines = Path("hbtvm-tuning.jsonl").read_text().splitlines()
    (calls,) = [record["calls"] for record in map(json.loads, lines) if "calls" in record]
    (kept,) = hbtvm.load("m.tar").package.calls
    assert (kept.rows, dict(kept.seconds)) == (64, calls) and set(calls) == {"array", "frame"}
    for command in ("inspect m.tar", "log best hbtvm-tuning.jsonl"):
        assert main(command.split()) == 0
        assert "call, frame" in capsys.readouterr().out
    assert main(["report", "hbtvm-tuning.jsonl"]) == 0
    assert " (frame)" in Path("hbtvm-tuning.html").read_text()
