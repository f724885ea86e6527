"""``hbtvm predict --engine``, in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from hbtvm.cli.rows import engines
from hbtvm.streaming.parts import Part, parts_of
from hbtvm.streaming.reading import Dataset
from hbtvm.streaming.shipped import Shipped
from tests.docs.pages import blocks
from tests.engines.cases import Case, die_once


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


@dataclass(frozen=True)
class Dying(Part):
    """Kills the first worker that begins with it.

    Attributes
    ----------
    mark
        A file that says that one was killed.
    """

    mark: str = ""

    def predict(self, shipped: Shipped) -> int:
        die_once(self.mark)
        return super().predict(shipped)


def killed_once(engine: str, case: Case, folder: Path) -> None:
    """A worker that dies loses nothing."""
    out, mark = folder / "again", folder / "mark"
    parts = [Dying(**vars(one), mark=str(mark)) for one in parts_of(Dataset(case.data), out)]
    shipped = Shipped.of(case.package, "proba", ["id"], threads=1)
    assert sorted(engines.RUN[engine](parts, shipped, None, 1)) == [100] * 4
    assert mark.exists()
    case.check(pd.read_parquet(out))
    shutil.rmtree(out)
    mark.unlink()


def check(engine: str, case: Case, folder: Path) -> None:
    """A folder in, a folder out; and nothing where a row does not fit."""
    given = (case.package, case.data, "--output", "proba", "--keep", "id", "-o")
    done = run(engine, *given, folder / "out")
    assert done.returncode == 0, done.stderr
    assert "400 rows predicted in" in done.stdout and "4 files in all" in done.stdout
    case.check(pd.read_parquet(folder / "out"))
    assert sorted(one.name for one in (folder / "out").iterdir()) == [f"{i}.parquet" for i in range(4)]
    killed_once(engine, case, folder)
    wrong = case.with_unknown_city(folder / "wrong")
    done = run(engine, case.package, wrong, "-o", folder / "never")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("hbtvm: error: ") and "Atlantis" in last
    assert sorted(one.name for one in folder.iterdir() if one.name != "killed") == ["out", "wrong"]
