"""``hbtvm predict --engine``, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from tests.docs.pages import blocks
from tests.engines.cases import Case


def run(engine: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command, in an environment that is not activated."""
    command = [sys.executable, "-m", "hbtvm", "predict", *map(str, arguments), "--engine", engine]
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    folders = os.environ["PATH"].split(os.pathsep)
    own = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join(one for one in folders if one != own)
    return subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment)


def run_page(engine: str, case: Case, folder: Path) -> dict[str, Any]:
    """Run what the how-to shows of an engine, on files in a folder; return the names that it made."""
    (text,) = (one.text for one in blocks("docs/howto/clusters.md") if f"hbtvm.{engine}.predict" in one.text)
    files = {"sales": case.data, "model.tar": case.package, "scores": folder / "scores"}
    for name, path in files.items():
        text = text.replace(f'"{name}"', repr(str(path)))
    names: dict[str, Any] = {}
    exec(compile(text, "clusters.md", "exec"), names)
    return names


def check(engine: str, case: Case, folder: Path) -> None:
    """A folder in, a folder out; and nothing where a row does not fit."""
    given = (case.package, case.data, "--output", "proba", "--keep", "id", "-o")
    done = run(engine, *given, folder / "out")
    assert done.returncode == 0, done.stderr
    assert "400 predictions in" in done.stdout
    case.check(pd.read_parquet(folder / "out"))
    wrong = case.with_unknown_city(folder / "wrong")
    done = run(engine, case.package, wrong, "-o", folder / "never")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("hbtvm: error: ") and "Atlantis" in last
    assert sorted(one.name for one in folder.iterdir() if one.name != "killed") == ["out", "wrong"]
