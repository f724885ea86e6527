"""The program with which workers build, check and time a model's kernels.

Its interface is `hbtvm.tuning.measuring.program.Program`.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.compiler.building.cpu import build_kernel, link_library
from hbtvm.compiler.building.cuda import (
    code_of,
    code_without_spills,
    read_code,
    source_and_launch,
    write_code,
)
from hbtvm.compiler.building.cuda_stubs import compile_with_stubs
from hbtvm.compiler.candidates.samples import (
    checked_rows,
    error_scale,
    plain_sums,
    sample_rows,
    tolerance_of,
)
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.lowering.cuda.score_epilogue import with_epilogue
from hbtvm.graph.graph import KernelAnchor
from hbtvm.measuring.checked import CheckedKernel
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.runtime.native.executor import OneKernel
from hbtvm.runtime.native.library import Function, Library, load_kernel, load_library
from hbtvm.runtime.native.objects.build import c_compiler, executor_library
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target, Workload, family_of, row_dtype_of
from hbtvm.strategies import LinearOperand, Operand, Strategy, strategies_on
from hbtvm.tuning.measuring.program import InvalidConfigError, fingerprint

FORESTS, SAMPLE = "forests.pickle", "rows-{dtype}.npy"


@dataclass(frozen=True)
class Study:
    """A model's data for workers, written once into a shared folder."""

    forests: dict[str, Operand]  # the operand of the kernels, by dtype of the rows
    # Plain sums of the sample's first rows, by dtype: float64, shape (checked rows, O)
    expected: dict[str, np.ndarray]
    scale: float  # magnitude of the sums, which rounding errors are relative to (see `samples.error_scale`)
    executor: bytes = b""  # the shared library that runs a CPU's kernels; empty for other machines


def write_study(
    folder: Path,
    anchor: KernelAnchor,
    forests: Sequence[Operand],
    rows: int,
    seed: int = 0,
    executor: bytes = b"",
) -> None:
    """Write the files of `TreeProgram`.

    `folder`: an existing, private folder.
    `anchor`, `forests`: the kernels' function, and its operand for each dtype to tune.
    `rows`: the largest batch size.
    `executor`: as in `Study`.
    """
    expected: dict[str, np.ndarray] = {}
    scale = 0.0
    for forest in forests:
        X = sample_rows(anchor, rows, forest.row_dtype, seed)
        if not takes_nan(forest):
            X[np.isnan(X)] = 0
        np.save(folder / SAMPLE.format(dtype=forest.row_dtype), X)
        checked = X[: checked_rows(anchor)]
        expected[forest.row_dtype] = plain_sums(anchor, checked)
        scale = max(scale, error_scale(anchor, checked))
    study = Study({forest.row_dtype: forest for forest in forests}, expected, scale, executor)
    (folder / FORESTS).write_bytes(pickle.dumps(study))


def read_study(folder: Path) -> Study:
    """Read the files of `write_study`."""
    study: Study = pickle.loads((folder / FORESTS).read_bytes())
    return study


def takes_nan(operand: Operand) -> bool:
    """Whether kernels of the operand accept rows with NaN."""
    return operand.sums.fills_missing if isinstance(operand, LinearOperand) else operand.missing


