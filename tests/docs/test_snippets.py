"""What pages show runs: commands through the real command line, Python block by block.

Searches get a few seconds in place of the minutes that pages name. Not run here: what needs a GPU or other
machines (its commands are parsed), services and clusters, which `tests/serving` and `tests/engines` start.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import joblib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression

import hbtvm
from hbtvm.cli.main import main, make_parser
from tests.docs.pages import PAGES, blocks, commands

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("shared_workers")]

RUN = (
    "README.md",
    *(f"docs/howto/{name}.md" for name in ("tune", "check", "logs", "deploy", "explain", "c")),
)
"""Pages whose commands are run."""

WITH_PYTHON = [
    name
    for name in PAGES
    if any(one.language == "python" for one in blocks(name))
    and name not in ("docs/howto/clusters.md", "docs/howto/gpu.md", "docs/howto/sql.md")
]
"""Pages whose Python is run here; that of engines and SQL is by `tests/engines`."""

_ELSEWHERE = {"--allowed-signers", "--engine", "--rpc-tracker", "--sha256", "--target", "serve"}
"""In commands that are not run here."""

_FILE = re.compile(r"[\w-]+\.(pkl|txt|json|tar|jsonl|csv(\.gz)?|parquet|rec|pt2)|[\w-]+/")

_SHORTER = {r"time_budget=\d+": "trials=2", r"batch_sizes=\(1, 100, 10_000\)": "batch_sizes=(1,)"}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files by the names that pages give them."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    model = LGBMClassifier(n_estimators=5, num_leaves=7, verbose=-1).fit(X, y)
    joblib.dump(model, folder / "model.pkl")
    joblib.dump(LogisticRegression().fit(X, y), folder / "other.pkl")
    model.booster_.save_model(folder / "model.txt")
    log = folder / "hbtvm-tuning.jsonl"
    hbtvm.tune(model, batch_sizes=(1,), trials=3, threads=1, log=log).save(folder / "model.tar")
    for name in ("team", "a", "b"):
        (folder / f"{name}.jsonl").write_text(log.read_text())
    for name in ("rows", "train"):
        pd.DataFrame(X).to_csv(folder / f"{name}.csv", index=False, header=False)
    shutil.copy(folder / "model.pkl", folder / "churn.pkl")
    pd.DataFrame(X, columns=["age", "hours", "visits"]).to_parquet(folder / "customers.parquet")
    return folder


def parsed(line: str) -> list[str]:
    """A command's arguments, if its line is right."""
    words = shlex.split(line, comments=True)[1:]
    make_parser().parse_args(words)
    return words


@pytest.mark.parametrize("name", [name for name in PAGES if commands(name)])
def test_commands_are_known(name: str) -> None:
    for line in commands(name):
        try:
            parsed(line)
        except SystemExit as error:
            raise AssertionError(f"{name}: {line}") from error


@pytest.mark.parametrize("name", RUN)
def test_commands_run(name: str, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared)
    shutil.rmtree("lib", ignore_errors=True)
    run = 0
    for line in commands(name):
        words = parsed(line)
        if _ELSEWHERE & set(words) or not all(map(_is_there, words, ["", *words])):
            continue
        if words[0] == "tune":
            words = [one for one in words if one not in ("--time-budget", "3600", "1h")] + ["--trials", "2"]
        assert main(words) == 0, line
        run += 1
    assert run


def _is_there(word: str, before: str) -> bool:
    """Whether a word names no file to read, or one that is there."""
    return before in ("-o", "--log") or not _FILE.fullmatch(word) or Path(word).exists()


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_python_runs(name: str, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared)
    names: dict[str, Any] = {"hbtvm": hbtvm, "__name__": "__main__"}
    if name != "docs/tutorial.md":
        names |= {"model": joblib.load("model.pkl"), "X": np.loadtxt("rows.csv", delimiter=",")}
    for block in blocks(name):
        if block.language != "python" or "frame" in block.text:
            continue
        if "import shap" in block.text:
            pytest.importorskip("shap")
            plt.switch_backend("agg")  # its plots need a renderer, whatever other tests use
        text = block.text
        for long, short in _SHORTER.items():
            text = re.sub(long, short, text)
        exec(compile("\n" * (block.line - 1) + text, name, "exec"), names)
