"""`python -m hbtvm.gpucheck` in processes of its own, behind the emulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import bundle as building
from benchmarks.gpu import recursive
from benchmarks.gpu.bundle import Contents
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import InputError
from hbtvm.gpucheck import bundle, kinds
from hbtvm.gpucheck.bundle import Step
from hbtvm.gpucheck.run import RESULTS, Results
from hbtvm.runtime.package.file import Package
from tests import emulated
from tests.models import data
from tests.runtime_models import trained

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))

NAME = "lgb_two"


def aborting(package: Package) -> Package:
    """The package with code that ends the process that loads it, as a fault in the driver may."""
    text = "#include <cstdlib>\n__attribute__((constructor)) static void fault() { abort(); }\n"
    code = b"EMULATED:" + emulated._compiled(text, "abort.so").encode()
    return replace(package, kernels=tuple(replace(kernel, library=code) for kernel in package.kernels))


def contents(tmp_path: Path) -> Path:
    """A bundle: the second check's kernel aborts, the fourth's expected outputs are wrong."""
    X = data()[0][:300].astype(np.float32)
    with emulated.machine():
        package = emulated.package(NAME)
    want = trained(NAME)[0].predict(X, "raw")
    made = Contents([Step("the device", "device", alone=True)])
    fields = {
        "package": made.put("packages/a.tar", package),
        "rows": made.put("rows.npy", X),
        "expected": made.put("want.npy", want),
        "output": "raw",
        "counts": [1, 7, 700],
    }
    wrong = {**fields, "expected": made.put("wrong.npy", want + 1)}
    faulty = {**fields, "package": made.put("packages/b.tar", aborting(package))}
    for name, step in {"first": fields, "faulty": faulty, "third": fields, "wrong": wrong}.items():
        made.steps.append(Step(name, "scores", step))
    made.steps.append(Step("hanging", "times", {**fields_of(fields), "counts": [300]}, 0.01, True))
    made.steps.append(
        Step("memcheck: first", "sanitize", {"tool": "memcheck", "fields": {**fields, "counts": [1]}})
    )
    made.steps.append(
        Step("rows of nothing", "on_device", {**fields_of(fields), "library": "no_such_library"})
    )
    bundle.write(tmp_path / "bundle.tar", {"kind": "cuda"}, made.steps, made.files)
    return tmp_path / "bundle.tar"


def fields_of(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("package", "rows")}


def ran(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the check where the driver's library is the emulated driver."""
    libraries = tmp_path / "libraries"
    libraries.mkdir(exist_ok=True)
    link = libraries / "libcuda.so.1"
    if not link.exists():
        link.symlink_to(emulated.driver_library())
    command = [sys.executable, "-m", "hbtvm.gpucheck", str(tmp_path / "bundle.tar"), *arguments]
    # Blocks of persistent kernels run together, so few fill the emulated device.
    settings = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "HBTVM_FAKE_RESIDENT": "8"}
    return subprocess.run(command, capture_output=True, text=True, env=settings)


def results(out: Path) -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in (out / RESULTS).read_text().splitlines()]


def test_a_fault_costs_its_step_only_and_a_second_run_resumes(tmp_path: Path) -> None:
    contents(tmp_path)
    out = tmp_path / "out"
    done = ran(tmp_path, "--out", str(out), "--jobs", "1")
    assert done.returncode == 1, done.stderr
    head, *lines = results(out)
    found = {line["step"]: line for line in lines}
    assert len(head["bundle"]) == 64
    assert [line["step"] for line in lines] == [
        "the device", "first", "faulty", "third", "wrong", "hanging", "memcheck: first", "rows of nothing",
    ]  # fmt: skip
    states = {name: line["status"] for name, line in found.items()}
    assert states == {
        "the device": "passed", "first": "passed", "faulty": "failed", "third": "passed", "wrong": "failed",
        "hanging": "failed", "memcheck: first": "left out", "rows of nothing": "left out",
    }  # fmt: skip
    assert "signal 6" in found["faulty"]["said"]
    assert found["wrong"]["said"].startswith("AssertionError") and "1 rows" in found["wrong"]["said"]
    assert found["hanging"]["said"] == "not done after 0 s"
    assert found["the device"]["figures"]["multiprocessors"] == 8
    assert found["first"]["figures"]["largest_difference"] < 1e-6
    report = (out / "report.md").read_text()
    assert report.startswith("3 failed, 3 passed, 2 left out\n") and report in done.stdout
    again = ran(tmp_path, "--out", str(out))
    assert again.returncode == 1 and results(out) == [head, *lines]
    # A line that was cut off is repeated.
    text = (out / RESULTS).read_text()
    (out / RESULTS).write_text(text[: text.rindex('"status"')] + "\n")
    assert ran(tmp_path, "--out", str(out)).returncode == 1
    assert json.loads((out / RESULTS).read_text().splitlines()[-1]) == lines[-1] | {
        "seconds": pytest.approx(0, abs=60)
    }


def test_a_deadline_ends_the_run(tmp_path: Path) -> None:
    contents(tmp_path)
    out = tmp_path / "out"
    done = ran(tmp_path, "--out", str(out), "--deadline", "1", "--only", "first", "--only", "third")
    assert done.returncode == 3 and "2 not run" in done.stdout
    done = ran(tmp_path, "--out", str(out), "--only", "first", "--only", "third")
    assert done.returncode == 0 and done.stdout.count("passed") >= 2