class TreeProgram:
    """One strategy for one workload of one model.

    `payload`: ``folder`` (see `write_study`), ``strategy``, ``workload``, ``target``, ``threads``, ``fleet``
        (whether a fleet measures), ``device`` (number of the GPU here) and ``spills`` (whether kernels for
        GPUs may spill registers, by default true).
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        folder = Path(payload["folder"])
        self._workload: Workload = payload["workload"]
        self._target: Target = payload["target"]
        self._strategy: Strategy = strategies_on(self._target, family_of(self._workload))[payload["strategy"]]
        self._threads: int = payload["threads"]
        self._fleet = bool(payload.get("fleet"))
        self._device = int(payload.get("device", 0))
        self._spills = bool(payload.get("spills", True))
        self._study = read_study(folder)
        dtype = row_dtype_of(self._workload)
        # Memory-mapped: builders read no rows, and workers share the pages.
        self._sample = np.load(folder / SAMPLE.format(dtype=dtype), mmap_mode="r")

    def build(self, config: Config, library_path: str) -> str:
        """Compile a candidate; see `hbtvm.tuning.measuring.program.Program.build`."""
        if not self._strategy.space(self._workload, self._target).contains(config):
            raise InvalidConfigError(f"not a configuration of {self._strategy.name}: {config}")
        if on_gpu(self._target):
            return self._build_cuda(config, library_path)
        build_kernel(self._strategy, self._workload, config, self._target, library_path)
        return fingerprint(
            library_path, parallel=config.get("parallel", "none"), grain=config.get("grain", 1)
        )

    def _build_cuda(self, config: Config, library_path: str) -> str:
        """Compile a candidate for a GPU (for a fleet, as a TVM library); return its fingerprint."""
        module = self._strategy.module(self._workload, config)
        signature = self._strategy.signature(self._workload, config)
        # TVM's runtime starts kernels of whole tiles.
        source, launch = source_and_launch(module, self._target, signature.parts, bounds=not self._fleet)
        if self._fleet:
            if signature.needs_epilogue:
                module = with_epilogue(module, signature.groups, signature.parts)
            link_library(compile_with_stubs(module, self._target), library_path)
            launch = replace(launch, carveout=None)  # TVM's runtime sets none
        else:
            code = (
                code_of(source, self._target) if self._spills else code_without_spills(source, self._target)
            )
            write_code(library_path, code, launch)
        # The source's hash, since the output of CUDA compilers is not reproducible.
        return hashlib.sha256(f"{source}{launch}".encode()).hexdigest()

    def load(self, config: Config, library_path: str) -> CheckedKernel:
        """Load a candidate and its tables."""
        forest = self._study.forests[row_dtype_of(self._workload)]
        if on_gpu(self._target):
            from hbtvm.measuring.device import DeviceCandidate

            code, launch = read_code(library_path)
            entry = entry_of(forest, self._strategy, self._workload, config, code, launch)
            device = DeviceCandidate(entry, self._device, self._target["kind"])
            count = self._workload["rows"]
            # The sample is smaller than a large batch; the device repeats its rows.
            return CheckedKernel(
                device.run,
                *self._check_data(forest),
                clock=lambda X, number: device.seconds(X, number, count),
            )
        kernel = make_executor(
            load_kernel(library_path), forest, self._strategy, self._workload, config, self._threads,
            library=load_library(self._study.executor) if self._study.executor else None,
        )  # fmt: skip
        return CheckedKernel(kernel.run, *self._check_data(forest), poison=kernel.executor.poison)

    def load_remote(self, config: Config, library_path: str, session: Any) -> CheckedKernel:
        """Load a candidate on the device of a `tvm.rpc.RPCSession`."""
        from hbtvm.compiler.candidates.fleet import RemoteCandidate

        forest = self._study.forests[row_dtype_of(self._workload)]
        entry = entry_of(forest, self._strategy, self._workload, config)
        gpu = self._target["kind"] == "cuda"
        kernel = RemoteCandidate.of(session, library_path, entry.signature, entry.tables, gpu)
        return CheckedKernel(kernel.run, *self._check_data(forest), clock=kernel.seconds)

    def _check_data(self, forest: Operand) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Return rows to time, rows to check, their expected scores, and the absolute tolerance."""
        rows = np.ascontiguousarray(self._sample[: self._workload["rows"]])
        expected = self._study.expected[forest.row_dtype]
        checked = np.ascontiguousarray(self._sample[: len(expected)])
        tolerance = tolerance_of(forest.value_dtype, self._study.scale)
        return rows, checked, expected, tolerance


def make_executor(
    function: Any,
    forest: Operand,
    strategy: Strategy,
    workload: Workload,
    config: Config,
    threads: int,
    library: Library | None = None,
) -> OneKernel:
    """Bind a kernel to an operand's tables, as in a package.

    `function`: the kernel, from `load_kernel` or TVM.
    `threads`: threads to use.
    `library`: the executor; by default, it is compiled here.
    """
    entry = entry_of(forest, strategy, workload, config)
    if not isinstance(function, Function):
        function = Function.of_tvm(function)
    if library is None:
        library = load_library(executor_library(c_compiler()))
    # Kernels that are not parallel are timed on one thread.
    return OneKernel(library, function, entry, 1 if entry.parallel == "none" else threads)
