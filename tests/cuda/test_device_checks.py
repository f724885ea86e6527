"""Where the driver needs a current context, and kernels that leave scores out, behind the strict stand-in."""

from __future__ import annotations

import ctypes
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.building import cuda as cuda_build
from hbtvm.compiler.candidates.program import TreeProgram
from hbtvm.compiler.recursion.program import RecursiveProgram
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.execution.mapped import MAPPED_BYTES
from hbtvm.runtime.cuda.memory import Graph, Memory, Module, Pinned, Stream
from hbtvm.runtime.gpu.launch import pointers
from hbtvm.runtime.model import Model
from tests import emulated
from tests.cuda.test_cuda_recursive_tuning import task_of
from tests.cuda.test_cuda_tuning import tasks
from tests.emulated import DEPTH, UNIFIED, USED, Machine, package
from tests.models import data
from tests.runtime_models import trained

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


@pytest.mark.parametrize("unified", [0, 1])
@pytest.mark.parametrize("name", ["lgb_two", "xgb_three_vector"])
def test_few_rows_need_no_context_of_the_callers(machine: Machine, name: str, unified: int) -> None:
    """In a process without torch or CuPy, no context is current when a call begins."""
    machine.set(UNIFIED, unified)
    model, X = Model(package(name)), data()[0].astype(np.float32)
    most = MAPPED_BYTES // X[:1].nbytes
    found: list[Any] = []
    for n in (1, 2, most, most + 1):
        thread = threading.Thread(target=lambda n=n: found.append(model.predict(X[:n])))
        thread.start()
        thread.join()
        np.testing.assert_array_equal(model.predict(X[:n]), trained(name)[0].predict(X[:n]))
        np.testing.assert_array_equal(found[-1], trained(name)[0].predict(X[:n]))
    assert machine.get(DEPTH) == 0


def test_the_stand_in_refuses_calls_without_a_context(machine: Machine) -> None:
    gpu = driver.gpu()
    with gpu.current():
        address = gpu.driver.number("cuMemHostAlloc", 64, 0, of=driver._POINTER)
    for name in ("cuMemHostGetDevicePointer_v2", "cuStreamCreate", "cuEventCreate", "cuMemAlloc_v2"):
        arguments = (address, 0) if name == "cuMemHostGetDevicePointer_v2" else (1,)
        with pytest.raises(driver.CudaError) as refused:
            gpu.driver.number(name, *arguments, of=driver._POINTER)
        assert refused.value.code == 201


PROBE = """extern "C" __global__ void __launch_bounds__(32) probe(float* __restrict__ out) {
  __shared__ alignas(64) float kept[32];
  out[((int)blockIdx.x * 32) + (int)threadIdx.x] = kept[(int)threadIdx.x];
  kept[(int)threadIdx.x] = 1.0f;
}
"""


def test_the_stand_in_checks_launches_and_fills_shared_memory(machine: Machine) -> None:
    gpu = driver.gpu()
    with gpu.current():
        module, out, back = Module(gpu, emulated.machine_code(PROBE)), Memory(gpu, 256), Pinned(gpu, 256)
        probe, most = gpu.function(module.handle, "probe"), 227 << 10

        def launch(threads: int, shared: int) -> None:
            arguments = pointers([ctypes.c_uint64(out.handle)])
            gpu.driver.call("cuLaunchKernel", probe, 2, 1, 1, threads, 1, 1, shared, None, arguments, None)

        for threads, shared, code in ((64, 0, 701), (32, 48 << 10, 1), (2048, 0, 1)):
            with pytest.raises(driver.CudaError) as refused:
                launch(threads, shared)
            assert refused.value.code == code
        with pytest.raises(driver.CudaError):
            gpu.function(module.handle, "probe", most)
        probe = gpu.function(module.handle, "probe", most - 128)
        launch(32, most - 128)
        with pytest.raises(driver.CudaError):
            gpu.driver.call("cuMemcpyDtoHAsync_v2", back.handle, out.handle + 8, 256, None)
        gpu.driver.call("cuMemcpyDtoHAsync_v2", back.handle, out.handle, 256, None)
        gpu.driver.call("cuStreamSynchronize", None)
        assert (back.array == 0x7F).all()
        del module
        with pytest.raises(driver.CudaError):
            launch(32, 0)


def test_memory_may_be_released_while_a_graph_is_captured(machine: Machine) -> None:
    gpu, before = driver.gpu(), machine.get(USED)
    with gpu.current():
        stream, memory = Stream(gpu), [Memory(gpu, 64)]
        Graph(stream, memory.clear).start()
        stream.wait()
    assert machine.get(USED) == before


def planted(monkeypatch: pytest.MonkeyPatch, condition: str) -> None:
    """Make kernels that are compiled from now on do nothing where a condition holds."""
    right = emulated.machine_code
    body = re.compile(r"(__global__ void (?:__launch_bounds__\([^)]*\)\s*)?\w+\(\s*[^{;]*?\)\s*\{)")

    def wrong(source: str, *_: Any, **__: Any) -> tuple[bytes, str]:
        return right(body.sub(rf"\1 if ({condition}) return;", source)), ""

    monkeypatch.setattr(cuda_build, "machine_code", wrong)


@pytest.mark.parametrize("condition", ["true", "blockIdx.x == 0"])
@pytest.mark.parametrize("rows", [3, 500])
def test_scores_that_a_kernel_leaves_out_are_seen(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, rows: int
) -> None:
    """Memory is handed out again with the right scores of the candidate before."""
    (task,) = (one for one in tasks(tmp_path, rows) if one.strategy == "tree_traversal")
    program, config = TreeProgram(task.payload), task.initial[0]
    program.build(config, str(tmp_path / "right.bin"))
    assert program.load(config, str(tmp_path / "right.bin")).check() is None
    planted(monkeypatch, condition)
    program.build(config, str(tmp_path / "wrong.bin"))
    assert "rows differ" in str(program.load(config, str(tmp_path / "wrong.bin")).check())
    assert program.load(config, str(tmp_path / "right.bin")).check() is None


def test_states_that_a_kernel_leaves_out_are_seen(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(tmp_path)
    program, config = RecursiveProgram(task.payload), task.initial[0]
    program.build(config, str(tmp_path / "right.bin"))
    assert program.load(config, str(tmp_path / "right.bin")).check() is None
    planted(monkeypatch, "true")
    program.build(config, str(tmp_path / "wrong.bin"))
    assert "states differ" in str(program.load(config, str(tmp_path / "wrong.bin")).check())