def test_wrong_files_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "bundle.tar").write_bytes(b"not a bundle")
    done = ran(tmp_path, "--list")
    assert done.returncode == 2 and "is not a whole bundle" in done.stderr
    (tmp_path / "bundle.tar").unlink()
    done = ran(tmp_path, "--list")
    assert done.returncode == 2 and "can't read" in done.stderr
    contents(tmp_path)
    done = ran(tmp_path, "--list")
    assert done.returncode == 0 and done.stdout.splitlines()[:2] == ["the device", "first"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RESULTS).write_text('{"bundle": "another"}\n')
    done = ran(tmp_path, "--out", str(tmp_path / "out"))
    assert done.returncode == 2 and "results of this bundle" in done.stderr


@pytest.mark.parametrize("levels", recursive.LEVELS)
def test_recursive_models_are_checked_and_timed(
    levels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recursive, "CELLS", {"mv_rnn": 2})
    monkeypatch.setattr(recursive, "LEVELS", (levels,))
    made = Contents()
    with emulated.machine() as machine:
        machine.set(emulated.RESIDENT, 3)
        ((title, fields),) = building._recursive(resolve(emulated.SM90), made, 16, (1, 2))
        written(made, tmp_path)
        assert title == f"mv_rnn, levels by {levels}"
        assert "readouts of" in kinds.recursive(tmp_path, **fields)[0]
        timed = {name: fields[name] for name in ("package", "structures")}
        assert set(kinds.recursive_time(tmp_path, **timed, calls=2)[1]) == {"1 structures", "2 structures"}
        with np.load(tmp_path / "expected/mv_rnn.npz") as arrays:
            np.savez(tmp_path / "wrong.npz", **{name: values + 1e-3 for name, values in arrays.items()})
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            kinds.recursive(tmp_path, **{**fields, "expected": "wrong.npz"})


def test_a_bundle_has_trials_and_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trials_of(library: str, target: Any, cache: Path, folder: Path) -> Path:
        (folder / f"{library}.tar").write_bytes(library.encode())
        return folder / f"{library}.tar"

    for name in ("measurements", "recursive_models"):
        monkeypatch.setattr(building, name, lambda *_: None)
    monkeypatch.setattr(building, "contents", lambda target: Contents([Step("the device", "device")]))
    monkeypatch.setattr(building, "trials_of", trials_of)
    monkeypatch.setattr("sys.argv", ["bundle", "--out", str(tmp_path / "bundle.tar")])
    assert building.main() == 0
    found = bundle.unpack(tmp_path / "bundle.tar", tmp_path)
    assert [step.name for step in found.steps] == ["the device", "trials of lightgbm", "trials of xgboost"]
    assert [(tmp_path / step.fields["archive"]).read_text() for step in found.steps[1:]] == [
        "lightgbm",
        "xgboost",
    ]
    monkeypatch.setattr(building, "MOST_BYTES", 100)
    assert building.main() == 1 and "is larger than 0 MB" in capsys.readouterr().out


def test_kernels_and_sizes_of_shared_memory_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = data()[0][:300].astype(np.float32)
    made = Contents()
    with emulated.machine() as machine:
        monkeypatch.setattr(kinds, "Health", lambda gpu: type("Health", (), {"read": dict})())
        fields = {"package": made.put("a.tar", emulated.package(NAME)), "rows": made.put("rows.npy", X)}
        written(made, tmp_path)
        # The emulated clock tells a millisecond for each run.
        figures = kinds.times(tmp_path, **fields, counts=(1, 600))[1]
        assert figures["600"]["kernel"] == pytest.approx(1e-3, rel=0.01) and figures["1"]["call"] > 0
        said, figures = kinds.carveouts(tmp_path, **fields, count=300, sizes=(32 * 1024, 228 * 1024))
        assert machine.get(emulated.CARVEOUT) == 100
    assert list(figures) == ["the driver's choice", "32 KiB", "228 KiB"] and "the same scores" in said


@pytest.mark.parametrize("library", ["cupy"])
def test_rows_on_the_device_are_compared(
    library: str, tmp_path: Path, cupy: type[emulated.Cupy], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Contents()
    fields = {
        "package": made.put("a.tar", emulated.package(NAME)),
        "rows": made.put("rows.npy", data()[0][:50].astype(np.float32)),
    }
    written(made, tmp_path)
    monkeypatch.setattr(kinds.importlib.util, "find_spec", lambda name: object())
    assert "to the bit" in kinds.on_device(tmp_path, **fields, library=library)[0]


def written(made: Contents, folder: Path) -> None:
    for name, content in made.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def test_one_run_writes_the_results(tmp_path: Path) -> None:
    path = tmp_path / RESULTS
    path.write_text('{"bun')  # a run that was cut off
    results = Results(path, "digest")
    results.add({"step": "first", "status": "passed"})
    with pytest.raises(InputError, match="being written by another run"):
        Results(path, "digest")
    results.close()
    with path.open("a") as file:
        file.write('{"step": "sec')
    results = Results(path, "digest")
    results.add({"step": "third", "status": "passed"})
    results.close()
    results = Results(path, "digest")
    assert list(results.known) == ["first", "third"]
    results.close()
    with pytest.raises(InputError, match="results of this bundle"):
        Results(path, "another digest")
