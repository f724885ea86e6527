"""``hbtvm check``, and the comparison that ends ``hbtvm tune``: real files, libraries in processes."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

import hbtvm
from hbtvm.cli import comparison
from hbtvm.cli.main import main
from hbtvm.comparison import closing, compare
from hbtvm.comparison.process import Remote
from hbtvm.errors import HbtvmError

pytestmark = pytest.mark.usefixtures("shared_workers")

OWN = """
import os, time

class Crashes:
    def predict(self, X):
        os.abort()

class Hangs:
    def predict(self, X):
        print("it hangs", flush=True)
        time.sleep(600)

class Exits:
    def __setstate__(self, state):
        print("a licence is missing", flush=True)
        os._exit(7)

    def __getstate__(self):
        return {"a": 1}
"""


def rows() -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 9, 150),
            "city": pd.Categorical(rng.choice(["Bern", "Oslo", "Rome"], 150)),
            "id": range(150),
        }
    )
    return frame, (frame.age > 40).to_numpy() + (frame.city == "Oslo").to_numpy(int)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows as CSV and Parquet, a model of three classes, its package, and the package of another model."""
    folder = tmp_path_factory.mktemp("check")
    frame, y = rows()
    frame.to_parquet(folder / "rows.parquet")
    frame.to_csv(folder / "rows.csv", index=False)
    X = frame[["age", "city"]]
    fit = partial(xgb.XGBClassifier, n_estimators=4, max_depth=3, enable_categorical=True, n_jobs=1)
    fit().fit(X, y).save_model(folder / "xgb.json")
    fit().fit(X, y[::-1]).save_model(folder / "other.json")
    for name in ("xgb", "other"):
        model = hbtvm.compile(
            folder / f"{name}.json", batch_sizes=100, threads=1, strategies="tree_traversal"
        )
        model.save(folder / f"{name}.tar")
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(compare, "SECONDS", 0.01)
    monkeypatch.setattr(closing, "SECONDS", 0.01)


def test_in_processes(folder: Path) -> None:
    given = ["-m", "hbtvm", "check", "xgb.tar", "--model", "xgb.json", "--data", "rows.parquet"]
    done = subprocess.run([sys.executable, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split("  ")[0] == "rows in a call"
    assert [line.split()[0] for line in lines[1:4]] == ["1", "100", "150"]
    assert all(line.endswith("×") for line in lines[1:4])
    assert "the package agrees with the library in all 150 rows: predict, predict_proba, raw" in lines
    assert "xgboost" in lines[-1] and "XGBClassifier; medians in turns, 1 thread" in lines[-1]


def test_another_models_package_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "other.tar", "--model", "xgb.json", "--data", "rows.csv"]) == 1
    out = capsys.readouterr().out
    X = rows()[0][["age", "city"]]
    model = xgb.XGBClassifier()
    model.load_model("xgb.json")
    theirs, ours = model.predict(X), hbtvm.load("other.tar").predict(X)
    assert f"{(theirs != ours).sum()} labels differ" in out
    first = int(np.flatnonzero(theirs != ours)[0])
    assert ["predict", f"{first + 1}", f"{theirs[first]}", f"{ours[first]}"] in [
        line.split() for line in out.splitlines()
    ]
    assert "the package DIFFERS from the library in predict, predict_proba, raw" in out


def test_a_csv_file_of_another_dialect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = rows()[0]
    frame.loc[3, "age"] = np.nan
    frame.to_csv(folder / "rows.csv.gz", index=False, sep=";", na_rep="?")
    command = ["check", "xgb.tar", "--model", "xgb.json", "--data", "rows.csv.gz", "--delimiter", ";"]
    assert main(command) == 2  # "?" is not a number
    assert main([*command, "--na", "?", "--rows", "9"]) == 0
    assert "the package agrees with the library in all 9 rows" in capsys.readouterr().out


