"""Tuning for GPUs: candidates as workers see them, behind the stand-in for the driver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import hbtvm
import hbtvm.recursive as rec
from hbtvm.cli.main import main
from hbtvm.compiler.candidates.program import TreeProgram, write_study
from hbtvm.compiler.candidates.tasks import forests_of, make_tasks, usable
from hbtvm.compiler.targets.cuda import measured_here
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import InputError, TargetError
from hbtvm.logs.store import Log
from hbtvm.measuring import device as device_program
from hbtvm.recursive import known
from hbtvm.runtime.cuda.driver import CudaError
from hbtvm.runtime.cuda.timing import Copies
from hbtvm.strategies import make_forest, make_network
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, MeasureJob, Timing
from hbtvm.tuning.measuring.worker import measure
from tests import emulated, networks
from tests.cuda.test_cuda_target import NO_GPU
from tests.emulated import FAILURE, ON_FIRST, ON_SECOND, RESIDENT, SECOND, SM90, Machine
from tests.ensembles import random_ensemble
from tests.fake_tuning import InProcess
from tests.models import data
from tests.runtime_models import trained

TIMING = Timing(repeats=2, most=2, min_repeat=0.001)

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


def tasks(folder: Path, rows: int = 500, device: int = 0) -> list[Any]:
    ensemble = trained("lgb_three_ova")[1].anchor
    forests = forests_of(ensemble, "float32", complete=False)
    write_study(folder, ensemble, forests[:1], rows)
    able, _ = usable(forests[0], None, resolve(SM90))
    return make_tasks(forests[0], able, resolve(SM90), (rows,), 1, folder, device=device)


def test_every_strategys_default_is_checked_and_timed_by_the_device(machine: Machine, tmp_path: Path) -> None:
    for task in tasks(tmp_path):
        program = TreeProgram(task.payload)
        path = str(tmp_path / f"{task.strategy}.so")
        prints = {program.build(task.initial[0], path) for _ in range(2)}
        assert len(prints) == 1
        candidate = Candidate(task.program, task.payload, task.initial[0])
        result = measure(program, MeasureJob(candidate, path, TIMING))
        assert isinstance(result, Measured), result
        # The stand-in's clock tells a millisecond for each start, and none for copies.
        assert result.times == pytest.approx([1e-3] * len(result.times))


@pytest.mark.parametrize(("name", "rows"), [("machine", 5000), ("metrics", 50)])
def test_networks_are_checked_and_timed_too(machine: Machine, tmp_path: Path, name: str, rows: int) -> None:
    network = networks.network(name)  # some scores of metrics are NaN
    operand = make_network(network, "float64")
    write_study(tmp_path, network, [operand], 50)
    able, _ = usable(operand, None, resolve(SM90))
    (task,) = make_tasks(operand, able, resolve(SM90), (rows,), 1, tmp_path)
    program, path = TreeProgram(task.payload), str(tmp_path / "kernel.so")
    assert program.build(task.initial[0], path) == program.build(task.initial[0], path)
    assert program.load(task.initial[0], path).check() is None


@pytest.mark.parametrize(("tree_blocks", "starts"), [(1, 1), (4, 2)])
def test_what_adds_sums_up_is_timed_too(
    machine: Machine, tmp_path: Path, tree_blocks: int, starts: int
) -> None:
    ensemble = random_ensemble(np.random.default_rng(1), trees=200, max_leaves=9)
    forest = make_forest(ensemble, "float32", "float32")
    write_study(tmp_path, ensemble, [forest], 1)
    able, _ = usable(forest, ["bitvector"], resolve(SM90))
    (task,) = make_tasks(forest, able, resolve(SM90), (1,), 1, tmp_path)
    config = {**task.initial[0], "tree_tile": 32, "tree_threads": 32, "tree_blocks": tree_blocks}
    program, path = TreeProgram(task.payload), str(tmp_path / "kernel.so")
    program.build(config, path)
    runnable = program.load(config, path)
    assert runnable.check() is None
    assert runnable.run(5) == pytest.approx(5e-3 * starts)


def test_a_wrong_kernel_is_not_timed(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tasks(tmp_path)[0]
    program = TreeProgram(task.payload)
    path = str(tmp_path / "kernel.so")
    turned = emulated.machine_code
    monkeypatch.setattr(
        "hbtvm.compiler.building.cuda.machine_code",
        lambda source, *_, **__: (turned(source.replace("<=", ">")), ""),
    )
    program.build(task.initial[0], path)
    result = measure(
        program, MeasureJob(Candidate(task.program, task.payload, task.initial[0]), path, TIMING)
    )
    assert isinstance(result, Failure) and result.kind == "wrong_result", result


def test_a_fault_ends_the_worker(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(device_program, "_end", ended.append)
    task = tasks(tmp_path)[0]
    program = TreeProgram(task.payload)
    path = str(tmp_path / "kernel.so")
    program.build(task.initial[0], path)
    runnable = program.load(task.initial[0], path)
    machine.set(FAILURE, 700)
    with pytest.raises(CudaError):
        runnable.check()
    assert ended == [70]
    assert "an illegal memory access" in capsys.readouterr().err


def test_the_gpu_that_is_here_is_the_target(machine: Machine) -> None:
    here = resolve("cuda")
    assert here["arch"] == "sm_90" and here["cores"] == 132
    assert measured_here(resolve(SM90)) == here
    with pytest.raises(TargetError, match="this machine's GPU is sm_90, not sm_80"):
        hbtvm.search(trained("lgb_two")[1], target={"kind": "cuda", "arch": "sm_80"})
    machine.set(emulated.DEVICES, 0)


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["model.pkl", "model.rec"])
def test_no_gpu_is_one_sentence_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    model = tmp_path / name
    model.write_bytes(b"read later, if at all")
    if name == "model.rec":
        rec.Model(known.tree_fc(4, 2), known.example_weights("tree_fc", 4, 5)).save(model)
    named = '{"kind": "cuda", "arch": "sm_90"}'
    for target in ("cuda", named):
        assert main(["tune", str(model), "--target", target]) != 0
        said = capsys.readouterr().err.strip().splitlines()
        assert "no NVIDIA GPU that can be used" in said[-1]
        assert ("name its architecture" in said[-1]) == (target == "cuda")
        assert (f"use hbtvm compile --target '{named}'" in said[-1]) == (target == named)


def test_a_candidate_runs_on_the_device_that_was_named(machine: Machine, tmp_path: Path) -> None:
    task = tasks(tmp_path, device=1)[0]
    program = TreeProgram(task.payload)
    path = str(tmp_path / "kernel.so")
    program.build(task.initial[0], path)
    before = machine.get(ON_FIRST), machine.get(ON_SECOND)
    runnable = program.load(task.initial[0], path)
    assert runnable.check() is None and runnable.run(3) == pytest.approx(3e-3)
    assert machine.get(ON_FIRST) == before[0] and machine.get(ON_SECOND) > before[1]


def test_the_second_of_two_gpus_is_described_by_itself(machine: Machine) -> None:
    machine.set(SECOND, 80)
    assert [resolve("cuda", index)["arch"] for index in (0, 1)] == ["sm_90", "sm_80"]
    model = trained("lgb_two")[1]
    made = hbtvm.compile(model, target="cuda", device="cuda:1", batch_sizes=(9,))
    assert made.device == "cuda:1" and made.package.target["arch"] == "sm_80"
    with pytest.raises(TargetError, match=r"this machine's cuda:1 is sm_80, not sm_90"):
        hbtvm.search(model, target=SM90, device="cuda:1")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"target": "cuda", "device": "cuda:7"}, TargetError, "there is no cuda:7; this machine has 2 GPU"),
        ({"target": "cuda", "device": "gpu"}, InputError, "device is 'gpu'; expected \"cuda\""),
        ({"target": "cuda", "device": "cpu"}, InputError, "the target is a GPU, so it can't be on .*'cpu'"),
        ({"device": "cuda:1"}, InputError, "the target is a CPU, .* as --target cuda --device cuda:1"),
        (
            {"target": SM90, "device": 1, "rpc_tracker": "here:1", "rpc_key": "a"},
            InputError,
            "a fleet measures on its own devices",
        ),
    ],
)
def test_devices_that_make_no_sense_are_refused_at_the_start(
    machine: Machine, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        hbtvm.search("no-such-model.pkl", **options)


def test_tuning_for_a_gpu_from_start_to_end(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hbtvm.tuning.session.Pool", lambda *_: InProcess(program=TreeProgram))
    monkeypatch.chdir(tmp_path)
    joblib.dump(trained("lgb_three_ova")[0], "model.joblib")
    before = machine.get(ON_FIRST)
    command = ["tune", "model.joblib", "--target", "cuda", "--device", "cuda:1", "--trials", "3"]
    command += ["--batch-size", "2,70", "--strategy", "bitvector"]
    assert main(command) == 0
    head, *rows = capsys.readouterr().out.splitlines()[:3]
    heads = ["rows in a call", "strategy", "default", "kernel", "gain", "per row", "copies there", "and back"]
    assert re.split("  +", head)[:8] == heads
    for row in rows:  # the stand-in's clock tells a millisecond for each piece of work
        assert re.split("  +", row)[6:8] == ["1.00 ms", "1.00 ms"], row
    launches = machine.get(ON_SECOND)
    found = hbtvm.search(
        "model.joblib", target="cuda", device=1, trials=3, batch_sizes=(2, 70), strategies=["bitvector"],
        log="hbtvm-tuning.jsonl",
    )  # fmt: skip
    assert found.result.resumed == 3 and set(found.copies) == {2, 70}
    assert found.copies[2] == Copies(1e-3, 1e-3)
    X = data()[0].astype(np.float32)
    want = trained("lgb_three_ova")[0].predict(X, raw_score=True)
    np.testing.assert_allclose(found.model.predict(X, "raw"), want, rtol=1e-5, atol=1e-6)
    assert found.model.device == "cuda:1"
    assert machine.get(ON_FIRST) == before and machine.get(ON_SECOND) > launches


@pytest.mark.parametrize("cores", [132, 78])
def test_what_a_device_measured_is_found_for_its_architecture(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    monkeypatch.setattr("hbtvm.tuning.session.Pool", lambda *_: InProcess(program=TreeProgram))
    machine.set(RESIDENT, cores)
    log, model = tmp_path / "log.jsonl", trained("lgb_two")[1]
    options: dict[str, Any] = {"batch_sizes": 70, "strategies": ["bitvector"], "log": log}
    tuned = hbtvm.search(model, target=SM90, trials=3, **options).model.package
    assert {tuned.target["cores"], *(one.target["cores"] for one in Log(log).read().records)} == {cores}
    made = hbtvm.compile(model, target=SM90, **options).package
    assert made.tuning["origins"] == ["log" if cores == 132 else "similar"]
    assert made.kernels[0].config == tuned.kernels[0].config
    assert (made.kernels[0].seconds is None) == (cores != 132)
    named = hbtvm.compile(model, target={**SM90, "cores": cores}, **options).package
    assert named.tuning["origins"] == ["log"]


def test_rows_of_any_number_are_timed(machine: Machine, tmp_path: Path) -> None:
    task = tasks(tmp_path, 77)[0]
    program = TreeProgram(task.payload)
    path = str(tmp_path / "kernel.so")
    program.build(task.initial[0], path)
    runnable = program.load(task.initial[0], path)
    assert runnable.check() is None
    assert [runnable.run(n) for n in (1, 5)] == pytest.approx([1e-3, 5e-3])
    assert np.isfinite(runnable.run(1))
