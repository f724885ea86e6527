"""Build, check and time candidates of tensor programs in worker processes.

Its interface is `hbtvm.tuning.measuring.program.Program`.
"""

from __future__ import annotations

import importlib
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from hbtvm.compiler.building.compilers import linker
from hbtvm.compiler.targets.target import tvm_target
from hbtvm.errors import InputError
from hbtvm.programs.computation import ENTRY, outputs_of, samples
from hbtvm.programs.task import Definition, Pack, TensorTask, applied
from hbtvm.schedules.space import Config
from hbtvm.tuning.measuring.program import InvalidConfigError, fingerprint

PROGRAM = "hbtvm.programs.worker:TensorProgram"
DEFINITION, ARRAYS = "definition.pickle", "arrays.npz"

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2}
"""Largest relative difference from the reference by dtype; 0 for others."""


def compiled(module: Any, definition: Definition) -> Any:
    """Compile a module for a program's target."""
    return tvm.compile(module, target=tvm_target(definition.target))


def set_threads(threads: int) -> None:
    """Let TVM's functions of this process use a number of threads.

    Without ``TVM_BIND_THREADS``, TVM would also bind the calling thread to one core, for good.
    """
    os.environ["TVM_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    tvm.get_global_func("runtime.config_threadpool")(1, threads)


def expected(task: TensorTask, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of the user's reference, or of the program without a schedule.

    Raises `InputError` if the reference's outputs have other shapes than the program's.
    """
    written = outputs_of(task.definition.module)
    if task.reference is None:
        values = [tvm.runtime.tensor(array) for array in arrays]
        compiled(task.definition.module, task.definition)[ENTRY](*values)
        return [values[place].numpy() for place in written]
    result = task.reference(*(array for place, array in enumerate(arrays) if place not in written))
    found = [np.asarray(part) for part in (result if isinstance(result, tuple) else (result,))]
    shapes, wanted = [part.shape for part in found], [arrays[place].shape for place in written]
    if shapes != wanted:
        raise InputError(f"the reference returns arrays of shapes {shapes}, and the program {wanted}")
    return found


def write(task: TensorTask, folder: Path) -> None:
    """Write the files of `TensorProgram` into a private folder.

    Raises `InputError` if `apply` can't be sent to other processes, or the reference does not fit.
    """
    arrays = samples(task.definition.module)
    outputs = expected(task, arrays)
    named: dict[str, Any] = {f"argument{n}": array for n, array in enumerate(arrays)}
    named |= {f"output{n}": array for n, array in enumerate(outputs)}
    np.savez(folder / ARRAYS, **named)
    definition = replace(task.definition, module=tvm.ir.save_json(task.definition.module))
    roles = {name: strategy.roles for name, strategy in task.strategies.items()}
    spaces = {name: strategy.space.knobs for name, strategy in task.strategies.items()}
    (folder / DEFINITION).write_bytes(_pickled((definition, roles, spaces, task.tolerance)))


def _pickled(content: Any) -> bytes:
    dumps: Callable[[Any], bytes] = pickle.dumps
    advice = "define it at the top level of an importable module, or pip install cloudpickle"
    if find_spec("cloudpickle") is not None:
        dumps = importlib.import_module("cloudpickle").dumps
        advice = "it refers to an object that can't be pickled"
    try:
        return dumps(content)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InputError(f"`apply` or `args` can't be sent to worker processes ({error}); {advice}") from None


class TensorProgram:
    """One space of a tensor program.

    `payload`: ``folder`` (see `write`) and ``strategy``.
    """

    def __init__(self, payload: dict[str, Any]) -> None:
        folder = Path(payload["folder"])
        definition, roles, spaces, tolerance = pickle.loads((folder / DEFINITION).read_bytes())
        self._definition = replace(definition, module=tvm.ir.load_json(definition.module))
        self._roles = roles[payload["strategy"]]
        self._knobs = spaces[payload["strategy"]]
        self._folder, self._tolerance = folder, tolerance

    def build(self, config: Config, library_path: str) -> str:
        """Compile a candidate; see `hbtvm.tuning.measuring.program.Program.build`."""
        for knob in self._knobs:
            if knob.name not in config or not knob.offers(config[knob.name]):
                raise InvalidConfigError(f"knob {knob.name!r} has no choice {config.get(knob.name)!r}")
        module, _ = applied(self._definition, self._roles, config)
        library = compiled(module, self._definition)
        library.export_library(library_path, cc=linker(self._definition.target))
        return fingerprint(library_path)

    def load(self, config: Config, library_path: str) -> TensorCandidate:
        """Load a candidate with its packed arguments."""
        set_threads(self._definition.threads)
        _, pack = applied(self._definition, self._roles, config)
        function = tvm.runtime.load_module(library_path)[ENTRY]
        with np.load(self._folder / ARRAYS) as known:
            given = [known[f"argument{n}"] for n in range(len(known.files)) if f"argument{n}" in known.files]
            outputs = [known[f"output{n}"] for n in range(len(known.files)) if f"output{n}" in known.files]
        written = outputs_of(self._definition.module)
        return TensorCandidate(
            function, given, outputs, written, pack, self._tolerance, self._definition.threads
        )  # fmt: skip


class TensorCandidate:
    """A loaded candidate (a `hbtvm.tuning.measuring.program.Runnable`).

    `function`: the scheduled function.
    `given`, `outputs`, `written`: the program's arguments; expected outputs, and their positions.
    `pack`: turns the program's arguments into the function's; None if they are the same.
    """

    def __init__(
        self,
        function: Any,
        given: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        written: Sequence[int],
        pack: Pack | None,
        tolerance: float | None,
        threads: int,
    ) -> None:
        self._function, self._outputs, self._written = function, outputs, written
        values = list(given) if pack is None else list(pack(*given))
        # NaN and 77 are what no earlier candidate left in memory.
        for place in written:
            values[place] = np.full_like(values[place], np.nan if values[place].dtype.kind == "f" else 77)
        self._values = [tvm.runtime.tensor(np.ascontiguousarray(value)) for value in values]
        self._tolerance = tolerance
        # The processor time of one thread excludes other processes' turns.
        self._clock = time.thread_time if threads == 1 else time.perf_counter

    def check(self) -> str | None:
        """Compare the outputs with the reference; return None or a sentence on the difference."""
        self._function(*self._values)
        for number, (place, right) in enumerate(zip(self._written, self._outputs, strict=True)):
            result = self._values[place].numpy()
            if result.shape != right.shape:
                return f"output {number} has the shape {result.shape}; expected {right.shape}"
            relative = TOLERANCES.get(str(result.dtype), 0.0) if self._tolerance is None else self._tolerance
            with np.errstate(invalid="ignore"):
                off = np.abs(result.astype(np.float64) - right.astype(np.float64))
            off[(result == right) | (np.isnan(result) & np.isnan(right))] = 0
            finite = np.abs(right[np.isfinite(right)].astype(np.float64))
            differs = ~(off <= relative * finite.max(initial=0.0))
            if differs.any():
                worst = float(np.nanmax(off, initial=0))
                return f"{int(differs.sum()):,} of {off.size:,} elements differ, by up to {worst:.3g}"
        return None

    def run(self, number: int) -> float:
        """Return the seconds of a number of runs."""
        function, values, clock = self._function, self._values, self._clock
        start = clock()
        for _ in range(number):
            function(*values)
        return clock() - start