def test_a_pipelines_pickle_needs_trust(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame, y = rows()
    X = frame[["city", "age"]].astype({"city": object})
    pipeline = make_pipeline(OrdinalEncoder(), LogisticRegression()).fit(X[["city"]], y)
    (folder / "pipe.pkl").write_bytes(pickle.dumps(pipeline))
    hbtvm.compile(pipeline, batch_sizes=100, threads=1).save("pipe.tar")
    given = ["check", "pipe.tar", "--model", "pipe.pkl"]
    assert main(given) == 2
    assert "pipe.pkl: to call the library, this pickle has to be loaded, which can run any program" in (
        capsys.readouterr().err
    )
    # Columns are matched by name.
    assert main([*given, "--trust", "--data", "rows.csv", "--rows", "140", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["agrees"] is True and printed["library"].endswith("Pipeline")
    assert [timing["rows"] for timing in printed["timings"]] == [1, 100, 140]
    outputs = {output["output"]: output for output in printed["outputs"]}
    assert list(outputs) == ["predict", "predict_proba", "decision_function"]
    assert all((output["rows"], output["equal"]) == (140, 140) for output in outputs.values())
    frame.drop(columns="city").to_csv(folder / "without.csv", index=False)
    assert main([*given, "--trust", "--data", "without.csv"]) == 2
    assert "column 'city' of the model is missing; there are 'age', 'id'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Crashes", "the library's process crashed with SIGABRT"),
        ("Hangs", "the library's process did not answer within 1 seconds (predict)"),
        ("Exits", "the library's process exited with status 7: a licence is missing (loading the model)"),
    ],
)
def test_the_library_fails(name: str, sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(folder))
    import own_models  # type: ignore[import-not-found]

    path = folder / f"{name}.pkl"
    path.write_bytes(pickle.dumps(getattr(own_models, name)()))

    def call() -> Any:
        library = Remote(str(path), ("predict",), 1, trust=True, timeout=60.0)
        if name == "Hangs":
            library._timeout = 1.0  # after its process has started, which takes longer on a busy machine
        try:
            library.take(np.zeros((3, 2)))
            return library.result("predict")
        finally:
            library.close()

    with pytest.raises(HbtvmError) as error:
        call()
    assert sentence in str(error.value)


def test_inputs_that_are_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "none.csv").write_text("age,city\n")
    (folder / "rows.xls").touch()
    for given, sentence in (
        ("xgb.tar --model none.json", "none.json: there is no such file, expected a trained model"),
        ("xgb.json --model xgb.json", "this seems to be a trained model, expected a package"),
        ("xgb.tar --model xgb.json --data none.csv", "none.csv: there are no rows to compare"),
        ("xgb.tar --model xgb.json --data rows.xls", "data with the suffix '.xls' can't be read"),
        ("xgb.tar --model xgb.json --data rows.parquet --na NA", "--na needs a .csv file"),
        ("xgb.tar", "--model"),
    ):
        assert main(["check", *given.split()]) == 2
        assert sentence in capsys.readouterr().err


def test_tune_ends_with_the_comparison(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = "tune xgb.json --trials 1 --batch-size 100 --threads 1 --strategy tree_traversal -o tuned.tar"
    assert main(given.split()) == 0
    out = capsys.readouterr().out
    assert "the package agrees with the library in all 1,000 rows: predict, predict_proba, raw" in out
    model = hbtvm.load("tuned.tar")
    (folder / "m.pkl").write_bytes(pickle.dumps([1]))
    comparison.print_closing(model, Path("m.pkl"), Path("tuned.tar"), trust=False)
    assert capsys.readouterr().out == ("compare  hbtvm check tuned.tar --model m.pkl --trust --data ROWS\n")
    # A failure of the library does not spoil the search's result.
    (folder / "broken.json").write_text('{"learner": 1}')
    comparison.print_closing(model, Path("broken.json"), Path("tuned.tar"), trust=False)
    out = capsys.readouterr().out
    assert out.startswith("compare  hbtvm check tuned.tar --model broken.json --data ROWS (not done here: ")
