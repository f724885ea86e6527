"""``hbtvm predict`` on pipes, compressed files, other delimiters and words for missing values."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import GradientBoostingRegressor

from hbtvm import api
from hbtvm.cli.main import main
from tests import fake_cli

NAMES = ["size", "the price", "age"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of a model that takes missing values, and of a model that refuses them."""
    folder = tmp_path_factory.mktemp("dialects")
    rng = np.random.default_rng(4)
    X = pd.DataFrame(rng.normal(size=(200, 3)), columns=NAMES)
    y = X["size"] + 2 * X["age"]
    takes = xgb.XGBRegressor(n_estimators=3, max_depth=3).fit(X, y)
    api.compile(takes, batch_sizes=(1,), threads=1).save(folder / "takes.tar")
    takes.save_model(folder / "takes.json")
    refuses = GradientBoostingRegressor(n_estimators=3, max_depth=2).fit(X.to_numpy(), y)
    api.compile(refuses, batch_sizes=(1,), threads=1).save(folder / "refuses.tar")
    return folder


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def data(folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows with ids, missing values and dates, and the library's predictions."""
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.normal(size=(40, 3)).astype(np.float32), columns=NAMES)
    X.loc[::5, "size"] = np.nan
    model = xgb.XGBRegressor()
    model.load_model(folder / "takes.json")
    expected = model.predict(X)
    return X.assign(id=[f"00{i}" for i in range(40)], day=pd.date_range("2025-01-01", periods=40)), expected


def hbtvm(*given: object) -> None:
    assert main(list(map(str, given))) == 0


def refused(capsys: pytest.CaptureFixture[str], *given: object) -> str:
    assert main(list(map(str, given))) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err.removeprefix("hbtvm: error: ").rstrip("\n")


def predictions(path: str) -> np.ndarray:
    return pd.read_csv(path)["prediction"].to_numpy()


