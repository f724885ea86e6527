"""What drivers refuse: code of later toolkits, and launches for which a GPU has no room."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hbtvm.compiler.building import cuda_toolkit
from hbtvm.errors import DeviceError, PackageError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.memory import Module, Stream
from hbtvm.runtime.gpu.launch import pointers
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import Package, from_bytes, to_bytes
from hbtvm.runtime.package.summary import summarize
from hbtvm.schedules.cuda.network import MAX_NUMBERS
from tests import emulated
from tests.emulated import UNREADABLE, VERSION, Machine, package

emulated_gpu = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))

TEXTS = [
    (
        "13.0",
        12040,
        r"compiled by CUDA 13.0, which needs a driver for CUDA 13.0 or later \(driver 580 or later\), but "
        r"this machine's driver is for CUDA 12.4; update the driver, or compile .* CUDA 12.4 or of an older",
    ),
    ("12.8", 12040, r"needs a driver for CUDA 12.8 or later \(driver 570 or later\), .* is for CUDA 12.4"),
    ("99.7", 13000, r"needs a driver for CUDA 99.7 or later, but this machine's driver is for CUDA 13.0"),
    ("9.2", 12000, r"compiled by CUDA 9.2, and this machine's driver, for CUDA 12.0, is new enough"),
    (
        "",
        12040,
        r"its driver, for CUDA 12.4, is older than what the model was compiled with; update the driver",
    ),
]


@emulated_gpu
@pytest.mark.parametrize(("toolkit", "driver", "text"), TEXTS)
@pytest.mark.parametrize("code", [200, 209, 218, 222])
def test_an_old_driver_is_told_with_the_one_that_is_needed(
    machine: Machine, toolkit: str, driver: int, text: str, code: int
) -> None:
    model = Model(replace(package("lgb_two"), cuda_version=toolkit))
    machine.set(VERSION, driver)
    machine.set(UNREADABLE, code)
    with pytest.raises(
        PackageError, match=r"^cuda:0 \(Emulated GPU, sm_90\) can't run the model's code: .*" + text
    ):
        model.warm_up()


@emulated_gpu
def test_an_older_driver_that_loads_the_code_is_taken(machine: Machine) -> None:
    machine.set(VERSION, 12040)
    Model(package("lgb_two")).warm_up()


@emulated_gpu
def test_packages_tell_the_toolkit(machine: Machine) -> None:
    made = package("lgb_two")
    assert made.cuda_version == "13.0"
    read = from_bytes(to_bytes(made))
    assert read.cuda_version == "13.0" and ", CUDA 13.0" in summarize(read)
    before = from_bytes(to_bytes(replace(made, cuda_version="")))
    assert before.cuda_version == "" and "CUDA 13" not in summarize(before)


@emulated_gpu
@pytest.mark.parametrize("version", ["13", "13.0.1", "thirteen", "1.0\n"])
def test_a_toolkit_of_no_version_is_damage(machine: Machine, version: str) -> None:
    made: Package = replace(package("lgb_two"), cuda_version=version)
    with pytest.raises(PackageError, match="damaged"):
        from_bytes(to_bytes(made))


@pytest.mark.parametrize(
    ("said", "version"),
    [("Cuda compilation tools, release 12.8, V12.8.93", "12.8"), ("another compiler", "")],
)
def test_the_compiler_tells_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, version: str
) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho '{said}'\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(cuda_toolkit, "nvcc", lambda: str(nvcc))
    assert cuda_toolkit.toolkit_version() == version


def test_programs_are_found_in_python_packages_behind_toolkits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(folder: Path, name: str = "nvcc") -> str:
        folder.mkdir(parents=True)
        program = folder / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        return str(program)

    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(cuda_toolkit.sys, "path", [str(tmp_path / "site")])
    disassembler = made(tmp_path / "site" / "nvidia" / "cu12" / "bin", "nvdisasm")
    newest = made(tmp_path / "site" / "nvidia" / "cu13" / "bin")
    assert cuda_toolkit.find("nvdisasm") == disassembler
    for other in (None, tmp_path / "home" / "bin", tmp_path / "path"):
        expected = newest if other is None else made(other)
        if other is not None or not Path("/usr/local/cuda/bin/nvcc").exists():
            assert cuda_toolkit.nvcc() == expected


@emulated_gpu
def test_launches_beyond_local_memory_and_registers_fail(machine: Machine) -> None:
    """The largest network's kernel leaves memory for others, and one four times as large does not."""

    def launch(numbers: int, threads: int, bounds: str) -> np.ndarray:
        source = f"""extern "C" __global__ void {bounds}kernel(double* out) {{
  double numbers[{numbers}];
  out[threadIdx.x] = numbers[threadIdx.x];
}}"""
        gpu, out = driver.gpu(0), np.zeros(threads)
        with gpu.current():
            module, stream = Module(gpu, emulated.machine_code(source)), Stream(gpu)
            sizes = (1, 1, 1, threads, 1, 1, 0)
            values = pointers([ctypes.c_uint64(out.ctypes.data)])
            gpu.driver.call(
                "cuLaunchKernel", gpu.function(module.handle, "kernel"), *sizes, stream.handle, values, None
            )
            stream.wait()
        return out

    found = launch(MAX_NUMBERS, 64, "__launch_bounds__(64) ")
    # Local memory is not zero before it is written.
    assert (found.view(np.uint64) == 0xFEFEFEFEFEFEFEFE).all()
    with pytest.raises(DeviceError, match="OUT_OF_MEMORY"):
        launch(4 * MAX_NUMBERS, 64, "__launch_bounds__(64) ")
    # Without bounds, nvcc may take all registers of a multiprocessor for 256 threads.
    assert len(launch(1024, 256, "")) == 256
    with pytest.raises(DeviceError, match="refuses cuLaunchKernel"):
        launch(1024, 512, "")
