"""``hbtvm log``: logs looked into, joined, and made smaller."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from hbtvm.cli.main import main
from hbtvm.logs import Log, Record

SHAPE = {
    "features": 28,
    "groups": 1,
    "trees": 500,
    "leaves": 31,
    "depth": 9,
    "dtype": "float32",
    "threads": 2,
}
CPU, GPU = {"kind": "llvm", "features": ["avx2"]}, {"kind": "cuda"}


def record(seconds: float | None, rows: int = 100, **more: Any) -> Record:
    given: dict[str, Any] = {
        "workload": {**SHAPE, "rows": rows},
        "strategy": "gemm",
        "target": CPU,
        "config": {"tile": 8},
        "times": () if seconds is None else (seconds,),
        "error": {"kind": "build", "message": "no"} if seconds is None else None,
        "date": "2025-01-31T12:00:00Z",
    }
    return Record(**{**given, **more})


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("a.jsonl")
    for one in (
        record(2e-5),
        record(1e-5, config={"tile": 16}),
        record(3e-5, strategy="bitvector"),
        record(1e-6, rows=1),
        record(None),
        record(5e-6, target=GPU),
        record(1e-3, workload={"rows": 4, "size": 10}, target=GPU),
    ):
        Log(path).append(one)
    return path


def test_best(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "best", str(log)]) == 0
    table, machines = capsys.readouterr().out.split("\n\n")
    rows = [line.split("  ") for line in table.splitlines()]
    cells = [[cell.strip() for cell in row if cell] for row in rows]
    model = "28 features, 500 trees of 31 leaves, depth 9"
    assert cells[1] == [model, "float32", "1", "2", "1", "1.00 µs", "1.00 µs", "gemm", "tile=8"]
    assert cells[2] == [model, "float32", "1", "2", "100", "10.0 µs", "100 ns", "gemm", "tile=16"]
    assert cells[3] == [model, "float32", "2", "2", "100", "5.00 µs", "50.0 ns", "gemm", "tile=8"]
    assert cells[4] == ["size=10", "-", "2", "-", "4", "1.00 ms", "250 µs", "gemm", "tile=8"]
    assert machines.splitlines() == [
        "machine 1: llvm, with avx2",
        "machine 2: cuda",
    ]


def test_best_of_some(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "best", str(log), "--json", "--rows", "100", "--strategy", "bitvector"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["strategy"], found["times"]) == ("bitvector", [3e-5])
    target = json.dumps({"kind": "llvm", "mcpu": "x86-64-v3"})
    assert main(["log", "best", str(log), "--target", target]) == 0
    assert capsys.readouterr().out == "no successful record matches\n"
    assert main(["log", "best", str(log), "--target", "toaster"]) == 2
    assert capsys.readouterr().err.startswith("hbtvm: error: target 'toaster' is not known")


def test_best_on_this_machine(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hbtvm.compiler.targets.target import resolve

    Log(log).append(record(7e-6, target={**resolve("cpu"), "cores": 64}))
    assert main(["log", "best", str(log), "--json", "--target", "cpu"]) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["times"] == [7e-6]


def test_stats(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open(log, "a") as file:
        file.write('{"torn":')
    assert main(["log", "stats", str(log)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "records     7 (0.0 MB)",
        "failed      1 (1 build)",
        "workloads   3 (model shapes times batch sizes)",
        "strategies  6 gemm, 1 bitvector",
        "dates       2025-01-31T12:00:00Z to 2025-01-31T12:00:00Z",
        "unreadable  1 line, which prune drops",
        "machine 1   5 records; llvm, with avx2",
        "machine 2   2 records; cuda",
    ]
    assert main(["log", "stats", str(log), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["failed"], found["skipped_lines"]) == (7, 1, 1)
    assert found["strategies"] == {"gemm": 6, "bitvector": 1}


def test_an_empty_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.jsonl").touch()
    assert main(["log", "stats", "empty.jsonl"]) == 0
    assert "dates       none" in capsys.readouterr().out
    assert main(["log", "best", "empty.jsonl", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_merge(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Log("b.jsonl").append(record(1e-5, config={"tile": 16}))
    Log("b.jsonl").append(record(9e-6))
    assert main(["log", "merge", "a.jsonl", "b.jsonl", "-o", "all.jsonl"]) == 0
    assert capsys.readouterr().out == "all.jsonl: 8 records, 1 duplicate dropped\n"
    assert len(Log("all.jsonl").read().records) == 8
    # What is not named would be lost.
    assert main(["log", "merge", "a.jsonl", "-o", "b.jsonl"]) == 2
    assert len(Log("b.jsonl").read().records) == 2
    assert main(["log", "merge", "a.jsonl", "./b.jsonl", "-o", "b.jsonl"]) == 0
    assert len(Log("b.jsonl").read().records) == 8


def test_prune(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "prune", str(log), "--keep", "1", "--others", "0", "--errors", "0"]) == 0
    assert capsys.readouterr().out == "a.jsonl: 5 records kept, 2 records dropped\n"
    assert len(Log(log).read().records) == 5


@pytest.mark.parametrize("action", ["stats", "best", "prune"])
def test_what_is_no_log(action: str, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", action, "missing.jsonl"]) == 2
    assert capsys.readouterr().err == (
        "hbtvm: error: missing.jsonl: there is no such file, expected a tuning log\n"
    )


def test_no_other_file_is_emptied(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("notes.txt").write_text("precious\n")
    assert main(["log", "prune", "notes.txt"]) == 2
    assert main(["log", "merge", "a.jsonl", "notes.txt", "-o", "notes.txt"]) == 2
    assert Path("notes.txt").read_text() == "precious\n"


def test_a_pipe_is_read_whole(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(log.read_bytes(),))
    writer.start()
    assert main(["log", "best", str(pipe), "--json"]) == 0
    writer.join()
    piped = capsys.readouterr().out
    assert main(["log", "best", str(log), "--json"]) == 0
    assert capsys.readouterr().out == piped
