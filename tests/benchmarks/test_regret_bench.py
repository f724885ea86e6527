"""The benchmark of regret: its models, its tables, and what it measures again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.search.regret import measure as measuring
from benchmarks.search.regret.__main__ import main
from benchmarks.search.regret.measure import CELLS, ThreadTime, log_of, measure, read_cells
from benchmarks.search.regret.models import MODELS, ROWS
from benchmarks.search.regret.report import report
from benchmarks.synthetic import graph
from hbtvm.compiler.targets.target import resolve
from hbtvm.tuning.result import Result
from tests.fake_tuning import InProcess


def cell(seconds: float, best: float, other: str = "bitvector") -> dict[str, Any]:
    return {
        "default": {"strategy": "bitvector", "config": {}, "seconds": seconds},
        "best": {"strategy": other, "config": {}, "seconds": best},
    }


def test_there_are_24_models_with_logs_of_their_own(tmp_path: Path) -> None:
    assert len(MODELS) == 24
    logs = {log_of(tmp_path, name, rows).path.name for name in MODELS for rows in ROWS}
    assert len(logs) == 72 and CELLS not in logs


def test_the_report_has_medians_and_the_worst() -> None:
    cells = {("a", 1): cell(1.5, 1.0), ("b", 1): cell(1.0, 1.0), ("a", 100): cell(2.0, 1.6, "gemm")}
    lines = [[part.strip() for part in line.split("|")[1:-1]] for line in report(cells).splitlines()]
    assert ["1", "1.250", "1.500", "2"] in lines and ["100", "1.250", "1.250", "1"] in lines
    assert ["all", "1.250", "1.500", "3"] in lines
    assert ["a", "1.500 bitvector", "1.250 bitvector (gemm)"] in lines
    assert ["b", "1.000 bitvector", "-"] in lines


class Here(InProcess):
    """Workers of a measurement, in this process."""

    def __init__(self) -> None:
        super().__init__(program=ThreadTime)

    def close(self) -> None: ...

    def end(self) -> None:
        self._folder.cleanup()


def test_only_what_changed_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real kernels of a tiny forest."""
    monkeypatch.setitem(measuring.MODELS, "tiny", lambda: graph(trees=3, leaves=4, features=3, seed=1))
    monkeypatch.setattr(measuring, "_FINAL", measuring.FinalOptions(rounds=1))
    monkeypatch.setattr(measuring, "_Kept", Here)
    runs: list[Result] = []
    tune = measuring.tune

    def spy(*arguments: Any) -> Result:
        runs.append(tune(*arguments))
        return runs[-1]

    monkeypatch.setattr(measuring, "tune", spy)
    target = resolve("cpu")
    measure(tmp_path, target, ["tiny"], (1,), 2)
    ((key, known),) = read_cells(tmp_path).items()
    assert key == ("tiny", 1) and known["trials"] == 2
    assert known["default"]["seconds"] >= known["best"]["seconds"] > 0
    best = runs[0].groups["1 row"].best
    assert best is not None and best.task.program.endswith(ThreadTime.__name__)
    measure(tmp_path, target, ["tiny"], (1,), 2)
    assert len(runs) == 1
    # Another default is measured, although all trials are done.
    text, mark = (tmp_path / CELLS).read_text(), '"default": {"strategy": "'
    (tmp_path / CELLS).write_text(text.replace(mark, f"{mark}old_"))
    measure(tmp_path, target, ["tiny"], (1,), 2)
    assert len(runs) == 2
    assert read_cells(tmp_path)[key]["default"]["strategy"] == known["default"]["strategy"]


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"regret --report --target none --folder {tmp_path}".split()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command)
        assert main() == 1
    assert "nothing was measured" in capsys.readouterr().err
