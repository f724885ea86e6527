"""The program by which the tuner's workers build, check and time kernels of a recursive model.

Its interface is `hbtvm.tuning.measuring.program.Program`.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.compiler.building.cuda import code_of
from hbtvm.compiler.building.cuda_levels import level_source, write_levels
from hbtvm.compiler.recursion.build import build_library, entry_of, kernels_of
from hbtvm.compiler.recursion.samples import sample
from hbtvm.recursive import reference
from hbtvm.recursive.cell import RecursiveModel
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.recursive.entry import RecursionEntry
from hbtvm.runtime.recursive.host import RecursiveHost
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.levels import Classes, Kernels, Levels
from hbtvm.tuning.measuring.program import InvalidConfigError, fingerprint

PROGRAM = "hbtvm.compiler.recursion.program:RecursiveProgram"

STUDY = "recursive.pickle"

TOLERANCE = 1e-5  # of states, relative to the largest state of the reference
_CHECKED = 3  # structures whose states are checked


Run = Callable[[Structures], np.ndarray]  # from structures to readouts


@dataclass(frozen=True)
class Study:
    """A model's data for workers, written once into a shared folder."""

    # `model`, `classes`: the model, and its cell for each class of nodes
    model: RecursiveModel
    classes: Classes
    structures: Mapping[int, Structures]  # typical structures, by batch size
    checked: Structures
    expected: np.ndarray  # readouts of the first structures, float64
    executor: bytes  # the shared library that runs the kernels


def write_study(
    folder: Path,
    model: RecursiveModel,
    classes: Classes,
    structures: Mapping[int, Structures],
    executor: bytes,
) -> None:
    """Write the files of `RecursiveProgram`."""
    checked = sample(model.cell, _CHECKED, seed=1)
    states = reference.states(model.cell, checked)
    expected = reference.readout(model.cell, model.readout, checked, states)
    study = Study(model, classes, structures, checked, expected, executor)
    (folder / STUDY).write_bytes(pickle.dumps(study))


class RecursiveProgram:
    """The strategy `Levels` for one workload of one model.

    `payload`: ``folder`` (see `write_study`), ``workload``, ``target``, and ``device`` (number of the GPU).
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        self._study: Study = pickle.loads((Path(payload["folder"]) / STUDY).read_bytes())
        self._workload: dict[str, Any] = payload["workload"]
        self._target: Target = payload["target"]
        self._device = int(payload.get("device", 0))

    def build(self, config: Config, library_path: str) -> str:
        """Compile a candidate; see `hbtvm.tuning.measuring.program.Program.build`."""
        levels = Levels()
        if not levels.space(self._workload, self._target).contains(config):
            raise InvalidConfigError(f"not a configuration of {levels.name}: {config}")
        kernels = levels.kernels(self._study.classes, config, self._target)
        if self._target["kind"] == "cuda":
            return self._build_cuda(kernels, library_path)
        build_library(kernels, self._target, library_path)
        runtime = {key: config[key] for key in ("share", "tail", "depth") if key in config}
        return fingerprint(library_path, **runtime)

    def _build_cuda(self, kernels: Kernels, library_path: str) -> str:
        """Compile a candidate for a GPU; return its fingerprint."""
        source, compiled = level_source(kernels, self._target)
        write_levels(library_path, code_of(source, self._target), compiled)
        # The source's hash, since the output of CUDA compilers is not reproducible.
        started = compiled.leaf, compiled.inner, compiled.first, compiled.persistent
        return hashlib.sha256(f"{source}{started}".encode()).hexdigest()

    def load(self, config: Config, library_path: str) -> RecursiveRunnable:
        """Load a candidate; for a GPU, as `hbtvm.measuring.device.DeviceCandidate` does."""
        study, model = self._study, self._study.model
        built = Path(library_path).read_bytes(), b""
        kernels = kernels_of(study.classes, self._workload, config, self._target, built=built)
        entry = entry_of(model.cell, study.classes, model.readout, (kernels,))
        data = study.structures[int(self._workload["rows"])], study.checked, study.expected
        if self._target["kind"] == "cuda":
            return RecursiveRunnable(self._on_device(entry), *data)
        threads = 1 if config.get("share", "none") == "none" else int(self._workload["threads"])
        host = RecursiveHost(load_library(study.executor), entry, threads)
        host.check()
        parts = threads if config.get("share") in ("nodes", "panels") else 1
        return RecursiveRunnable(host.run, *data, poison=lambda on: host.poison(on, parts))

    def _on_device(self, entry: RecursionEntry) -> Run:
        """Return calls of a model on the GPU."""
        from hbtvm.measuring.device import or_end
        from hbtvm.runtime.cuda.recursive.device import RecursiveDevice

        library, arch = load_library(self._study.executor), str(self._target["arch"])
        device = or_end(lambda: RecursiveDevice(library, entry, arch, self._device, poison=True))
        return lambda structures: or_end(lambda: device.run(structures))


class RecursiveRunnable:
    """A loaded candidate with structures to run on.

    A call's time is complete: on a GPU, it includes copies and launches.

    `poison`: turns filling the states with NaN before each call on and off, as in
        `hbtvm.measuring.checked.CheckedKernel`.
    """

    def __init__(
        self,
        run: Run,
        structures: Structures,
        checked: Structures,
        expected: np.ndarray,
        poison: Callable[[bool], Any] = lambda on: None,
    ) -> None:
        self._run, self._structures, self._poison = run, structures, poison
        self._checked, self._expected = checked, expected

    def check(self) -> str | None:
        """Compare readouts with the reference; return None or a sentence on the difference."""
        self._poison(True)
        try:
            states, expected = self._run(self._checked), self._expected
        finally:
            self._poison(False)
        off = np.abs(states - expected)
        # A NaN fails.
        if (off <= TOLERANCE * max(1.0, float(np.abs(expected).max(initial=0)))).all():
            return None
        return f"states differ by up to {float(np.nanmax(off, initial=0)):.3g}"

    def run(self, number: int) -> float:
        """Return the seconds of `number` calls on the structures."""
        run, structures = self._run, self._structures
        start = time.perf_counter()
        for _ in range(number):
            run(structures)
        return time.perf_counter() - start
