"""What one environment builds, another one without a compiler measures: real processes, real crashes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm import trials as api
from hbtvm.cli.main import main
from hbtvm.errors import DeviceError, InputError, PackageError, TargetError
from hbtvm.logs.store import Log
from hbtvm.measuring import archive
from hbtvm.measuring.run import Progress
from hbtvm.recursive import known
from hbtvm.runtime.package.tables import table_bytes
from tests.measuring.exported import SIZES, archive_in, changed, model, model_file

pytestmark = pytest.mark.usefixtures("shared_workers")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that has numpy and hbtvm, and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    home = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (home / name).exists():
            (packages / name).symlink_to(home / name)
    (packages / "hbtvm").symlink_to(ROOT / "hbtvm")
    return folder / "bin" / "python"


def command(python: Path, *arguments: str, folder: Path) -> subprocess.Popen[str]:
    """Start a command of ``hbtvm`` in an environment."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.Popen(
        [str(python), "-m", "hbtvm", *arguments],
        cwd=folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_built_here_measured_there_packaged_here(environment: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    lacking = "import importlib.util as u; print([n for n in ('tvm', 'xgboost', 'rich') if u.find_spec(n)])"
    found = subprocess.run([environment, "-c", lacking], capture_output=True, text=True, cwd=there)
    assert found.stdout == "[]\n", found
    file = model_file(tmp_path)
    sizes = ["--batch-size", ",".join(map(str, SIZES)), "--threads", "1"]
    log = str(tmp_path / "log.jsonl")
    path = str(there / "trials.tar")
    assert main(["tune", str(file), "--export", path, "--trials", "8", "--log", log, *sizes]) == 0
    measured = command(environment, "measure", "trials.tar", folder=there)
    out, err = measured.communicate(timeout=120)
    assert measured.returncode == 0, err
    assert "all candidates are measured" in out and "200 rows" in out
    assert main(["log", "import", path, str(there / "trials.times.jsonl"), "--log", log]) == 0
    records = Log(log).read().records
    assert {record.workload["rows"] for record in records} == set(SIZES)
    assert len({(record.task, str(record.config)) for record in records}) == 8
    compiled = hbtvm.compile(model(), batch_sizes=SIZES, threads=1, log=log)
    assert compiled.package.tuning["origins"] == ["log", "log"]
    X = np.random.default_rng(1).normal(size=(50, 5)).astype(np.float32)
    np.testing.assert_allclose(compiled.predict_proba(X), model().predict_proba(X), rtol=1e-5)
    # A second round tries others.
    again = tmp_path / "again.tar"
    done = api.export(model(), again, trials=4, log=log, batch_sizes=SIZES, threads=1)
    assert done.built + done.twins == 4
    before = {(one.task, one.key) for one in archive.read(Path(path)).candidates}
    assert not before & {(one.task, one.key) for one in archive.read(again).candidates}


def test_a_killed_run_is_carried_on(environment: Path, tmp_path: Path) -> None:
    path, out = archive_in(tmp_path), tmp_path / "trials.times.jsonl"
    running = command(environment, "measure", "trials.tar", folder=tmp_path)
    end = time.monotonic() + 60
    while not (out.exists() and out.read_bytes().count(b"\n") > 3):
        assert time.monotonic() < end and running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    known = out.read_bytes()
    outcome = api.measure(path, out)
    assert out.read_bytes().startswith(known[: known.rindex(b"\n")])
    assert outcome.resumed >= 3 and outcome.done == outcome.total and outcome.stopped == "all"
    # Each has one reading, the fastest of each group a second time in a final.
    lines = [json.loads(line) for line in out.read_text().splitlines()[1:]]
    readings = [line["candidate"] for line in lines if "final" not in line]
    assert sorted(readings) == list(range(outcome.total))
    before = out.read_bytes()
    again = api.measure(path, out)
    assert out.read_bytes() == before and again.best == outcome.best


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping_keeps_what_was_measured(
    environment: Path, tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    archive_in(tmp_path)
    running = command(environment, "measure", "trials.tar", "-o", "times.jsonl", folder=tmp_path)
    out, end = tmp_path / "times.jsonl", time.monotonic() + 60
    while not (out.exists() and out.read_bytes().count(b"\n") > 2):
        assert time.monotonic() < end and running.poll() is None
        time.sleep(0.01)
    running.send_signal(sent)
    told, errors = running.communicate(timeout=60)
    assert running.returncode == status, errors
    name = "Ctrl-C" if sent == signal.SIGINT else "SIGTERM"
    assert f"stopped by {name}; the same command resumes" in told


def with_library(path: Path, number: int, code: bytes) -> None:
    """Put other code into one candidate of an archive."""
    name = f"kernels/{hashlib.sha256(code).hexdigest()[:32]}"

    def change(fields: dict[str, Any], contents: dict[str, bytes]) -> None:
        from hbtvm.codec import binding

        kernel = fields["candidates"][number]["kernel"]
        kernel["library"] = name
        kernel["binding"] = binding(kernel)
        contents[name] = code

    changed(path, change)


def compiled(text: str, folder: Path) -> bytes:
    """Compile a kernel's library from C."""
    source, made = folder / "kernel.c", folder / "kernel.so"
    source.write_text(text)
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return made.read_bytes()


CRASH = "int __tvm_ffi_main(void *a, void *b, int c, void *d) { return *(volatile int *)0; }"
WRONG = "int __tvm_ffi_main(void *a, void *b, int c, void *d) { return 0; }"


def test_a_crash_and_a_wrong_result_cost_their_candidates_only(tmp_path: Path) -> None:
    path = archive_in(tmp_path)
    with_library(path, 2, compiled(CRASH, tmp_path))
    with_library(path, 3, compiled(WRONG, tmp_path))
    seen: list[Progress] = []
    outcome = api.measure(path, tmp_path / "times.jsonl", progress=seen.append)
    assert outcome.stopped == "all" and outcome.failed == 2 and outcome.done == outcome.total
    errors = {one.line.candidate: one.line.error for one in seen if one.line.error}
    assert errors[2] is not None and errors[2]["kind"] == "crash" and "SIGSEGV" in errors[2]["message"]
    assert errors[3] is not None and errors[3]["kind"] == "wrong_result"
    assert api.add_times(path, tmp_path / "times.jsonl", log=tmp_path / "log.jsonl").failed == 2


def test_a_machine_on_which_nothing_works_blames_no_candidate(tmp_path: Path) -> None:
    path, out = archive_in(tmp_path), tmp_path / "times.jsonl"
    crash = compiled(CRASH, tmp_path)
    for number in range(10):
        with_library(path, number, crash)
    with pytest.raises(DeviceError, match=r"nothing works on this machine: .*SIGSEGV"):
        api.measure(path, out)
    assert len(out.read_text().splitlines()) == 1


def test_a_machine_that_stops_working_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its candidates are tried again by the next run."""
    from hbtvm.measuring import run
    from hbtvm.tuning.measuring.messages import Failure

    path, out = archive_in(tmp_path), tmp_path / "times.jsonl"
    real, calls = run.Pool.measure, []

    def lost(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return real(self, *arguments) if len(calls) < 5 else Failure("crash", "the GPU fell off the bus")

    monkeypatch.setattr(run.Pool, "measure", lost)
    with pytest.raises(DeviceError, match="no more: the GPU fell off the bus; what was measured is kept"):
        api.measure(path, out)
    assert len(out.read_text().splitlines()) == 1 + 4
    monkeypatch.undo()
    outcome = api.measure(path, out)
    assert outcome.resumed == 4 and outcome.failed == 0 and outcome.done == outcome.total


def test_a_time_budget_ends_a_run(tmp_path: Path) -> None:
    path = archive_in(tmp_path)
    outcome = api.measure(path, tmp_path / "times.jsonl", time_budget=1e-3)
    assert outcome.stopped == "time" and outcome.done == 0
    assert api.measure(path, tmp_path / "times.jsonl").stopped == "all"


def test_machines_that_can_t_run_the_code_say_why(tmp_path: Path) -> None:
    path, out = archive_in(tmp_path), tmp_path / "times.jsonl"
    with pytest.raises(InputError, match="for a CPU, so it can't be measured on device 'cuda:0'"):
        api.measure(path, out, device="cuda:0")
    changed(path, lambda fields, _: fields.update(threads=4096))
    with pytest.raises(TargetError, match="for calls of 4096 threads, but this process may use"):
        api.measure(path, out)
    changed(
        path, lambda fields, _: fields["target"].update(arch="aarch64", features=["neon"], mcpu="generic")
    )
    with pytest.raises(TargetError, match="is for generic, but this machine lacks"):
        api.measure(path, out)
    assert not out.exists()


def test_a_damaged_member_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    path = archive_in(tmp_path)

    def change(fields: dict[str, Any], contents: dict[str, bytes]) -> None:
        data = fields["data"][0]
        rows = table_bytes(np.zeros((509, 5), np.float32))
        data["rows"] = f"rows/{hashlib.sha256(rows).hexdigest()[:32]}.npy"
        contents[data["rows"]] = rows

    changed(path, change)  # other rows: what is expected of them is not
    outcome = api.measure(path, tmp_path / "times.jsonl")
    assert outcome.failed == outcome.total and not outcome.best
    data = bytearray(path.read_bytes())
    place = data.index(b"kernels/") + 512 + 100
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(PackageError, match=r"trials\.tar is damaged"):
        api.measure(path, tmp_path / "more.jsonl")


def test_the_command_line_refuses_what_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, path = str(model_file(tmp_path)), str(archive_in(tmp_path))
    out = str(tmp_path / "new.tar")
    for arguments, words in (
        (["tune", file, "--export", out, "-o", "x.tar"], "takes no --out"),
        (["tune", file, "--export", out, "--time-budget", "5"], "takes no --time-budget"),
        (["tune", file, "--export", str(tmp_path / "no" / "t.tar")], "there is no folder"),
        (["measure", file], "not a tar archive"),
        (["measure", str(tmp_path / "none.tar")], "there is no such file, expected an archive of trials"),
        (["log", "import", path, file, "--log", str(tmp_path / "log.jsonl")], "not a file of times"),
    ):
        assert main(arguments) == 2, arguments
        assert words in capsys.readouterr().err
    assert not Path(out).exists() and not (tmp_path / "log.jsonl").exists()


def test_recursive_models_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tree.rec"
    cell = known.CELLS["tree_lstm"](4, 2)
    rec.Model(cell, known.example_weights("tree_lstm", 4, 20), rec.roots("h")).save(file)
    assert main(["tune", str(file), "--export", str(tmp_path / "t.tar")]) == 2
    assert "recursive models can't be exported" in capsys.readouterr().err
