"""Packages with a GPU's real machine code, made on a machine that may have none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import hbtvm
from hbtvm.cli.main import main
from hbtvm.compiler.building import cuda_toolkit
from hbtvm.compiler.building.cuda_toolkit import toolkit_version
from hbtvm.errors import BuildError, PackageError
from hbtvm.runtime.gpu.launch import Launch
from hbtvm.runtime.package.file import Package, from_bytes, read, to_bytes
from tests.cuda.test_cuda_target import NO_GPU
from tests.cuda_kernels import NO_NVCC
from tests.runtime_models import trained

SM90 = {"kind": "cuda", "arch": "sm_90"}

needs_nvcc = pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packages") / "model.tar"
    model = hbtvm.compile(trained("lgb_two")[1], target=SM90, batch_sizes=(1000,))
    model.save(path)
    return path


@needs_nvcc
def test_a_package_holds_machine_code_and_portable_code(made: Path, tmp_path: Path) -> None:
    package = read(made)
    assert [kernel.dtype for kernel in package.kernels] == ["float32", "float64"]
    assert package.cuda_version == toolkit_version() != ""
    tool = shutil.which("cuobjdump")
    for kernel in package.kernels:
        assert kernel.launch is not None and kernel.launch.function == "main_kernel"
        code = tmp_path / "kernel.fatbin"
        code.write_bytes(kernel.library)
        if tool:
            listed = subprocess.run([tool, "-lelf", "-lptx", code], capture_output=True, text=True).stdout
            assert "sm_90.cubin" in listed and "sm_75.ptx" in listed
    assert to_bytes(from_bytes(to_bytes(package))) == to_bytes(package) == made.read_bytes()


@needs_nvcc
@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_a_machine_without_a_gpu_says_so(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PackageError, match=r"compiled for an NVIDIA GPU \(sm_90\), but this machine has no"):
        hbtvm.load(made)
    rows = made.with_name("rows.csv")
    rows.write_text("1,2,3,4\n")
    assert main(["predict", str(made), str(rows)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no NVIDIA driver" in said
    assert main(["predict", str(made), str(rows), "--device", "cpu"]) == 2
    assert "can't run on the CPU" in capsys.readouterr().err


@needs_nvcc
def test_it_can_be_inspected_anywhere(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(made)]) == 0
    assert "for NVIDIA GPUs: sm_90, and as portable code others from sm_75 on" in capsys.readouterr().out
    assert main(["inspect", str(made), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"]["arch"] == "sm_90"


@needs_nvcc
def test_loading_it_imports_no_compiler(made: Path) -> None:
    code = (
        "import sys, hbtvm.runtime.model as m\n"
        f"model = m.Model(m.read({str(made)!r}))\n"
        "print(model.summary()[:8], [n for n in ('tvm', 'lightgbm', 'hbtvm.compiler') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "lightgbm []\n", done.stderr


@needs_nvcc
@pytest.mark.parametrize(
    "change",
    [
        {"launch": None},
        {"launch": Launch("main_kernel", (0, 99), ((0, 0), 1, 1), (32, 1, 1))},
        {"launch": Launch("main_kernel", (0, 1), ((0, 0), 1, 1), (0, 1, 1))},
    ],
)
def test_a_launch_that_makes_no_sense_is_damage(made: Path, change: dict[str, Launch | None]) -> None:
    package: Package = read(made)
    kernels = (replace(package.kernels[0], **change), *package.kernels[1:])  # type: ignore[arg-type]
    with pytest.raises(PackageError, match=r"is damaged|can't pack the model"):
        from_bytes(to_bytes(replace(package, kernels=kernels)))


@needs_nvcc
def test_an_architecture_that_the_compiler_does_not_know() -> None:
    with pytest.raises(BuildError, match="has no code for sm_199"):
        hbtvm.compile(trained("lgb_two")[1], target={"kind": "cuda", "arch": "sm_199"})


def test_without_a_cuda_compiler_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_toolkit.shutil, "which", lambda *_, **__: None)
    with pytest.raises(BuildError, match="no CUDA compiler was found"):
        hbtvm.compile(trained("lgb_two")[1], target=SM90)


def test_a_package_for_cpus_is_not_for_gpus(tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    hbtvm.compile(trained("lgb_two")[1], batch_sizes=(10,), threads=1).save(path)
    with pytest.raises(PackageError, match="compiled for a CPU, so it can't run on cuda:1"):
        hbtvm.load(path, device="cuda:1")
    assert hbtvm.load(path, device="cpu").device == "cpu"
