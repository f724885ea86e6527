"""Candidates for a GPU: built without one, measured behind the emulated driver."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm import trials as api
from hbtvm.compiler import assemble
from hbtvm.compiler.building import cuda as cuda_build
from hbtvm.compiler.candidates.program import TreeProgram
from hbtvm.errors import DeviceError, InputError, TargetError
from hbtvm.logs.store import Log
from hbtvm.measuring import archive, times
from hbtvm.measuring import device as device_room
from hbtvm.measuring.program import ExportedProgram
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.health import Health
from hbtvm.runtime.cuda.timing import Resident
from hbtvm.runtime.model import Model
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.measuring.messages import BuildJob, Built, Candidate, Failure, Measured, MeasureJob, Timing
from hbtvm.tuning.measuring.worker import build, measure
from tests import emulated
from tests.emulated import DEVICES, FAILURE, ON_SECOND, Machine
from tests.models import data
from tests.runtime_models import trained

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))

H100 = {"kind": "cuda", "arch": "sm_90", "cores": 132}
SIZES = (1, 4200)


class InThisProcess:
    """As `hbtvm.tuning.measuring.pool.Pool`: the emulated driver is in this process only."""

    builders = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        self._built = 0

    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure]:
        return [self._build(one) for one in candidates]

    def _build(self, candidate: Candidate) -> BuiltLibrary | Failure:
        self._built += 1
        path = Path(candidate.payload["folder"], f"{self._built}.bin")
        reply = build(TreeProgram(candidate.payload), BuildJob(candidate, str(path)))
        return BuiltLibrary(str(path), reply.fingerprint, 0.1) if isinstance(reply, Built) else reply

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        program = ExportedProgram(candidate.payload)
        reply = measure(program, MeasureJob(candidate, library.path, timing))
        assert isinstance(reply, Measured | Failure)
        return reply

    def discard(self, library: BuiltLibrary) -> None:
        Path(library.path).unlink()

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def exported(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an archive for an H100, built while the machine has no GPU."""
    monkeypatch.setattr("hbtvm.compiler.candidates.exporting.Pool", InThisProcess)
    monkeypatch.setattr("hbtvm.measuring.run.Pool", InThisProcess)
    # The emulated clock tells the same each time.
    monkeypatch.setattr("hbtvm.measuring.run._READING", Timing(repeats=1, most=1, min_repeat=0.001))
    machine.set(DEVICES, 0)
    path = tmp_path / "trials.tar"
    graph = trained("lgb_two")[1]
    done = api.export(graph, path, target=H100, trials=8, batch_sizes=SIZES, transfer=False)
    assert done.built >= 5 and done.built + done.twins + sum(done.failures.values()) == 8
    machine.set(DEVICES, 2)
    return path


