"""``hbtvm predict``, ``inspect``, ``compile`` and ``tune`` on real models, from files to files."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn import ensemble, tree

from hbtvm import api, run
from hbtvm.cli.main import main
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.operators.base import Input
from hbtvm.streaming.outputs import column_names
from tests import fake_cli, models
from tests.cli.test_tune import interrupted, limit


@functools.cache
def frame(numbers: bool = False) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows with names, missing values and a column of categories, and three classes."""
    rng = np.random.default_rng(3)
    n = 300
    X = pd.DataFrame({"size": rng.normal(size=n), "the weight": rng.normal(size=n)})
    kinds = np.array([30, 10, 20] if numbers else ["red", "deep blue", "green, dark"])[rng.integers(0, 3, n)]
    y = np.array(["lo", "mid", "hi"])[
        np.digitize(X["size"] + (kinds == kinds[0]) + 0.1 * rng.normal(size=n), [0, 1])
    ]
    X["kind"] = pd.Categorical(kinds)
    X.loc[::7, "size"] = np.nan
    X.loc[::11, "kind"] = np.nan
    return X, y


def _codes(y: np.ndarray) -> np.ndarray:
    return np.unique(y, return_inverse=True)[1]


def _hist() -> Any:
    X, y = frame()
    return ensemble.HistGradientBoostingClassifier(
        max_iter=4, min_samples_leaf=5, categorical_features="from_dtype"
    ).fit(X, y)


MODELS: dict[str, Callable[[], Any]] = {
    "sk": _hist,
    "xgb": lambda: xgb.XGBClassifier(n_estimators=4, max_depth=3, enable_categorical=True).fit(
        frame()[0], _codes(frame()[1])
    ),
    "lgb": lambda: lgb.LGBMClassifier(n_estimators=4, min_child_samples=5, verbose=-1).fit(
        frame()[0].rename(columns={"the weight": "the_weight"}), frame()[1]
    ),
    "lgb_numbers": lambda: lgb.LGBMRegressor(n_estimators=4, min_child_samples=5, verbose=-1).fit(
        frame(True)[0].rename(columns={"the weight": "the_weight"}), _codes(frame(True)[1])
    ),
}


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Path]]:
    """Makes a model and its package, each once."""
    folder = tmp_path_factory.mktemp("packages")

    @functools.cache
    def make(name: str) -> tuple[Any, Path]:
        model = MODELS[name]() if name in MODELS else models.ZOO[name]()
        path = folder / f"{name}.tar"
        api.compile(model, batch_sizes=(100,), threads=1).save(path)
        return model, path

    return make


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hbtvm(*given: object) -> None:
    assert main(list(map(str, given))) == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_names_and_categories(name: str, suffix: str, packages: Any) -> None:
    model, package = packages(name)
    X, y = frame(name == "lgb_numbers")
    data = X.assign(label=y)
    data.to_csv("d.csv", index=False)
    data.to_parquet("d.parquet")
    proba = name != "lgb_numbers"
    wanted: Any = X.rename(columns={"the weight": "the_weight"}) if name.startswith("lgb") else X
    expected = model.predict_proba(wanted) if proba else model.predict(wanted)
    output = ["--output", "proba"] if proba else []
    hbtvm("predict", package, f"d.{suffix}", "--drop", "label", *output, "-o", "o.npy")
    np.testing.assert_allclose(np.load("o.npy"), expected, rtol=1e-5)
    hbtvm("predict", package, f"d.{suffix}", "--drop", "label", *output, "-o", "o.csv")
    columns = list(map(str, model.classes_)) if proba else ["prediction"]
    found = pd.read_csv("o.csv")
    assert list(found.columns) == columns
    np.testing.assert_allclose(found.to_numpy().squeeze(), expected, rtol=1e-5)


