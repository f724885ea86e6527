"""Packages for OpenCL: compiled and tuned, written, loaded, and asked by several callers."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.cli.main import main
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import DeviceError, InputError, PackageError, TargetError
from hbtvm.logs.store import Log
from hbtvm.measuring import device as device_program
from hbtvm.runtime.model import Model
from hbtvm.runtime.opencl import driver, execution
from hbtvm.runtime.package.file import from_bytes, read, to_bytes
from hbtvm.trials import export
from tests.runtime_models import random_rows, trained

pytestmark = pytest.mark.usefixtures("shared_workers")

ANY = {"kind": "opencl"}
needs_device = pytest.mark.usefixtures("opencl")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("opencl") / "model.tar"
    graph = trained("lgb_real_goss")[1]
    hbtvm.compile(graph, target=ANY, batch_sizes=[1, 1000], strategies=["bitvector"]).save(path)
    return path


def test_packages_hold_source_and_can_be_inspected_anywhere(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = read(path)
    assert {kernel.dtype for kernel in package.kernels} == {"float32", "float64"}
    for kernel in package.kernels:
        assert kernel.launch is not None
        x, y, z = kernel.launch.block
        size = f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void main_kernel("
        assert size.encode() in kernel.library
    assert to_bytes(from_bytes(to_bytes(package))) == to_bytes(package) == path.read_bytes()
    assert main(["inspect", str(path)]) == 0
    assert "for OpenCL devices with blocks of 256 threads" in capsys.readouterr().out


@needs_device
def test_predictions_are_the_librarys(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    booster, model = trained("lgb_real_goss")[0], hbtvm.load(path)
    assert model.device == "opencl:0" == hbtvm.load(path, device="opencl").device
    X = random_rows(3000).astype(np.float64)
    X[::7, 1] = np.nan
    want = booster.predict(X)
    for rows in (X, X.astype(np.float32)):
        for count in (1, 5, 3000):
            np.testing.assert_allclose(model.predict(rows[:count]), booster.predict(rows[:count]), rtol=1e-5)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(model.predict, [X] * 8):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    monkeypatch.setattr(execution, "CHUNK_BYTES", 1 << 14)  # several chunks, through two lanes
    np.testing.assert_allclose(hbtvm.load(path).predict(X), want, rtol=1e-5)


@needs_device
def test_the_command_line(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    booster, _ = trained("lgb_real_goss")
    X = random_rows(20)
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",", fmt="%.9g")
    assert main(["predict", str(path), str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy").ravel(), booster.predict(X), rtol=1e-5)
    assert main(["predict", str(path), str(tmp_path / "rows.csv"), "--device", "cpu"]) == 2
    assert "compiled for OpenCL, so it can't run on the CPU" in capsys.readouterr().err


@needs_device
def test_a_search_logs_resumes_and_packages(tmp_path: Path) -> None:
    booster, graph = trained("lgb_real_goss")
    log = tmp_path / "log.jsonl"
    options: dict[str, Any] = {"target": "opencl", "strategies": ["bitvector"], "batch_sizes": [50]}
    hbtvm.tune(graph, trials=2, log=log, **options)
    records = [record for record in Log(log).read().records if record.times]
    assert records and {record.target["kind"] for record in records} == {"opencl"}
    assert {record.target["arch"] for record in records} == {driver.device().arch}
    known = {str(record.config) for record in records}
    model = hbtvm.tune(graph, trials=3, log=log, **options)
    assert known < {str(record.config) for record in Log(log).read().records if record.times}
    X = random_rows(60)
    np.testing.assert_allclose(
        Model(from_bytes(to_bytes(model.package))).predict(X), booster.predict(X), rtol=1e-5
    )


@needs_device
def test_what_the_driver_refuses_is_one_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = read(path)
    broken = [replace(kernel, library=b"__kernel void f(int x) { y = x; }") for kernel in package.kernels]
    with pytest.raises(PackageError, match=r"opencl:0 \(.*can't compile a kernel: .*error.*'y'"):
        Model(replace(package, kernels=tuple(broken))).predict(np.ones((2, 4)))
    with pytest.raises(DeviceError, match=r"there is no opencl:99; this machine has \d+ OpenCL device"):
        driver.Device(driver._library(driver.LIBRARY), 99)
    monkeypatch.setattr(driver.device(), "most_threads", 8)
    with pytest.raises(PackageError, match=r"blocks of \d+ threads, and opencl:0 \(.*\) has at most 8;"):
        Model(package).predict(np.ones((2, 4)))


@needs_device
def test_a_fault_ends_the_worker(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(device_program, "_end", ended.append)
    kernel, call = read(path).kernels[0], driver.Library.call
    candidate = device_program.DeviceCandidate(kernel, kind="opencl")
    X = np.ones((3, 4), kernel.dtype)
    codes = {"clFinish": -6}

    def failing(library: driver.Library, name: str, *arguments: Any) -> None:
        library._check(name, codes.get(name, 0))
        call(library, name, *arguments)

    monkeypatch.setattr(driver.Library, "call", failing)
    with pytest.raises(driver.OpenclError, match="CL_OUT_OF_HOST_MEMORY"):
        candidate.run(X)
    assert not ended
    codes["clFinish"] = -36
    with pytest.raises(driver.OpenclError):
        candidate.run(X)
    assert ended == [70]
    assert "OpenCL refuses clFinish: CL_INVALID_COMMAND_QUEUE (-36)." in capsys.readouterr().err


def test_forked_processes_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_known", {(os.getppid(), driver.LIBRARY, 0): None})
    with pytest.raises(PackageError, match="a forked process can't use OpenCL"):
        hbtvm.load(path).predict(np.ones((1, 4)))


def test_a_machine_without_opencl_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libNoOpenCL.so")
    with pytest.raises(PackageError, match=r"compiled for OpenCL, but this machine has no OpenCL \(libNo"):
        Model(read(path)).predict(np.ones((1, 4)))
    with pytest.raises(TargetError, match="no OpenCL device that can be used: this machine has no OpenCL"):
        resolve("opencl")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cuda": 1}, "has no entry 'cuda'"),
        ({"arch": "A 770"}, "a device's name in lower case"),
        ({"max_threads_per_block": 2048}, "is at most 1024, not 2048"),
        ({"cores": 0}, "a whole number for 'cores'"),
    ],
)
def test_targets_are_checked(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(TargetError, match=said):
        resolve({**ANY, **fields})


def test_what_opencl_lacks_is_refused(tmp_path: Path) -> None:
    graph = trained("lgb_real_goss")[1]
    with pytest.raises(InputError, match="measured on this machine only"):
        export(graph, tmp_path / "trials.tar", target=ANY)
    with pytest.raises(InputError, match="target is for OpenCL, so it can't be on device 'cuda:0'"):
        hbtvm.compile(graph, target=ANY, device="cuda:0")
    with pytest.raises(InputError, match="gemm has no kernels for opencl"):
        hbtvm.compile(graph, target=ANY, strategies=["gemm"])
    with pytest.raises(InputError, match="no kernels of reasons for the target kind 'opencl' yet"):
        hbtvm.compile(graph, target=ANY, explain=True)
