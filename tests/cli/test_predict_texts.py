"""``hbtvm predict`` and ``inspect`` of pipelines that read texts."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from hbtvm.cli.main import main

TEXTS = ["good, really good", "bad", "", "12", "not\ngood", "really bad", "good ΟΔΟΣ", 'bad "quoted"'] * 5
LABELS = np.array(["good" in text for text in TEXTS], int)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compiled(model: object) -> None:
    Path("model.pkl").write_bytes(pickle.dumps(model))
    assert main(["compile", "model.pkl", "-o", "model.tar", "--batch-size", "10"]) == 0


def proba(path: str, *options: str) -> np.ndarray:
    assert main(["predict", "model.tar", path, "--output", "proba", "-o", "out.npy", *options]) == 0
    found: np.ndarray = np.load("out.npy")
    return found


def test_files_of_texts(capsys: pytest.CaptureFixture[str]) -> None:
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, LABELS)
    compiled(model)
    expected = model.predict_proba(TEXTS)
    with open("named.csv", "w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["text"], *([text] for text in TEXTS)])
    np.testing.assert_allclose(proba("named.csv", "--header", "yes"), expected, rtol=1e-12)
    pd.DataFrame({"text": TEXTS}).to_parquet("rows.parquet")
    np.testing.assert_allclose(proba("rows.parquet"), expected, rtol=1e-12)
    Path("rows.json").write_text(json.dumps(TEXTS))
    np.testing.assert_allclose(proba("rows.json"), expected, rtol=1e-12)
    capsys.readouterr()
    assert main(["predict", "model.tar", "named.csv"]) != 0
    assert "line 1 may be a name or a text" in capsys.readouterr().err
    assert main(["inspect", "model.tar"]) == 0
    told = capsys.readouterr().out
    assert "terms of texts" in told and "rows of one value each" in told


def test_texts_beside_numbers() -> None:
    table = pd.DataFrame({"n": np.arange(40.0) % 7, "text": TEXTS})
    columns = ColumnTransformer([("text", TfidfVectorizer(), "text"), ("n", "passthrough", ["n"])])
    model = make_pipeline(columns, LogisticRegression()).fit(table, LABELS)
    compiled(model)
    table[["text", "n"]].to_csv("rows.csv", index=False)
    np.testing.assert_allclose(proba("rows.csv"), model.predict_proba(table), rtol=1e-9)


def test_vectorizers_by_themselves_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    compiled(TfidfVectorizer().fit(TEXTS))
    assert main(["inspect", "model.tar"]) == 0
    assert "terms of texts: counted by code of their own" in capsys.readouterr().out
