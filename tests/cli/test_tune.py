"""``hbtvm tune`` and ``hbtvm compile``: what they check first, pass on, write, and say."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hbtvm
from hbtvm.cli.main import main
from hbtvm.cli.progress.summary import print_report
from hbtvm.logs.store import LogError
from hbtvm.runtime.package.calls import CallTimes
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.result import GroupResult
from tests import fake_cli
from tests.fake_cli import CALLS, result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with ``m.txt`` for a model, and the fake in place."""
    monkeypatch.chdir(tmp_path)
    fake(monkeypatch)
    (tmp_path / "m.txt").write_text("a model")
    CALLS.clear()
    return tmp_path


def fake(monkeypatch: pytest.MonkeyPatch, how: str = "fine") -> None:
    module = fake_cli.api(how)
    monkeypatch.setitem(__import__("sys").modules, "hbtvm.api", module)
    monkeypatch.setattr(hbtvm, "api", module, raising=False)


def test_what_is_given_is_passed_on(folder: Path) -> None:
    given = (
        "tune m.txt --target llvm --device cuda:1 --batch-size 7 --threads 3 --trials 9 --time-budget 2.5 "
        "--log my.jsonl --explain "
        "--no-transfer --seed 5 --dtype float64 --strategy gemm,bitvector --max-size 8G -o out.tar "
        "--rpc-tracker 10.0.0.5:9190 --rpc-key zen4 "
        "--preset autotvm --explorer tpe --cost-model regression --features flat --acquisition ei "
        "--diversity 2 --epsilon 0.2"
    )
    assert main(given.split()) == 0
    options = {
        "target": "llvm",
        "device": "cuda:1",
        "batch_sizes": (7,),
        "threads": 3,
        "trials": 9,
        "time_budget": 2.5,
        "log": Path("my.jsonl"),
        "transfer": False,
        "seed": 5,
        "dtype": "float64",
        "strategies": ("gemm", "bitvector"),
        "max_bytes": 8 << 30,
        "explain": True,
        "rpc_tracker": "10.0.0.5:9190",
        "rpc_key": "zen4",
        "preset": "autotvm",
        "explorer": "tpe",
        "cost_model": "regression",
        "features": "flat",
        "acquisition": "ei",
        "diversity": 2,
        "epsilon": 0.2,
    }
    assert [("search", "m.txt", options)] == CALLS
    assert (folder / "out.tar").stat().st_size == 100_000


def test_what_is_usual(folder: Path) -> None:
    assert main(["tune", "m.txt"]) == 0
    [(_, _, options)] = CALLS
    assert options == {
        "target": "cpu",
        "device": None,
        "batch_sizes": None,
        "threads": None,
        "trials": None,
        "time_budget": None,
        "log": Path("hbtvm-tuning.jsonl"),
        "transfer": True,
        "seed": 0,
        "dtype": "float32",
        "strategies": None,
        "max_bytes": None,
        "explain": False,
        "rpc_tracker": None,
        "rpc_key": None,
        "preset": "default",
        **dict.fromkeys(vars(Choices())),
    }
    assert sorted(os.listdir(folder)) == ["m.tar", "m.txt"]