def test_built_without_a_gpu_measured_on_one(
    machine: Machine, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The emulated compiler is known in this process alone.
    monkeypatch.setattr(assemble, "results", lambda calls: [call() for _, call in calls])
    out, log = tmp_path / "times.jsonl", tmp_path / "log.jsonl"
    second = machine.get(ON_SECOND)
    outcome = api.measure(exported, out, device="cuda:1")
    assert (
        outcome.failed == 0 and outcome.done == outcome.total and set(outcome.best) == {"1 row", "4,200 rows"}
    )
    assert machine.get(ON_SECOND) > second
    assert api.add_times(exported, out, log=log).records >= outcome.total
    records = Log(log).read().records
    assert {record.target["cores"] for record in records} == {132}
    compiled = hbtvm.compile(trained("lgb_two")[1], target=H100, batch_sizes=SIZES, log=log)
    assert compiled.package.tuning["origins"] == ["log", "log"]
    X = data()[0].astype(np.float32)
    plain = hbtvm.compile(trained("lgb_two")[1], batch_sizes=1, threads=1)
    np.testing.assert_allclose(compiled.predict(X, "raw"), plain.predict(X, "raw"), rtol=1e-5, atol=1e-5)


NVML = """
#include <string.h>
static int asked;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **device) {
  *device = &asked;
  return strcmp(place, "00000000:65:00.0") != 0;
}
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *value) {
  *value = 1755;
  return which != 1 || device != &asked;
}
int nvmlDeviceGetTemperature(void *device, int which, unsigned *value) { *value = 61; return which != 0; }
"""


def test_a_gpu_s_clock_and_temperature_are_noted(
    machine: Machine, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Health(driver.gpu(0)).read() == {}  # there is no such library
    source, made = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
    monkeypatch.setattr("hbtvm.runtime.cuda.health.LIBRARY", str(made))
    out = tmp_path / "times.jsonl"
    api.measure(exported, out)
    found = times.read(out, archive.read(exported))
    assert not found.skipped
    assert all(
        line.health == {"clock": 1755, "temperature": 61} for line in found.lines if line.final is None
    )


@pytest.mark.parametrize("count", [1, 100, 150, 333, 1000])
def test_rows_are_repeated_on_the_device(machine: Machine, count: int) -> None:
    model = Model(emulated.package("lgb_two"))
    model.warm_up()
    X = data()[0][:150].astype(np.float32)
    kernel = model._kernels.on_device.kernels[X.dtype].executor(count).work.kernel
    resident = Resident(kernel, X, count)
    # The emulated device's memory is this process's. Runs read copies of the rows in turn.
    assert resident._copies == 64
    for copy in (0, 1, 63):
        at = resident._rows.handle + copy * resident._stride
        found = (ctypes.c_float * (count * X.shape[1])).from_address(at)
        np.testing.assert_array_equal(np.array(found).reshape(count, -1), np.resize(X, (count, X.shape[1])))
    assert resident.seconds(2) > 0


def test_a_batch_larger_than_the_sample_is_timed(machine: Machine, exported: Path) -> None:
    trials = archive.read(exported)
    folder = exported.parent / "unpacked"
    folder.mkdir()
    trials.unpack(folder)
    one = next(c for c in trials.candidates if trials.tasks[c.task].workload["rows"] == 4200)
    runnable = ExportedProgram({"folder": str(folder), "candidate": one.number}).load(one.config, "")
    assert runnable.check() is None and runnable.run(3) > 0


def test_another_gpu_or_none_is_refused(machine: Machine, exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "times.jsonl"
    machine.set(emulated.CAPABILITY, 80)
    machine.set(DEVICES, 1)
    driver._known.clear()
    with pytest.raises(TargetError, match=r"code is for sm_90, but cuda:0 is a .* \(sm_80\); export it with"):
        api.measure(exported, out)
    with pytest.raises(DeviceError, match="there is no cuda:3"):
        api.measure(exported, out, device="cuda:3")
    with pytest.raises(InputError):
        api.measure(exported, out, device="the best")
    assert not out.exists()


def test_a_device_that_faults_ends_the_run_and_blames_nobody(
    machine: Machine, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_room, "_end", lambda status: None)  # the worker's end; here it is this process
    out = tmp_path / "times.jsonl"

    def fault(progress: api.Progress) -> None:
        if progress.done == 3:
            machine.set(FAILURE, 700)

    with pytest.raises(DeviceError, match=r"measures no more: .*illegal memory access"):
        api.measure(exported, out, progress=fault)
    machine.set(FAILURE, 0)
    outcome = api.measure(exported, out)
    assert outcome.resumed == 3 and outcome.failed == 0


def test_what_spills_is_left_out(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbtvm.compiler.candidates.exporting.Pool", InThisProcess)
    told = "ptxas info : Function properties for main_kernel\n 16 bytes stack frame, 8 bytes spill stores, 8"
    calls: list[Any] = []

    def compiled(source: str, target: Any, *options: str, **_: Any) -> tuple[bytes, str]:
        calls.append(options)
        return emulated.machine_code(source), told if len(calls) % 2 else ""

    monkeypatch.setattr(cuda_build, "machine_code", compiled)
    done = api.export(
        trained("lgb_two")[1], tmp_path / "t.tar", target=H100, trials=6, batch_sizes=1, transfer=False
    )
    assert done.failures == {"invalid": 3} and "spills 8 bytes of registers" in done.examples["invalid"]
    assert calls[0] == ("-Xptxas=-v",)
