"""Mutants of packages and caches, a few of each, and the runner that finds what they break."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

from benchmarks.mutants import caches, logs, objects, packages
from benchmarks.mutants.runner import run

DATA = Path(__file__).parents[1] / "data"


def test_the_runner_finds_each_fault(tmp_path: Path) -> None:
    report = run("tests.benchmarks.mutant_kinds", tmp_path, 14, seed=4, batch=14)
    assert report.ends == {"refused": 1, "faults": 5, "seed 4": 8}
    told = dict(fault.split(": ", 1) for fault in report.faults)
    assert list(told) == ["3", "5", "7", "9", "12"]
    assert told["3"].startswith("KeyError at mutant_kinds.py") and told["5"] == "signal 11"
    assert "Traceback" in told["7"] and "x1b[31m" in told["9"]
    assert told["12"] == "exit status 3 (together with the 1 before it)"


def test_packages(tmp_path: Path) -> None:
    """Packages that are stored: no kernel has to be built."""
    for name, rows in (
        ("clusters", [[0.5] * 5] * 3),
        ("scaler", [[0.5] * 5] * 3),
        ("terms", ["the cat"] * 3),
    ):
        shutil.copy(DATA / f"package_v1_{name}.tar", tmp_path / f"{name}.tar")
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    report = run(packages.__name__, tmp_path, 150, seed=1, batch=150)
    assert not report.faults and report.ends["refused"] > 60 and report.ends["used"] > 20, report


def test_shared_objects(tmp_path: Path) -> None:
    objects.prepare(tmp_path)
    report = run(objects.__name__, tmp_path, 300, seed=1, batch=300)
    assert not report.faults and report.ends["refused"] > 150 and report.ends["used"] > 50, report


def test_caches(tmp_path: Path) -> None:
    caches.prepare(tmp_path)
    report = run(caches.__name__, tmp_path, 80, seed=1, batch=80)
    assert not report.faults and report.ends["compiled anew"] > 20 and report.ends["read"] > 10, report


def test_logs(tmp_path: Path) -> None:
    shutil.copy(DATA / "log_v1.jsonl", tmp_path / "log.jsonl")
    (tmp_path / "times.jsonl").write_text("{}\n{}")
    report = run(logs.__name__, tmp_path, 80, seed=1, batch=80)
    assert not report.faults and report.ends["best"] > 10 and report.ends["merge"] > 5, report


def test_a_mutant_is_the_same_again(tmp_path: Path) -> None:
    data = (DATA / "package_v1_clusters.tar").read_bytes()
    made = [packages.mutant(data, random.Random(f"0 {number}"), [data]) for number in (3, 3, 4)]
    assert made[0] == made[1] != made[2]
