"""The benchmark of Shapley values: its reckoning, and that its peers and hbtvm explain alike."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common import higgs_like, tables
from benchmarks.explain import measure, report
from benchmarks.explain.__main__ import chosen
from benchmarks.explain.cases import CASES, Cell, cells
from benchmarks.explain.peers import Job
from benchmarks.explain.prepare import packages, prepare, rows_of
from benchmarks.explain.worker import Worker
from benchmarks.peers.processes import PeerError

ROWS = higgs_like(400, 5, 0)[0]


def boosted():
    lightgbm = pytest.importorskip("lightgbm")
    options = {"objective": "binary", "num_leaves": 7, "verbose": -1, "num_threads": 1}
    return lightgbm.train(options, lightgbm.Dataset(ROWS, higgs_like(400, 5, 0)[1]), 4)


def answers(peer: str, method: str, model: Path, package: Path, rows: Path) -> np.ndarray:
    worker = Worker()
    way = worker.load(peer, dataclasses.asdict(Job(str(model), str(package), method)), str(rows))[-1]
    assert worker.calibrate(way, 50, 3.0)["rows"] == 50
    assert worker.time(way, 2) > 0
    to = rows.with_name("answers.npy")
    worker.outputs(way, str(to))
    return np.load(to)


@pytest.mark.parametrize(("name", "peer"), [("lightgbm", "lightgbm"), ("leaves", "treelite")])
def test_peers_answer_alike(name: str, peer: str, tmp_path: Path) -> None:
    pytest.importorskip(peer)
    case = dataclasses.replace(CASES[name], fit=boosted, rows=lambda n: ROWS[:n])
    prepare(case, tmp_path)
    explained, plain = packages(case, tmp_path)
    assert plain.stat().st_size < explained.stat().st_size
    files = tmp_path / case.file, explained, rows_of(case, tmp_path)
    own, other = (answers(one, case.method, *files) for one in ("hbtvm", peer))
    assert own.shape == other.shape == (50, 4 if name == "leaves" else 6)
    if name == "leaves":
        assert measure.leaves_apart(own, other) == 0
        assert measure.leaves_apart(own[:, ::-1], other) > 0
    else:
        assert measure.compare(own, other) < 1e-6
        assert measure.compare(own[:, ::-1], other) > 0.1


def test_slow_peers_get_fewer_rows() -> None:
    worker = Worker()
    worker._rows = np.zeros((2_000, 3))
    worker._ways = {"slow": report_way(2e-4)}
    assert 20 < worker.calibrate("slow", 1_000, 0.02)["rows"] < 110


def report_way(seconds: float):
    import time

    from benchmarks.explain.peers import Way

    return Way(lambda X: time.sleep(seconds * len(X)))


class Idle:
    """A process whose calls take a second, of no CPU time."""

    def cpu_seconds(self) -> float:
        return 0.0

    def ask(self, do: str, limit: float, **request: object) -> float:
        return 1.0


@pytest.mark.parametrize("busy", [False, True])
def test_turns_of_threads_count_on_idle_machines(busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    worked = itertools.count(0, 10) if busy else itertools.repeat(5)
    monkeypatch.setattr(measure, "_busy", lambda: float(next(worked)))
    monkeypatch.setattr(measure, "_MOST_TURNS", 10)
    monkeypatch.setattr(measure.time, "sleep", lambda seconds: None)
    calls = {(name, "kernel"): 2 for name in ("one", "two")}
    processes = {"one": Idle(), "two": Idle()}
    if busy:
        with pytest.raises(PeerError, match="other programs kept the CPUs busy"):
            measure._turns(processes, calls, 1.0, cpu=False, alone=True)
    else:
        found = measure._turns(processes, calls, 1.0, cpu=False, alone=True)
        assert found == {key: [1.0] * measure.TURNS for key in calls}


def test_differences_are_of_common_rows() -> None:
    expected = np.array([[1.0, -4.0], [2.0, 0.0]])
    assert measure.compare(np.vstack([expected + 0.1, [[9, 9]]]), expected) == pytest.approx(0.1 / 4)
    assert measure.compare(expected * np.nan, expected) == np.inf
    assert measure.compare(expected[:, :1], expected) == np.inf


def test_cells_are_chosen_by_names() -> None:
    assert chosen([]) == cells()
    assert [cell.key for cell in chosen(["deep/explain/100", "xgboost/threads"])] == [
        "deep/explain/100",
        "xgboost/threads/100",
        "xgboost/threads/10000",
    ]
    assert len(chosen(["leaves"])) == 3
    assert set(measure.jobs_of(Cell("deep", "threads", 10_000), Path())) == {
        "hbtvm, 1 threads",
        "hbtvm, 2 threads",
    }


def test_reports_name_rows_and_ratios() -> None:
    def figure(seconds: float, rows: int, difference: float = 1e-7) -> dict[str, float]:
        return {"seconds": seconds, "rows": rows, "difference": difference}

    results = {
        "versions": {"hbtvm": {"hbtvm": "1"}, "shap": {"shap": "2"}, "fasttreeshap": None},
        "clock": "Time",
        "most": 3.0,
        "machine": {"cpu": "a CPU", "cores": 2, "vectors": ["avx2"]},
        "bytes": {"deep": [2_000_000, 1_000_000]},
        "cells": {
            "deep/explain/10000": {
                "hbtvm": {"kernel": figure(1.0, 10_000), "explain": figure(2.0, 10_000)},
                "shap": {"shap_values": figure(3.0, 1_500)},
                "fasttreeshap": {"failed": "memory"},
            },
            "deep/threads/10000": {
                f"hbtvm, {n} threads": {"kernel": figure(1.0 / n, 10_000)} for n in (1, 2)
            },
            **{
                f"deep/predict/{n}": {
                    "with reasons": {"predict": figure(2e-6 * n, n)},
                    "without": {"predict": figure(1e-6 * n, n)},
                }
                for n in (1, 10_000)
            },
        },
    }
    found = tables(report.markdown(results))
    shown = found["Shapley values"][0]
    assert shown["peer's time"] == "2 ms (1,500 rows)"
    assert (shown["kernel"], shown["`explain`"], shown["kernel's ratio"]) == ("100 µs", "200 µs", "20.0×")
    assert found["Shapley values"][1]["peer's time"] == "fails"
    assert found["Two threads, wall time"][0]["ratio"] == "2.00×"
    cost = found["Packages and predictions with and without `explain=True`"][0]
    assert (cost["package"], cost["with reasons"]) == ("1.00 MB", "2.00 MB")
    assert cost["`predict`, 1 row, without"] == "1 µs"
    assert "Not installed: fasttreeshap" in report.markdown(results)
