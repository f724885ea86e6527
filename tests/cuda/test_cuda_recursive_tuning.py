"""Tuning of recursive models for GPUs: candidates and searches, behind the stand-in for the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.cli.main import main
from hbtvm.compiler.recursion.compile import tasks_of, work_of
from hbtvm.compiler.recursion.program import RecursiveProgram
from hbtvm.compiler.targets.target import resolve
from hbtvm.measuring import device as device_program
from hbtvm.recursive import known, reference
from hbtvm.runtime.cuda.driver import CudaError
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, MeasureJob, Timing
from hbtvm.tuning.measuring.worker import measure
from hbtvm.tuning.task import Task
from tests import emulated
from tests.emulated import FAILURE, LAUNCHES, ON_FIRST, ON_SECOND, RESIDENT, SM90, Machine
from tests.fake_tuning import InProcess

TIMING = Timing(repeats=2, most=2, min_repeat=0.001)

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


def model(name: str = "mv_rnn") -> rec.Model:
    cell = known.CELLS[name](8, 2)
    return rec.Model(cell, known.example_weights(name, 8, 20), rec.roots("p" if name == "mv_rnn" else "h"))


def task_of(folder: Path, name: str = "mv_rnn", device: int = 0) -> Task:
    work = work_of(model(name), resolve(SM90), (2,), 1)
    (task,) = tasks_of(work, (2,), folder, device)
    return task


@pytest.mark.parametrize("levels", ["launches", "persistent"])
def test_candidates_are_checked_and_timed_on_the_device(
    machine: Machine, tmp_path: Path, levels: str
) -> None:
    machine.set(RESIDENT, 3)
    task = task_of(tmp_path, device=1)
    config = {**task.initial[0], "levels": levels}
    assert task.space.contains(config)
    program, path = RecursiveProgram(task.payload), str(tmp_path / "kernels.bin")
    assert program.build(config, path) == program.build(config, path)
    other = {**config, "unroll": 1}
    assert program.build(other, str(tmp_path / "other.bin")) != program.build(config, path)
    first, second = machine.get(ON_FIRST), machine.get(ON_SECOND)
    result = measure(program, MeasureJob(Candidate(task.program, task.payload, config), path, TIMING))
    assert isinstance(result, Measured) and all(time > 0 for time in result.times), result
    assert machine.get(ON_FIRST) == first and machine.get(ON_SECOND) > second


def test_wrong_kernels_are_not_timed(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(tmp_path)
    program, path = RecursiveProgram(task.payload), str(tmp_path / "kernels.bin")
    right = emulated.machine_code
    monkeypatch.setattr(
        "hbtvm.compiler.building.cuda.machine_code",
        lambda source, *_, **__: (right(source.replace("tanhf(", "sinhf(")), ""),
    )
    program.build(task.initial[0], path)
    candidate = Candidate(task.program, task.payload, task.initial[0])
    result = measure(program, MeasureJob(candidate, path, TIMING))
    assert isinstance(result, Failure) and result.kind == "wrong_result", result


def test_a_fault_ends_the_worker(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(device_program, "_end", ended.append)
    task = task_of(tmp_path, "tree_fc")
    program, path = RecursiveProgram(task.payload), str(tmp_path / "kernels.bin")
    program.build(task.initial[0], path)
    runnable = program.load(task.initial[0], path)
    machine.set(FAILURE, 700)
    with pytest.raises(CudaError):
        runnable.check()
    assert ended == [70]
    assert "an illegal memory access" in capsys.readouterr().err


def test_all_configurations_are_described(machine: Machine, tmp_path: Path) -> None:
    task = task_of(tmp_path)
    for levels in ("launches", "persistent"):
        found = task.describe({**task.initial[0], "levels": levels})
        assert found and all(statement.loops for statement in found)


def test_from_start_to_end(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.set(RESIDENT, 3)
    monkeypatch.setattr("hbtvm.tuning.session.Pool", lambda *_: InProcess(program=RecursiveProgram))
    monkeypatch.chdir(tmp_path)
    own = model("tree_gru")
    own.save("gru.rec")
    before = machine.get(ON_FIRST)
    command = ["tune", "gru.rec", "--target", "cuda", "--device", "cuda:1", "--trials", "4"]
    assert main([*command, "--batch-size", "2", "--seed", "1"]) == 0
    said = capsys.readouterr().out
    assert "structures in a call" in said and "levels" in said
    launches = machine.get(LAUNCHES)
    options: dict[str, Any] = {"target": "cuda", "device": 1, "trials": 4, "batch_sizes": (2,), "seed": 1}
    found = hbtvm.search("gru.rec", log="hbtvm-tuning.jsonl", **options)
    assert found.result.resumed == 4 and not found.result.failures
    assert found.model.device == "cuda:1" and machine.get(LAUNCHES) > launches  # of the final comparison
    structures = rec.trees([[1, [2, 3]], [[4, 5], [6, [7, 8]]], 9])
    want = reference.scores(own, structures)
    np.testing.assert_allclose(found.model.predict(structures), want, atol=1e-5)
    assert machine.get(ON_FIRST) == before and machine.get(ON_SECOND) > 0
    recursion = found.model.package.recursion
    assert recursion is not None and recursion.kernels[0].seconds
    assert found.result.groups["2 structures"].best is not None
    assert recursion.kernels[0].config == found.result.groups["2 structures"].best.config
