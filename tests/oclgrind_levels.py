"""Recursive models' kernels lowered to OpenCL, and run in Oclgrind level by level.

`device` returns a `RecursiveDevice` whose launches a process of their own makes in Oclgrind, which reports
races, and reads of states and scratch memory that no earlier launch has written. The kernel for all levels
runs in one block, whose barrier between blocks is one between its threads.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.building.cuda_levels import level_source
from hbtvm.compiler.recursion import build
from hbtvm.runtime.cuda.recursive import device as recursive_device
from hbtvm.runtime.cuda.recursive import lane
from hbtvm.runtime.opencl import driver
from hbtvm.runtime.opencl.execution import SIZES
from hbtvm.runtime.opencl.resources import Buffer, Kernel, Program, Queue
from hbtvm.strategies.recursive.cuda import levels, wholes
from hbtvm.strategies.recursive.levels import Kernels
from tests import emulated
from tests.oclgrind import REPORT, TARGET

LIBRARY = "/usr/lib/oclgrind/liboclgrind-rt.so"
NO_ORACLE = None if Path(LIBRARY).exists() else f"{LIBRARY} of oclgrind is not installed"

_KERNEL = re.compile(r"__kernel void \w+\([^)]*\) \{")

# Oclgrind has no shuffles: threads exchange numbers in local memory.
_HEAD = f"""
#define expf exp
#define tanhf tanh
__kernel void absent_children(__global float* state) {{ state[get_global_id(0)] = 0; }}
#define {levels.BARRIER}(counter, arrivals) barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define SHUFFLED(number, from) ({{ \\
  barrier(CLK_LOCAL_MEM_FENCE); exchange[get_local_id(0)] = number; \\
  barrier(CLK_LOCAL_MEM_FENCE); exchange[from]; }})
#define LANE (get_local_id(0) % 32)
#define tvm_warp_shuffle_down(number, by) SHUFFLED(number, get_local_id(0) + (LANE + by < 32 ? by : 0))
#define tvm_warp_shuffle(number, lane) SHUFFLED(number, get_local_id(0) - LANE + lane)
"""


@dataclass(frozen=True)
class Launch:
    """A kernel's start: its blocks, their threads, and arguments: names of arrays, or numbers of 64 bits."""

    function: str
    blocks: int
    threads: int
    arguments: tuple[str | int, ...]


@dataclass(frozen=True)
class Calls:
    """Kernels, and their starts in sequence.

    `arrays`: by name; numbers, or the bytes of an array that nothing has written.
    """

    source: str
    arrays: dict[str, np.ndarray | int]
    launches: list[Launch]


