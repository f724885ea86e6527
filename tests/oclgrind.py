"""GPU kernels lowered to OpenCL, and run in Oclgrind, which reports races and reads of unwritten memory.

Reports do not depend on the values: a race is found even where the order of the run hides it. The schedules
are those for CUDA, and the kernels those of packages for OpenCL.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hbtvm.compiler.building.cuda import source_and_launch
from hbtvm.compiler.targets.target import resolve
from hbtvm.runtime.gpu.launch import Scaling
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import Strategy
from tests.cuda_kernels import _by_rows

PROGRAM = "oclgrind-kernel"
NO_OCLGRIND = None if shutil.which(PROGRAM) else "oclgrind is not installed"

TARGET = resolve({"kind": "opencl", "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152})
_SHARED = 233_472  # bytes of local memory
REPORT = re.compile(
    r"[Rr]ead-write data race|[Ww]rite-write data race|[Uu]ninitialized value|Invalid \w+|"
    r"[Bb]arrier divergence"
)


@dataclass(frozen=True)
class Run:
    """Raw scores, float64 (n, O), and the kinds of what Oclgrind reports."""

    scores: np.ndarray
    reports: tuple[str, ...]


def run(
    strategy: Strategy,
    workload: Workload,
    config: Config,
    tables: Sequence[np.ndarray],
    X: np.ndarray,
    base: np.ndarray,
    divisor: float,
    folder: Path,
    change: Callable[[str], str] = lambda source: source,
) -> Run:
    """Run a kernel on rows.

    `change`: changes the OpenCL source, to plant a fault.
    """
    signature = strategy.signature(workload, config)
    source, launch = source_and_launch(strategy.module(workload, config), TARGET, signature.parts)
    tiles, direct = -(-len(X) // signature.row_tile), signature.parts == 1
    scores = np.zeros((len(X), signature.outputs) if direct else signature.scores.sizes(tiles=tiles))
    arrays = [X, *tables, scores]
    shapes = signature.shapes(tables, tiles)
    (wide, high, _), (x, y, _) = launch.blocks(shapes), launch.block
    values = launch.values(range(len(arrays)), shapes, len(X), Scaling(0, float(base[0]), divisor))
    lines = [str(folder / "kernel.cl"), "main_kernel", f"{wide * x} {high * y} 1", f"{x} {y} 1"]
    for argument, value in zip(launch.arguments, values, strict=True):
        if argument == len(arrays) - 1:
            lines.append(f"<size={scores.nbytes} fill=0 double dump>")
        elif isinstance(argument, int):
            lines.append(_bytes(arrays[argument]))
        elif argument == "base":
            lines.append(_bytes(base))
        else:
            kind = "double" if argument in ("base_score", "divisor") else "long"
            lines.append(f"<size=8 {kind}>\n{value.value!r}")
    (folder / "kernel.cl").write_text(change(source))
    (folder / "kernel.sim").write_text("\n".join(lines) + "\n")
    command = [PROGRAM, "--local-mem-size", str(_SHARED), "--max-wgsize", "1024", "--num-threads", "1"]
    # Optimized code has instructions that Oclgrind does not know (freeze).
    command += [
        "--build-options",
        "-cl-opt-disable",
        "--data-races",
        "--uninitialized",
        str(folder / "kernel.sim"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "FATAL" not in done.stderr, done.stderr[-2000:]
    found = np.array([float(value) for value in re.findall(r"=\s*([-+.\w]+)\s*$", done.stdout, re.MULTILINE)])
    assert found.size == scores.size, done.stdout[:500] + done.stderr[:1500]
    made = found.reshape(scores.shape)
    totals = made if direct else _by_rows(signature, made)[: len(X)] / divisor + base
    return Run(totals, tuple(sorted(set(REPORT.findall(done.stderr)))))


def _bytes(array: np.ndarray) -> str:
    """Return an argument of Oclgrind's description of a run."""
    values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"<size={values.size} uchar>\n" + " ".join(map(str, values))