def test_a_pipe(folder: Path, data: tuple[pd.DataFrame, np.ndarray], tmp_path: Path) -> None:
    X, expected = data
    text = X.to_csv(index=False, sep=";", na_rep="NA").encode()
    command = fake_cli.command(
        "predict", folder / "takes.tar", "-", "-o", "-", "--delimiter", ";", "--na", "NA", "--keep", "id",
        "--drop", "day",
    )  # fmt: skip
    done = subprocess.run(command, input=text, capture_output=True, env=fake_cli.environment(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    (tmp_path / "out.csv").write_bytes(done.stdout)
    found = pd.read_csv("out.csv", dtype={"id": str})
    assert list(found.columns) == ["id", "prediction"] and list(found["id"]) == list(X["id"])
    np.testing.assert_allclose(found["prediction"], expected, rtol=1e-5)
    done = subprocess.run(command, input=b"", capture_output=True, env=fake_cli.environment(), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "hbtvm: error: standard input: the file is empty, expected rows of the columns 'size', 'the price', "
        "'age'\n"
    )


def test_compressed_files(
    folder: Path, data: tuple[pd.DataFrame, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    X, expected = data
    X[NAMES].to_csv("rows.csv.gz", index=False)
    hbtvm("predict", folder / "takes.tar", "rows.csv.gz", "-o", "out.csv.gz")
    with gzip.open("out.csv.gz", "rt") as file:
        assert file.readline() == "prediction\n"
    np.testing.assert_allclose(predictions("out.csv.gz"), expected, rtol=1e-5)
    X[NAMES].to_json("rows.jsonl.gz", orient="records", lines=True)
    hbtvm("predict", folder / "takes.tar", "rows.jsonl.gz", "-o", "out.csv")
    np.testing.assert_allclose(predictions("out.csv"), expected, rtol=1e-5)
    whole = Path("rows.csv.gz").read_bytes()
    for damaged in (whole[: len(whole) // 2], b"size,age", whole[:200] + bytes(40) + whole[240:]):
        Path("rows.csv.gz").write_bytes(damaged)
        text = refused(capsys, "predict", folder / "takes.tar", "rows.csv.gz", "-o", "new.csv")
        assert text.startswith("rows.csv.gz: this is not a readable gzip file")
    assert not Path("new.csv").exists()
    Path("rows.npy.gz").touch()
    assert "suffix '.gz' can't be read" in refused(capsys, "predict", folder / "takes.tar", "rows.npy.gz")
    assert "can't be written" in refused(
        capsys, "predict", folder / "takes.tar", "rows.csv.gz", "-o", "o.npy.gz"
    )


def test_other_delimiters_and_words_for_missing_values(
    folder: Path, data: tuple[pd.DataFrame, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    X, expected = data
    for path, delimiter, more in (
        ("rows.csv", "|", ("--delimiter", "|")),
        ("tabs.csv", "\t", ("--delimiter", "tab")),
        ("rows.tsv", "\t", ()),
    ):
        X[NAMES].to_csv(path, index=False, sep=delimiter, na_rep="n/a")
        hbtvm("predict", folder / "takes.tar", path, "-o", "out.csv", "--na", "null,n/a", *more)
        np.testing.assert_allclose(predictions("out.csv"), expected, rtol=1e-5)
    text = refused(capsys, "predict", folder / "takes.tar", "rows.csv", "-o", "new.csv")
    assert text == "rows.csv: line 1 has no ','; if '|' separates its fields, say --delimiter '|'"
    text = refused(capsys, "predict", folder / "takes.tar", "rows.tsv", "-o", "new.csv")
    assert text == (
        "rows.tsv: row 1, column 'size': 'n/a' is not a number; "
        "if it stands for a missing value, say --na n/a"
    )
    X[NAMES].to_parquet("rows.parquet")
    for name, value in (("delimiter", ";"), ("na", "NA")):
        text = refused(capsys, "predict", folder / "takes.tar", "rows.parquet", f"--{name}", value)
        assert text == f"--{name} needs a .csv file, and this is rows.parquet"
    assert main(["predict", "m", "d", "--delimiter", ";;"]) == 2
    assert "expected a character such as ';', or tab, not ';;'" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("out", ["csv", "parquet"])
def test_columns_are_kept(
    suffix: str,
    out: str,
    folder: Path,
    data: tuple[pd.DataFrame, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hbtvm.cli.rows.data_in._CELLS", 60)  # several blocks
    X, expected = data
    match suffix:
        case "csv":
            X.to_csv("rows.csv", index=False)
        case "parquet":
            X.to_parquet("rows.parquet")
        case _:
            X.to_json("rows.jsonl", orient="records", lines=True, date_format="iso")
    hbtvm("predict", folder / "takes.tar", f"rows.{suffix}", "-o", f"out.{out}", "--keep", "day,age,id")
    found = pd.read_csv("out.csv", dtype={"id": str}) if out == "csv" else pd.read_parquet("out.parquet")
    assert list(found.columns) == ["day", "age", "id", "prediction"]
    np.testing.assert_allclose(found["prediction"], expected, rtol=1e-5)
    assert list(found["id"]) == list(X["id"])
    np.testing.assert_array_equal(found["age"].astype(np.float32), X["age"])
    days = pd.to_datetime(found["day"]).dt.tz_localize(None)
    assert list(days) == list(X["day"])
    if suffix == out == "parquet":
        assert found["day"].dtype.kind == "M" and found["age"].dtype == np.float32


def test_columns_that_cannot_be_kept(
    folder: Path, data: tuple[pd.DataFrame, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    X, _ = data
    package = folder / "takes.tar"
    X[NAMES].assign(prediction=1).to_csv("twice.csv", index=False)
    X[NAMES].to_csv("rows.csv", index=False)
    for given, sentence in (
        (
            ("rows.csv", "--keep", "agee"),
            "rows.csv: there is no column 'agee' to keep; there are 'size', 'the price', 'age'; "
            "did you mean age?",
        ),
        (
            ("twice.csv", "--keep", "prediction"),
            "--keep prediction: this column would be in the output twice",
        ),
        (("rows.csv", "--keep", "age,age"), "--keep age: this column would be in the output twice"),
        (("rows.csv", "--keep", "age", "-o", "o.npy"), "--keep needs a table, and o.npy is an array; write "),
        (("rows.npy", "--keep", "age"), "rows.npy: there are no column names, so none can be kept by name"),
        (("rows.jsonl", "--keep", "age"), "rows.jsonl: row 2 has no 'age' to keep"),
    ):
        np.save("rows.npy", X[NAMES].to_numpy())
        row = '{"size": 1, "the price": 2'
        Path("rows.jsonl").write_text(f'{row}, "age": 3}}\n{row}}}\n')
        assert refused(capsys, "predict", package, *given).startswith(sentence)
    assert not list(Path().glob("o.*"))


def test_rows_have_the_same_number_in_every_format(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbtvm.cli.rows.data_in._CELLS", 12)  # four rows in a block
    X = pd.DataFrame(np.ones((11, 3)), columns=list("abc"))
    X.loc[9, "b"] = np.nan
    X.to_csv("rows.csv", index=False)
    X.to_parquet("rows.parquet")
    X.to_feather("rows.feather")
    np.save("rows.npy", X.to_numpy())
    for path in ("rows.csv", "rows.parquet", "rows.feather", "rows.npy"):
        text = refused(capsys, "predict", folder / "refuses.tar", path, "-o", "out.csv")
        assert text.startswith(f"{path}: column 2, row 10: got NaN"), text
    Path("in").mkdir()
    X.to_parquet("in/rows.parquet")
    text = refused(capsys, "predict", folder / "refuses.tar", "in", "-o", "out")
    assert text.startswith("in/rows.parquet: column 2, row 10: got NaN"), text
    rows = ['{"size": 1, "the price": 2, "age": 1}'] * 9 + ['{"size": 1, "the price": 2}']
    Path("rows.jsonl").write_text("\n".join(rows + rows[:1]))
    text = refused(capsys, "predict", folder / "takes.tar", "rows.jsonl", "-o", "out.csv")
    assert text == "rows.jsonl: column 'age' is missing in row 10."
    assert not Path("out.csv").exists()
