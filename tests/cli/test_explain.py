"""``hbtvm explain``: files of contributions and reasons, and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hbtvm.cli.main import main
from hbtvm.report import reasons
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import write
from tests.models import data
from tests.runtime import test_pipeline_model as pipeline
from tests.runtime_models import compiled


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages and rows, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write(pipeline.packed(), "pipeline.tar")
    write(compiled("xgb_three"), "three.tar")
    frame = pipeline.frame(40)
    frame[:6].assign(id=range(6)).to_csv("rows.csv", index=False)
    frame[6:26].assign(label="no").to_csv("train.csv", index=False)
    X = np.array(data()[0], np.float32)
    np.save("three.npy", X[:5])
    np.save("background.npy", X[50:70])
    return tmp_path


def explain(*words: Any) -> None:
    assert main(["explain", *map(str, words)]) == 0


def refused(capsys: pytest.CaptureFixture[str], *words: Any) -> str:
    try:
        assert main(["explain", *map(str, words)]) == 2
    except SystemExit as error:
        assert error.code == 2
    return capsys.readouterr().err


def explanation() -> Any:
    frame = pipeline.frame(40)
    return Model(pipeline.packed()).explain(frame[:6], frame[6:26])


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_contributions(folder: Path, suffix: str) -> None:
    out = f"out{suffix}"
    explain("pipeline.tar", "rows.csv", "--background", "train.csv", "--keep", "id", "-o", out)
    read = {
        ".csv": pd.read_csv,
        ".parquet": pd.read_parquet,
        ".jsonl": lambda path: pd.read_json(path, lines=True),
    }
    table = read[suffix](out)
    assert list(table.columns) == ["id", "base_value", *pipeline.NAMES]
    assert table["id"].astype(int).tolist() == list(range(6))  # Parquet keeps the text of CSV
    np.testing.assert_allclose(table[list(pipeline.NAMES)], explanation().values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(table["base_value"], explanation().base_values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_top(folder: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"out{suffix}"
    explain(
        "pipeline.tar", "rows.csv", "--background", "train.csv", "--top", 2, "--sign", "negative", "-o", out
    )
    if suffix == ".jsonl":
        lines = [json.loads(line) for line in Path(out).read_text().splitlines()]
        table = pd.DataFrame(lines)
    else:
        table = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    parts = ("reason", "value", "contribution")
    assert list(table.columns) == ["base_value", "score", *(f"{part}_{i}" for i in (1, 2) for part in parts)]
    expected = explanation()
    top = expected.top(2, "negative")
    for i in (1, 2):
        known = [name is not None for name in top.names[:, i - 1]]
        assert table[f"reason_{i}"].notna().tolist() == known
        assert table.loc[known, f"reason_{i}"].tolist() == top.names[known, i - 1].tolist()
        np.testing.assert_allclose(
            table[f"contribution_{i}"].astype(float), top.contributions[:, i - 1], rtol=0, atol=1e-12
        )
        texts = [reasons.cell(value) for value in top.values[known, i - 1]]
        stored = table.loc[known, f"value_{i}"].tolist()
        assert [reasons.cell(value) for value in stored] == texts
    np.testing.assert_allclose(table["score"], expected.base_values + expected.values.sum(axis=1))


def test_several_outputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("three.tar", "three.npy", "--background", "background.npy")
    expected = Model(compiled("xgb_three")).explain(np.load("three.npy"), np.load("background.npy"))
    explain(*given, "-o", "all.csv")
    table = pd.read_csv("all.csv")
    names = [f"{output}_{name}" for output in "012" for name in ("base_value", "x0", "x1", "x2", "x3")]
    assert list(table.columns) == names
    np.testing.assert_allclose(table["2_x3"], expected.values[:, 3, 2], rtol=0, atol=1e-12)
    explain(*given, "--class", "2", "-o", "two.csv")
    np.testing.assert_allclose(pd.read_csv("two.csv")["x3"], expected.values[:, 3, 2], rtol=0, atol=1e-12)
    explain(*given, "--top", "1")  # to standard output
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "output,base_value,score,reason_1,value_1,contribution_1"
    assert [line.split(",")[0] for line in lines[1:]] == expected.highest()[1].tolist()
    explain(*given, "--output", "proba", "--samples", 20, "--errors", "--class", "0", "-o", "errors.csv")
    table = pd.read_csv("errors.csv")
    assert list(table.columns)[-4:] == [f"error_x{i}" for i in range(4)]
    assert (table["error_x0"] > 0).any()


def test_blocks_are_explained_alike(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("three.tar", "three.npy", "--samples", 10, "--page", "page.html", "--row", 4)
    np.save("background.npy", np.load("background.npy")[:2])
    explain(*given, "--background", "background.npy", "-o", "whole.csv")
    whole = Path("page.html").read_text()
    monkeypatch.setattr("hbtvm.cli.rows.data_in._MOST_ROWS", 2)
    explain(*given, "--background", "background.npy", "-o", "blocks.csv")
    np.testing.assert_allclose(pd.read_csv("blocks.csv"), pd.read_csv("whole.csv"), rtol=0, atol=1e-12)
    assert Path("page.html").read_text() == whole
    text = refused(capsys, *given, "--background", "three.npy")
    assert "there are too many rows to compare with; a few hundred are enough" in text


def test_page(folder: Path) -> None:
    explain("pipeline.tar", "rows.csv", "--background", "train.csv", "--page", "page.html", "--row", 3)
    page = Path("page.html").read_text()
    assert page.count("<svg") == 2 and "<script" not in page and "http" not in page
    assert "pipeline.tar: reasons for rows.csv" in page and "<h2>Row 3</h2>" in page
    expected = explanation()[2]
    age = reasons.cell(expected.data[0])
    assert f"age = {age or 'missing'}" in page
    score = float(expected.base_values + expected.values.sum())
    assert f">{score:.4g}</text>" in page
    explain("three.tar", "three.npy", "--background", "background.npy", "--page", "p.html", "-o", "p.csv")
    assert re.search(r"The score of [012], the highest of row 1\.", Path("p.html").read_text())
    assert Path("p.csv").exists()


def test_page_of_many_columns_and_odd_names() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 40)) * np.linspace(1, 0, 40)
    cells = rng.normal(size=(30, 40)).astype(object)
    cells[:, 1] = "<b>"
    cells[::2, 2] = np.nan
    names = [f"<column {i}>" for i in range(40)]
    page = reasons.render(values, cells, names, ("Row 1", values[0], cells[0], 0.5), "a < b")
    assert "<column" not in page and "<b>" not in page and "&lt;column 0&gt;" in page
    assert "sum of 25 others" in page and "25 other columns" in page
    assert page.count("M", page.index("<svg"), page.index("</svg>")) >= 30 * 16
    flat = reasons.render(
        np.zeros((1, 1)), np.ones((1, 1)), ["x"], ("Row 1", np.zeros(1), np.ones(1), 0.0), "t"
    )
    assert "nan" not in flat


def test_refusals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("pipeline.tar", "rows.csv")
    background = ("--background", "train.csv")
    text = refused(capsys, *given)
    assert "or pass background= to estimate them" in text or "compile" in text
    assert "--samples needs --background" in refused(capsys, *given, "--samples", 5)
    assert "--sign needs --top" in refused(capsys, *given, *background, "--sign", "negative")
    assert "--errors needs --background" in refused(capsys, *given, "--errors")
    assert "only one score to explain" in refused(capsys, *given, *background, "--class", "yes")
    assert "is an array, and reasons are a table" in refused(capsys, *given, *background, "-o", "out.npy")
    assert "must end in .html" in refused(capsys, *given, *background, "--page", "rows.csv")
    text = refused(capsys, *given, *background, "--row", 9, "--page", "page.html")
    assert "--row 9: rows.csv has 6 rows" in text and not Path("page.html").exists()
    assert "no output 'nine'; there are 0, 1, 2" in refused(
        capsys, "three.tar", "three.npy", "--background", "background.npy", "--class", "nine"
    )
    assert "has no class probabilities" not in refused(capsys, *given, *background, "--output", "score")
    assert "would be in the output twice" in refused(
        capsys, *given, *background, "--keep", "id,id", "-o", "o.csv"
    )
    np.save("bad.npy", np.array([[0, 0, 0, 0], [0, 0, 0, np.nan]], np.float32)[:, :3])
    assert "3 columns, the model has 4" in refused(
        capsys, "three.tar", "bad.npy", "--background", "background.npy"
    )
    assert "is a folder; explain its files one by one" in refused(capsys, "three.tar", ".", *background)