def run(calls: Calls, result: str, folder: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Run kernels in Oclgrind; return an array's bytes, and the kinds of what Oclgrind reports."""
    (folder / "calls").write_bytes(pickle.dumps((calls, result)))
    log = folder / "log"
    log.unlink(missing_ok=True)
    options = {"DATA_RACES": "1", "UNINITIALIZED": "1", "LOG": str(log), "NUM_THREADS": "1"}
    options |= {"LOCAL_MEM_SIZE": "233472", "BUILD_OPTIONS": "-cl-opt-disable", "MAX_WGSIZE": "1024"}
    environment = {f"OCLGRIND_{name}": value for name, value in options.items()}
    command = [sys.executable, "-m", __name__, str(folder)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    reports = log.read_text() if log.exists() else ""
    assert "FATAL" not in reports, reports[:2000]
    return np.fromfile(folder / "result", np.uint8), tuple(sorted(set(REPORT.findall(reports))))


def _launch(folder: Path) -> None:
    """Make the launches of a file of `run`, in a process in which Oclgrind is the driver."""
    calls, result = pickle.loads((folder / "calls").read_bytes())
    driver.LIBRARY = LIBRARY
    device = driver.device()
    queue, program = Queue(device), Program(device, calls.source.encode())
    buffers = {}
    for name, given in calls.arrays.items():
        written = isinstance(given, np.ndarray)
        buffers[name] = Buffer(device, given.nbytes if written else given)
        if written:
            queue.write(buffers[name], np.ascontiguousarray(given))
    for launch in calls.launches:
        values = [
            ctypes.c_void_p(buffers[given].handle) if isinstance(given, str) else ctypes.c_int64(given)
            for given in launch.arguments
        ]
        kernel = Kernel(program, launch.function, values)
        queue.start(kernel, SIZES(launch.blocks * launch.threads, 1, 1), SIZES(launch.threads, 1, 1))
        queue.wait()
    found = np.zeros(buffers[result].size, np.uint8)
    queue.read(found, buffers[result])
    queue.wait()
    found.tofile(folder / "result")


class _Lane(lane.Lane):
    """A lane whose kernels run in Oclgrind.

    `folder`: of its files.
    `reports`: what Oclgrind reported so far.
    """

    folder: Path
    reports: list[str]

    def run(self, call: lane.Call, kernels: Any) -> int:
        staged, ends = self._staging.array, [*call.inputs[1:], call.size]
        arrays: dict[str, np.ndarray | int] = {"levels": call.starts, "barrier": np.zeros(1, np.int64)}
        arrays["child"] = staged[call.child : call.child + 4 * call.rows * call.arity]
        for n, places in enumerate(zip(call.inputs, ends, strict=True)):
            arrays[f"number{n}"] = arrays[f"vector{n}"] = staged[slice(*places)]
        arrays |= {f"table{n}": table for n, table in enumerate(kernels.tables)}
        # Scratch memory and states have no numbers yet, but for the row of absent children.
        arrays |= {f"scratch{n}": 4 * call.widest * width for n, width in enumerate(kernels.scratch)}
        arrays["state"] = size = 4 * call.rows * call.width
        absent = Launch("absent_children", 1, call.width, ("state",))
        calls = Calls(kernels.source, arrays, [absent, *self._launches(call, kernels)])
        states, reports = run(calls, "state", self.folder)
        self.reports += reports
        self._read.array[:size] = states
        return int(self._read.handle)

    def _launches(self, call: lane.Call, kernels: Any) -> list[Launch]:
        nodes = np.diff(call.starts).tolist()
        if kernels.persistent is not None:
            return [self._launch(call, kernels.persistent.step, 1, count=call.count)]
        found = []
        for level in range(call.count):
            for kernel in kernels.of_level(level):
                blocks = -(-nodes[level] // kernel.step.tile) * kernel.step.panels
                found.append(self._launch(call, kernel.step, blocks, level=level))
        return found

    @staticmethod
    def _launch(call: lane.Call, step: Any, blocks: int, **scalars: int) -> Launch:
        numbers = {"arity": call.arity, "blocks": blocks, **scalars}
        arguments = tuple(
            numbers.get(argument.role, argument.role)
            if argument.role in (*numbers, "levels", "barrier", "child", "state")
            else f"{argument.role}{argument.number}"
            for argument in step.arguments
        )
        return Launch(step.function, blocks, step.threads, arguments)


@contextmanager
def device(folder: Path, change: Callable[[str], str] = lambda source: source) -> Iterator[list[str]]:
    """Return a context within which recursive models' kernels run in Oclgrind, and what it reports.

    `change`: changes the OpenCL source, to plant a fault.
    """
    reports: list[str] = []

    def built(kernels: Kernels, *_: Any, **__: Any) -> tuple[bytes, Kernels]:
        source, compiled = level_source(kernels, TARGET)
        with_memory = _KERNEL.sub(r"\g<0> __local float exchange[256];", change(source))
        # OpenCL has no dynamic shared memory.
        with_memory = with_memory.replace("  float kept_ptr[", "  __local float kept_ptr[")
        return (_HEAD + with_memory).encode(), compiled

    def loaded(*given: Any) -> Any:
        made = _Lane(*given)
        made.folder, made.reports = folder, reports
        return made

    class Loaded(lane.LevelKernels):
        def __init__(self, gpu: Any, kernels: Any, tables: Any, toolkit: str) -> None:
            super().__init__(gpu, kernels, tables, toolkit)
            self.source, self.tables = kernels.library.decode(), kernels.tables

    def shuffled(how: str, value: Any, which: int) -> Any:
        return levels.tirx.call_extern("float32", how, value, which)

    def called(name: str, *arguments: Any, source_code: str) -> Any:
        return levels.tirx.call_extern("int32", name, *arguments)

    with emulated.machine() as machine, pytest.MonkeyPatch.context() as patch:
        machine.set(emulated.RESIDENT, 1)
        patch.setattr(levels, "cuda_func_call", called)
        patch.setattr(wholes, "_shuffled", shuffled)
        patch.setattr(build, "build_levels", built)
        patch.setattr(lane, "Module", lambda *_: SimpleNamespace(handle=0))
        patch.setattr(lane, "_loaded", lambda gpu, module, step: lane._Started(step, 0))
        patch.setattr(recursive_device, "LevelKernels", Loaded)
        patch.setattr(recursive_device, "Lane", loaded)
        yield reports


if __name__ == "__main__":
    _launch(Path(sys.argv[1]))
