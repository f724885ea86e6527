"""Libraries of the fastest candidates are kept, and nothing else is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from hbtvm.tuning.measuring.artifacts import Artifacts
from hbtvm.tuning.measuring.machine import BuiltLibrary, Machine
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing
from hbtvm.tuning.measuring.program import OBJECT
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from tests.fake_tuning import InProcess, task


@dataclass
class Runner(Machine):
    """Writes one file for each build."""

    folder: Path
    built: int = 0

    def build(self, candidates: list[Candidate], until: float) -> list[BuiltLibrary]:
        found = []
        for candidate in candidates:
            self.built += 1
            path = self.folder / f"{self.built}.so"
            path.write_text(str(candidate.config["seconds"]))
            if candidate.config["seconds"] == 2.0:
                Path(f"{path}{OBJECT}").write_text("linked")
            found.append(BuiltLibrary(str(path), None))
        return found

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        seconds = float(candidate.config["seconds"])
        return Failure("crash", "it died") if seconds < 0 else Measured(0.0, (seconds,))

    def discard(self, library: BuiltLibrary) -> None:
        Path(library.path).unlink()

    def close(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


def candidate(seconds: float) -> Candidate:
    own = task()
    return Candidate(own.program, own.payload, {"seconds": seconds})


def test_the_fastest_few_are_kept(tmp_path: Path) -> None:
    inner, artifacts = Runner(tmp_path), Artifacts(kept=2)
    runner = artifacts.over(inner, [task()])
    assert not runner.parallel
    for seconds in (5.0, 3.0, 4.0, -1.0, 2.0):
        (library,) = runner.build([candidate(seconds)], math.inf)
        assert isinstance(library, BuiltLibrary)
        runner.measure(candidate(seconds), library, Timing())
        runner.discard(library)
    assert sorted(path.read_text() for path in tmp_path.glob("*.so")) == ["2.0", "3.0"]
    # A final builds only what is not kept.
    first, other = runner.build([candidate(3.0), candidate(4.0)], math.inf)
    assert isinstance(first, BuiltLibrary) and isinstance(other, BuiltLibrary)
    assert Path(first.path).read_text() == "3.0" and inner.built == 6
    # What is pushed out stays as long as somebody holds it.
    (last,) = runner.build([candidate(1.0)], math.inf)
    assert isinstance(last, BuiltLibrary)
    runner.measure(candidate(1.0), last, Timing())
    assert Path(first.path).exists()
    for library in (first, other, last):
        runner.discard(library)
    assert sorted(path.read_text() for path in tmp_path.glob("*.so")) == ["1.0", "2.0"]
    runner.close()
    assert not list(tmp_path.iterdir())
    own = task()
    found = {seconds: artifacts.library(own, {"seconds": seconds}) for seconds in (1.0, 2.0, 3.0)}
    assert found == {1.0: b"1.0", 2.0: b"2.0", 3.0: None}
    linked = {seconds: artifacts.object(own, {"seconds": seconds}) for seconds in (1.0, 2.0, 3.0)}
    assert linked == {1.0: b"", 2.0: b"linked", 3.0: b""}


def test_a_final_builds_only_the_default_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, artifacts = InProcess(), Artifacts()
    result = tune([task()], Settings(trials=30, experience=[], seed=1, artifacts=artifacts), runner)
    assert any(record.extra.get("final") for record in result.history)
    assert runner._built == 31  # the default, which others overtook long before the final
    (group,) = result.groups.values()
    assert group.best is not None and artifacts.library(group.best.task, group.best.config) is not None