@pytest.mark.parametrize("suffix", ["csv", "npy", "parquet"])
@pytest.mark.parametrize("name", ["xgb_two_nan", "lgb_three_cat", "sk_tree_objects", "sk_forest_pair_labels"])
def test_every_kind_of_file_gives_the_librarys_labels(name: str, suffix: str, packages: Any) -> None:
    model, package = packages(name)
    X = models.data(missing=name.endswith("nan"))[0]
    np.save("d.npy", X)
    pd.DataFrame(X).to_csv("d.csv", index=False, header=False)
    pd.DataFrame(X, columns=list("abcd")).to_parquet("d.parquet")
    hbtvm("predict", package, f"d.{suffix}", "-o", f"o.{suffix}")
    read: dict[str, Callable[[str], Any]] = {
        "csv": lambda path: pd.read_csv(path).to_numpy(),
        "npy": np.load,
        "parquet": lambda path: pd.read_parquet(path).to_numpy(),
    }
    expected = model.predict(X)
    found = read[suffix](f"o.{suffix}")
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def test_in_blocks_or_at_once_is_the_same(packages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, package = packages("xgb_two_nan")
    np.save("d.npy", models.data(missing=True)[0])
    hbtvm("predict", package, "d.npy", "-o", "once.npy", "--output", "raw")
    monkeypatch.setattr("hbtvm.cli.rows.data_in._CELLS", 28)
    hbtvm("predict", package, "d.npy", "-o", "blocks.npy", "--output", "raw", "--threads", 2)
    np.testing.assert_array_equal(np.load("once.npy"), np.load("blocks.npy"))
    assert len(np.load("once.npy")) == models.N_ROWS


@pytest.mark.parametrize("suffix", ["csv", "npy", "parquet"])
def test_no_rows(suffix: str, packages: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, package = packages("xgb_two_nan")
    Path("d.csv").write_text("a,b,c,d\n")
    np.save("d.npy", np.zeros((0, 4)))
    pd.DataFrame(np.zeros((0, 4)), columns=list("abcd")).to_parquet("d.parquet")
    assert main(["predict", str(package), f"d.{suffix}", "-o", "o.csv"]) == 2
    assert capsys.readouterr().err == f"hbtvm: error: d.{suffix}: there are no rows to predict\n"
    assert not Path("o.csv").exists()


def test_what_the_model_refuses_has_a_place(
    packages: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, package = packages("sk_boost_two")
    Path("d.csv").write_text("1,2,3,4\n" * 9 + "1,2,,4\n")
    assert main(["predict", str(package), "d.csv"]) == 2
    assert capsys.readouterr().err.startswith("hbtvm: error: d.csv: column 3, row 10: got NaN")
    monkeypatch.setattr("hbtvm.cli.rows.data_in._CELLS", 16)
    assert main(["predict", str(package), "d.csv", "-o", "o.csv"]) == 2
    assert capsys.readouterr().err.startswith("hbtvm: error: d.csv: column 3, row 10: got NaN")
    assert not Path("o.csv").exists()


def test_to_standard_output(packages: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model, package = packages("xgb_two_nan")
    Path("d.csv").write_text("1,2,3,4\n,,,\n")
    hbtvm("predict", package, "d.csv")
    rows = np.array([[1, 2, 3, 4], [np.nan] * 4])
    assert capsys.readouterr().out.split() == ["label", *map(str, model.predict(rows))]


def _spec(classes: tuple[Any, ...] = (), name: str = "response") -> OutputSpec:
    return OutputSpec("classifier", 2, {name: Input(2)}, tuple(map(np.array, classes)))


@pytest.mark.parametrize(
    ("spec", "output", "shape", "names"),
    [
        (_spec((["a", "b"],), "index"), None, (5,), ["label"]),
        (_spec((["a", "b"], [1, 2]), "index"), None, (5, 2), ["label_0", "label_1"]),
        (_spec(), None, (5,), ["prediction"]),
        (_spec(), None, (5, 2), ["prediction_0", "prediction_1"]),
        (_spec(((False, True),)), "proba", (5, 2), ["False", "True"]),
        (_spec(), "proba", (5, 2), ["0", "1"]),
        (_spec((["a", "b"], [1, 2])), "proba", (5, 4), ["0_a", "0_b", "1_1", "1_2"]),
        (_spec(), "raw", (5,), ["raw_0"]),
        (_spec(), "raw", (5, 2), ["raw_0", "raw_1"]),
        (_spec(), "score", (5,), ["score"]),
    ],
)
def test_names_of_columns(spec: OutputSpec, output: str, shape: tuple[int], names: list[str]) -> None:
    assert column_names(spec, output, shape) == names


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            "none.tar d.csv",
            "none.tar: there is no such file, expected a package",
        ),
        ("{package} none.csv", "none.csv: there is no such file, expected rows to predict"),
        ("d.csv d.csv", "d.csv is not a tar archive"),
        (
            "{package} d.csv -o o.xlsx",
            "o.xlsx: output with the suffix '.xlsx' can't be written",
        ),
        ("{package} d.csv -o none/o.csv", "none/o.csv: there is no folder none"),
        ("{package} d.csv -o d.csv", "d.csv: the predictions would replace the data"),
        ("{package} d.csv --output score", "--output score: this classifier has label, proba, raw"),
        ("{package} bad.csv -o o.csv", "bad.csv: row 2, column 2: 'x' is not a number"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_left(
    given: str, sentence: str, packages: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    package = packages("xgb_two_nan")[1]
    Path("d.csv").write_text("1,2,3,4\n")
    Path("bad.csv").write_text("1,2,3,4\n1,x,3,4\n")
    assert main(["predict", *given.format(package=package).split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"hbtvm: error: {sentence}")
    assert sorted(os.listdir()) == ["bad.csv", "d.csv"]


@pytest.mark.parametrize("suffix", ["csv", "npy", "parquet"])
def test_a_full_disk_leaves_what_was_there(suffix: str, packages: Any) -> None:
    package = packages("xgb_two_nan")[1]
    np.save("d.npy", np.random.default_rng(0).normal(size=(400_000, 4)).astype(np.float32))
    Path(f"o.{suffix}").write_text("the old one")
    # The package's libraries are unpacked for a moment, and are smaller than that.
    done = fake_cli.run(
        *("predict", package, "d.npy", "-o", f"o.{suffix}", "--output", "raw"),
        cwd=Path.cwd(),
        preexec_fn=lambda: limit(350_000),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hbtvm: error: o.{suffix}: File too large\n"
    assert Path(f"o.{suffix}").read_text() == "the old one"
    assert sorted(os.listdir()) == ["d.npy", f"o.{suffix}"]


def test_predict_needs_no_compiler_and_no_training_library(packages: Any) -> None:
    package = packages("lgb")[1]
    frame()[0].to_csv("d.csv", index=False)
    heavy = ["tvm", "sklearn", "xgboost", "lightgbm", "joblib", "scipy", "pandas", "pyarrow", "rich"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({heavy})); from hbtvm.cli.main import main; "
        f"sys.exit(main(['predict', {str(package)!r}, 'd.csv', *sys.argv[1:]]))"
    )
    run = functools.partial(subprocess.run, env=fake_cli.environment(), capture_output=True, text=True)
    done = run([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 301
    done = run([sys.executable, "-c", code, "-o", "o.parquet"])
    assert (done.returncode, done.stdout) == (1, "")
    sentence = ".parquet files need pyarrow, which is not installed: pip install 'hbtvm[parquet]'"
    assert done.stderr == f"hbtvm: error: {sentence}\n"


def test_inspect_a_package(packages: Any, capsys: pytest.CaptureFixture[str]) -> None:
    package = packages("lgb_three_cat")[1]
    hbtvm("inspect", package)
    text = capsys.readouterr().out
    assert "lightgbm LGBMClassifier" in text and "18 trees" in text
    hbtvm("inspect", package, "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["library"], found["class"], found["forest"]["trees"]) == ("lightgbm", "LGBMClassifier", 18)
    assert found["classes"] == [["high", "low", "mid"]]
    assert [(kernel["rows"], kernel["dtype"]) for kernel in found["kernels"]] == [
        (100, "float32"),
        (100, "float64"),
    ]


def test_inspect_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    models.ZOO["xgb_three"]().save_model("x.json")
    hbtvm("inspect", "x.json", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["file"], found["library"], found["kind"]) == ("x.json", "xgboost", "classifier")
    assert (found["trees"], found["features"], found["outputs"], found["depth"]) == (15, 4, 3, 4)
    assert found["classes"] == [[0, 1, 2]]
    assert found["strategies"]["tree_traversal"] is None
    hbtvm("inspect", "x.json")
    text = capsys.readouterr().out
    assert "missing values         accepted\n" in text and "classes                0, 1, 2\n" in text


def test_inspect_says_why_a_strategy_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    deep = tree.DecisionTreeRegressor().fit(rng.normal(size=(300, 3)), rng.normal(size=300))
    import joblib

    joblib.dump(deep, "deep.joblib")
    hbtvm("inspect", "deep.joblib")
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("bitvector ")]
    assert line.split(maxsplit=2)[1:] == ["no", "trees have up to 300 leaves; bitvector holds at most 128"]


def test_compile_then_predict(capsys: pytest.CaptureFixture[str]) -> None:
    model = models.ZOO["xgb_real_base"]()
    model.save_model("x.json")
    hbtvm("compile", "x.json", "--batch-size", "1,50", "--threads", 1)
    X = models.data()[0]
    np.save("d.npy", X)
    hbtvm("predict", "x.tar", "d.npy", "-o", "o.npy")
    np.testing.assert_allclose(np.load("o.npy"), model.predict(X), rtol=1e-5)


def test_the_help_tells_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    hbtvm("tune", "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert f"(default: {run.TRIALS}, in at most {run.TIME_BUDGET:g} seconds;" in text


@pytest.mark.usefixtures("shared_workers")
def test_tune_then_again_then_predict(capsys: pytest.CaptureFixture[str]) -> None:
    model = models.ZOO["xgb_real_base"]()
    model.save_model("x.json")
    given = ("tune", "x.json", "--batch-size", 50, "--threads", 1, "--trials", 6)
    hbtvm(*given)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("rows in a call  strategy") and lines[1].startswith("50 rows ")
    assert "6 trials; all trials are done" in out
    assert "\x1b" not in out + err
    assert err.startswith("tuning x.json\n")
    hbtvm(*given, "-o", "again.tar")
    assert "6 trials, 6 of them found in the log" in capsys.readouterr().out
    X = models.data()[0]
    np.save("d.npy", X)
    for package in ("x.tar", "again.tar"):
        hbtvm("predict", package, "d.npy", "-o", "o.npy")
        np.testing.assert_allclose(np.load("o.npy"), model.predict(X), rtol=1e-5)
    capsys.readouterr()

    # A package with default schedules does not replace a tuned package unless the user says so.
    tuned = Path("x.tar").read_bytes()
    Path("empty.jsonl").touch()
    compiled = ("compile", "x.json", "--batch-size", 50, "--threads", 1)
    assert main([*map(str, compiled), "--log", "empty.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "hbtvm: error: x.tar: this package has 1 tuned kernel, and the new package would have none; give "
        "another name with -o, replace it with --overwrite, or tune with hbtvm tune\n"
    )
    assert Path("x.tar").read_bytes() == tuned
    hbtvm(*compiled)  # with the schedule in the log
    assert Path("x.tar").read_bytes() != tuned
    hbtvm(*compiled, "--log", "empty.jsonl", "--overwrite")
    hbtvm(*compiled, "--log", "empty.jsonl")


def test_ctrl_c_packages_the_best_so_far() -> None:
    model = models.ZOO["xgb_real_base"]()
    model.save_model("x.json")
    given = ("--batch-size", "50", "--threads", "1", "--trials", "30")
    status, out, err = interrupted(Path.cwd(), None, *given, model="x.json")
    assert status == 0, err
    assert "stopped by Ctrl-C; this is the best so far" in out
    assert "Traceback" not in err
    X = models.data()[0]
    np.save("d.npy", X)
    hbtvm("predict", "x.tar", "d.npy", "-o", "o.npy")
    np.testing.assert_allclose(np.load("o.npy"), model.predict(X), rtol=1e-5)
