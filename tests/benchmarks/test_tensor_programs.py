"""The workloads of `benchmarks.tensor_programs` compute what PyTorch computes; its tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.tensor_programs.report import table, transfer_table
from benchmarks.tensor_programs.torch_peer import calls
from benchmarks.tensor_programs.transfer import in_turns, key, reached, readings, study, task_from
from benchmarks.tensor_programs.workloads import WORKLOADS, Workload, conv2d, depthwise, lstm_cell, matmul
from hbtvm import tuning
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.programs.computation import outputs_of, samples

torch = pytest.importorskip("torch")

SMALL = (
    Workload("1x1", conv2d, (8, 16, 32, 1, 2), ("W",), 1.0),
    Workload("1x1, dense", conv2d, (4, 16, 32, 1, 1), ("W",), 1.0),
    Workload("3x3", conv2d, (7, 16, 32, 3, 1), ("W",), 1.0),
    Workload("matmul", matmul, (32,), (), 1.0),
    Workload("depthwise", depthwise, (16, 16, 3), ("W",), 1.0),
    Workload("LSTM", lstm_cell, (32,), ("W",), 1.0),
)


@pytest.mark.parametrize("workload", SMALL, ids=lambda workload: workload.name)
def test_workloads_are_those_of_pytorch(workload: Workload) -> None:
    task = tuning.tensor_task(workload.program, workload.args, constants=workload.constants)
    arrays = samples(task.definition.module)
    written = outputs_of(task.definition.module)
    inputs = [array for place, array in enumerate(arrays) if place not in written]
    with torch.inference_mode():
        expected = {name: call().numpy() for name, call in calls(workload, arrays, 1).items()}
    assert expected
    for name, strategy in task.strategies.items():
        result = tuning.built(task, name, strategy.initial[0]).run(*inputs)
        first = result[0] if isinstance(result, tuple) else result
        for way, right in expected.items():
            np.testing.assert_allclose(first, right.reshape(first.shape), atol=2e-4, err_msg=f"{name} {way}")


def test_trials_until_a_time_is_reached() -> None:
    seconds = [3.0, None, 2.0, 1.0]
    assert [reached(seconds, goal, 1.02) for goal in (3.0, 2.0, 1.0, 0.5)] == [1, 3, 4, None]
    assert reached(seconds, 2.8, 1.1) == 1


def test_promising_candidates_are_timed_again() -> None:
    workload = SMALL[2]
    task = tuning.tensor_task(workload.program, workload.args, constants=workload.constants)
    strategy = next(iter(task.strategies.values()))
    configs = strategy.space.sample(np.random.default_rng(0), 3)

    def record(place: int, seconds: float, **extra: object) -> Record:
        config = configs[place]
        return Record(
            workload={}, strategy=strategy.name, target={}, config=config, times=(seconds,), extra=extra
        )

    history = [record(0, 3.0), record(1, 1.0, final={"id": "x"}), record(1, 1.0), record(2, 1.2)]
    assert readings(history) == [history[0], history[2], history[3]]
    times = in_turns(workload, 1, [readings(history)])
    assert set(times) == {key(history[2]), key(history[3])} and min(times.values()) > 0


def test_transfer_begins_with_random_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.tensor_programs.transfer.SOURCES", ("1x1",))
    monkeypatch.setitem(WORKLOADS, "1x1", SMALL[0])
    goal = SMALL[1]
    for first, begins in (("random", False), ("default", True)):
        task = task_from(goal, 1, first)
        assert all(bool(strategy.initial) == begins for strategy in task.strategies.values())
    row = study(goal, tmp_path, 1, 9, 0)
    known = Log(tmp_path / "sources-random-1.jsonl").read().records
    assert len(known) == 9 and {record.workload["program"] for record in known} == {"1x1"}
    assert row["best"]["without"] > 0 and row["best"]["with"] > 0
    assert 1 <= row["without 2%"] <= 9
    again = study(goal, tmp_path, 1, 9, 0)
    assert set(again) == set(row)
    lines = transfer_table([row, {**row, "with 2%": 3, "without 2%": 6, "with 5%": None, "without 5%": 9}])
    assert "| 1x1, dense | random | 1 | 0 |" in lines and lines.count("| 6 → 3 | 9 → not reached |") == 1
    assert "First candidates random, 2%: 2.00× fewer trials with transfer." in lines
    assert "First candidates random, 5%: 0.50× fewer trials with transfer." in lines


def test_the_table_takes_the_last_comparison_and_pytorchs_fastest_way() -> None:
    rows = [
        {
            "workload": "C2",
            "threads": 1,
            "seconds": {"hbtvm": 9.0, "PyTorch, a": 1.0},
            "trials": {"hbtvm": 8},
        },
        {
            "workload": "C2",
            "threads": 1,
            "seconds": {"hbtvm": 0.002, "PyTorch, a": 0.006, "PyTorch, b": 0.004, "MetaSchedule": 0.003},
            "trials": {"hbtvm": 64, "MetaSchedule": 32},
        },
    ]
    lines = table(rows).splitlines()
    assert lines[2] == "| C2 | 1 | 2.000 | 116 | 64 | 1.50× | 32 | 2.00× | b |"
    assert lines[4:] == [
        "Over MetaSchedule, 1 thread: geometric mean 1.50× of 1.",
        "Over PyTorch, 1 thread: geometric mean 2.00× of 1.",
    ]
