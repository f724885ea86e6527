"""``hbtvm predict`` and ``inspect`` of pipelines: texts, missing values, columns in any order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hbtvm.cli.main import main
from hbtvm.graph.columns.steps import Encode, Fill, Lookup
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.parts import Parts
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.package.file import write
from tests.runtime.test_pipeline_model import NAMES, TARGET, frame, graph, packed


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(packed(), "model.tar")


def proba(path: str, *options: str) -> np.ndarray:
    assert main(["predict", "model.tar", path, "--output", "proba", "-o", "out.npy", *options]) == 0
    found: np.ndarray = np.load("out.npy")
    return found


def written(X: pd.DataFrame, suffix: str) -> str:
    path = f"d.{suffix}"
    if suffix == "csv":
        X.to_csv(path, index=False)
    elif suffix == "parquet":
        X.to_parquet(path)
    elif suffix in ("arrow", "feather"):
        X.to_feather(path)
    else:
        rows = [
            {name: None if value != value else value for name, value in row.items()}
            for row in X.astype(object).to_dict("records")
        ]
        Path(path).write_text(json.dumps(rows) if suffix == "json" else "\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow", "feather", "json", "jsonl", "ndjson"])
def test_files(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbtvm.cli.rows.data_in._CELLS", 200)
    X = frame()
    wanted = Model(packed()).predict_proba(X)
    np.testing.assert_allclose(proba(written(X, suffix)), wanted, rtol=1e-12)
    np.testing.assert_allclose(proba(written(X[["pay", "age", "job"]], suffix)), wanted, rtol=1e-12)


def test_csv_without_names() -> None:
    X = frame()
    X[list(NAMES)].to_csv("d.csv", index=False, header=False)
    found = proba("d.csv", "--header", "no")
    np.testing.assert_allclose(found, Model(packed()).predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,pay,job\n1,2,law\nold,2,law\n", "d.csv: row 2, column 'age': 'old' is not a number"),
        ("age,pay\n1,2\n", "d.csv: column 'job' of the model is missing"),
        ("age,pay,job,job\n1,2,law,law\n", "d.csv: column 'job' appears twice"),
        ("age,pay,job\n1,2,law\n1,2,nurse\n", "row 2: step 'encode' (OrdinalEncoder), column 'job': 'nurse'"),
        ("age,pay,job\n1,2,law\n1,,law\n", "column 'pay', row 2: got NaN"),
        ("1,2\n", "the model has 4 features"),
    ],
)
def test_csv_that_does_not_fit(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("d.csv").write_text(text)
    assert main(["predict", "model.tar", "d.csv"]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("d.jsonl", '{"age": 1, "pay": 1, "job": "law"}\n{"age":\n', "d.jsonl: line 2 is not JSON"),
        ("d.jsonl", '{"age": 1, "pay": 1}\n', "column 'job' is missing"),
        ("d.json", '[{"age": 1, "pay": 1, "job": "law"}, 3]', "row 2 is 3, expected an object"),
        ("d.json", "[1", "d.json: this is not JSON"),
        ("d.arrow", "x", "d.arrow: this is not a readable Arrow file"),
        ("d.json", "", "there are no rows to predict"),
    ],
)
def test_file_that_is_damaged(name: str, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_text(text)
    assert main(["predict", "model.tar", name]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


def test_inspect_tells_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "model.tar"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "encode (ColumnTransformer), model (GradientBoostingClassifier)" in shown
    assert "scaler of 2 columns: moved into 17 thresholds" in shown
    assert main(["inspect", "model.tar", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["steps"] == [list(step) for step in graph().steps] and told["told"] == list(graph().rewrites)


def test_a_pipeline_that_transforms(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = Encode(("law", "tech"))
    columns = (Column(Raw(0), (Fill(0.5),)), Column(Raw(2), (jobs, Lookup(np.array([1.0, 2.0, -1.0])))))
    facts = {"operator": "columns", "n_features": 4, "n_outputs": 2, "compare_dtype": "float64"}
    made = Package(
        "scikit-learn", "ColumnTransformer", graph().input, OutputSpec("regressor", 2),
        {**facts, "base_score": [0.0, 0.0], "divisor": 1.0}, TARGET, (), {},
        parts=Parts((), Table(columns, True, ("the age", "the job"))),
    )  # fmt: skip
    write(made, "model.tar")
    Path("d.csv").write_text("job,age\nlaw,3\n,\n")
    assert main(["predict", "model.tar", "d.csv"]) == 0
    assert capsys.readouterr().out.split("\n") == ["the age,the job", "3.0,1.0", "0.5,-1.0", ""]
    assert main(["inspect", "model.tar"]) == 0
    assert "2 columns, computed by numpy" in capsys.readouterr().out