def test_the_end_names_the_command_that_compares(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loading a pickle with its library could run any program."""
    os.rename("m.txt", "m.pkl")
    assert main(["tune", "m.pkl"]) == 0
    assert "compare  hbtvm check m.tar --model m.pkl --trust --data ROWS\n" in capsys.readouterr().out
    assert main(["tune", "m.pkl", "--no-check"]) == 0
    assert "hbtvm check" not in capsys.readouterr().out


def test_the_package_goes_to_the_current_folder(folder: Path) -> None:
    (folder / "models").mkdir()
    (folder / "models" / "big.model.json").touch()
    assert main(["tune", "models/big.model.json"]) == 0
    assert (folder / "big.model.tar").exists()


def test_compile_passes_on_and_writes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "m.txt", "--batch-size", "3", "--strategy", "gemm"]) == 0
    [(name, model, options)] = CALLS
    assert (name, model, options["log"], options["batch_sizes"]) == ("compile", "m.txt", None, (3,))
    out = capsys.readouterr().out
    assert "hbtvm tune finds faster code" in out and "m.tar" in out


def test_compile_takes_the_log_that_tune_wrote(folder: Path) -> None:
    (folder / "hbtvm-tuning.jsonl").touch()
    assert main(["compile", "m.txt"]) == 0
    assert CALLS[0][2]["log"] == Path("hbtvm-tuning.jsonl")
    assert main(["compile", "m.txt", "--log", "missing.jsonl"]) == 2


@pytest.mark.parametrize("command", ["tune", "compile"])
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("missing.pkl", "missing.pkl: there is no such file, expected a trained model"),
        ("sub", "sub: this is a folder, expected a trained model"),
        ("m.txt -o sub", "sub: the name of a package must end in .tar"),
        ("m.txt -o m.txt", "m.txt: the name of a package must end in .tar"),
        ("m.txt -o folder.tar", "folder.tar: this is a folder, expected the name of a file to write"),
        ("m.txt -o none/m.tar", "none/m.tar: there is no folder none"),
        ("m.txt -o pipe.tar", "pipe.tar: this is not a regular file, so it can't be replaced"),
        ("m.txt -o /proc/m.tar", "/proc/m.tar: nothing can be written in /proc (No such file or directory)"),
        ("m.txt --log sub", "sub: this is a folder, expected a tuning log"),
    ],
)
def test_nothing_is_begun_that_could_not_end(
    command: str, given: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "sub").mkdir()
    (folder / "folder.tar").mkdir()
    os.mkfifo(folder / "pipe.tar")
    before = sorted(os.listdir(folder))
    assert main([command, *given.split()]) == 2
    assert capsys.readouterr().err == f"hbtvm: error: {sentence}\n"
    assert CALLS == []
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("none/log.jsonl", "none/log.jsonl: there is no folder none"),
        ("m.txt", "m.txt: this is not a tuning log, or has another version: no line can be read"),
    ],
)
def test_a_log_that_cannot_be(
    log: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "m.txt", "--log", log]) == 2
    assert capsys.readouterr().err == f"hbtvm: error: {sentence}\n"
    assert CALLS == []


def test_a_log_may_be_nowhere(folder: Path) -> None:
    assert main(["tune", "m.txt", "--log", "/dev/null"]) == 0


@contextmanager
def nobody() -> Iterator[None]:
    """As a user who may not do everything."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("m.txt", "m.tar: nothing can be written in . (Permission denied)"),
        ("m.txt -o locked/m.tar", "locked/m.tar: Permission denied"),
        ("m.txt -o /tmp/m.tar --log locked/x", "locked/x: Permission denied"),
        ("m.txt -o /tmp/m.tar --log old.jsonl", "old.jsonl: no permission to write this tuning log"),
        ("secret.txt", "secret.txt: no permission to read a trained model"),
    ],
)
def test_no_permission(
    given: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CALLS.clear()
    fake(monkeypatch)
    # Not pytest's folder, which nobody else may enter.
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.chdir(name)
        Path("locked").mkdir()
        for path, mode in {
            "m.txt": 0o644,
            "secret.txt": 0,
            "old.jsonl": 0o444,
            "locked": 0,
            ".": 0o555,
        }.items():
            Path(path).touch()
            Path(path).chmod(mode)
        with nobody():
            status = main(["tune", *given.split()])
        Path(".").chmod(0o755)
        monkeypatch.undo()
    assert status == 2
    assert capsys.readouterr().err == f"hbtvm: error: {sentence}\n"
    assert CALLS == []


def test_an_interrupted_search_is_packaged(tmp_path: Path) -> None:
    status, out, err = interrupted(tmp_path, "waits")
    assert status == 0
    assert "stopped by Ctrl-C; this is the best so far" in out
    assert (tmp_path / "m.tar").exists()
    assert "Traceback" not in err


@pytest.mark.parametrize("how", ["early", "nothing"])
def test_interrupted_before_anything_was_measured(
    how: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, how)
    assert main(["tune", "m.txt"]) == 130
    assert capsys.readouterr().err.endswith("hbtvm: interrupted, and nothing was packaged\n")
    (folder / "hbtvm-tuning.jsonl").touch()
    assert main(["tune", "m.txt"]) == 130
    assert "hbtvm-tuning.jsonl keeps the measurements" in capsys.readouterr().err
    assert not (folder / "m.tar").exists()


def interrupted(folder: Path, how: str | None, *more: str, model: str = "m.txt") -> tuple[int, str, str]:
    """Run ``tune``, press Ctrl-C once something was tried, and return status and output."""
    if how is not None:
        (folder / model).touch()
    process = subprocess.Popen(
        fake_cli.command("tune", model, *more, how=how),
        cwd=folder,
        env=fake_cli.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line == "waiting\n" or (how is None and " row" in line):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    return process.returncode, out, "".join(lines) + err


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.txt").touch()
    (tmp_path / "m.tar").write_text("the old one")
    (tmp_path / "hbtvm-tuning.jsonl").touch()
    done = fake_cli.run("tune", "m.txt", how="fine", cwd=tmp_path, preexec_fn=lambda: limit(50_000))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "hbtvm: error: m.tar could not be written: File too large; the log keeps everything: the same "
        "command packages it without measuring again"
    )
    assert (tmp_path / "m.tar").read_text() == "the old one"
    assert sorted(os.listdir(tmp_path)) == ["hbtvm-tuning.jsonl", "m.tar", "m.txt"]


def test_a_log_that_cannot_be_written_stops_the_run_and_the_best_is_packaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, "full")
    assert main(["tune", "m.txt"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "hbtvm: error: cannot write tuning log x.jsonl: No space left; m.tar holds the best so far"
    )
    assert (folder / "m.tar").exists()


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


REPORT = """\
rows in a call  strategy                   default   kernel   gain  per row  call, array  call, frame  \
trials  failed
1 row           none worked; default used        -        -      -        -      2.00 µs      46.0 µs  \
     4       4
10 rows         not reached; default used        -        -      -        -            -            -  \
     0       0
100 rows        gemm                       30.0 µs  25.0 µs  1.20×   250 ns       300 µs            -  \
    96       1

tuning can't help where the kernel takes less than a tenth of a call: 25.0 µs of 300 µs (100 rows); the \
search left these sizes, and --trials N searches them all the same
the model expects less than 2% more of further trials: 100 rows (after 96 trials, 0.5% expected); the search \
left these sizes, and --trials N goes on
failed trials by kind: 4 build, 1 timeout
  build, for example: g++ is
warning: the cost model failed once
search   100 trials, 30 of them found in the log; the time budget is spent
log      a.jsonl: the same command carries on from here, and other models learn from it
package  m.tar (0.1 MB)
next     hbtvm predict m.tar DATA.csv -o OUT.csv
"""


def test_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.tar").write_bytes(bytes(100_000))
    kinds: dict[str, Any] = {"warnings": ["the cost model failed once"]}
    # Failures of one kind that are frequent come with an example.
    monkeypatch.setattr("hbtvm.cli.progress.summary._TELLING_SHARE", 0.03)
    first, last = result().groups.items()
    groups = dict([first, ("10 rows", GroupResult(None, (), 0, {}, {}, 10)), last])
    left: dict[str, Any] = {"overheads": {"100 rows": (2.5e-5, 3e-4)}, "settled": {"100 rows": 0.005}}
    found = result("time", groups=groups, **left, **kinds)
    calls = [CallTimes(1, {"array": 2e-6, "frame": 4.6e-5}), CallTimes(100, {"array": 3e-4})]
    print_report(found, Path("m.tar"), Path("a.jsonl"), calls=calls)
    lines = capsys.readouterr().out.splitlines()
    time = lines.pop(
        lines.index("search   100 trials, 30 of them found in the log; the time budget is spent") + 1
    )
    assert lines == REPORT.splitlines()
    assert time == (
        "time     1 min 00 s: 1.0 s planning, 2.0 s training the cost model, 30 s building, 20 s measuring, "
        "7.0 s the rest"
    )
    print_report(
        result("log", log_error=LogError("cannot write tuning log a.jsonl: full")), *map(Path, ("m.tar", "a"))
    )
    out = capsys.readouterr().out
    assert "log      incomplete, cannot write tuning log a.jsonl: full\n" in out
    assert "the tuning log could not be written; this is the best so far" in out
