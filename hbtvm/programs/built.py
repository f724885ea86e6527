"""Scheduled programs, built: what a search returns."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import runtime

from hbtvm.errors import InputError
from hbtvm.logs.record import Record
from hbtvm.programs.computation import ENTRY, outputs_of
from hbtvm.programs.task import Pack, TensorTask
from hbtvm.programs.worker import compiled, set_threads
from hbtvm.schedules.space import Config
from hbtvm.tuning.result import Result


@dataclass(frozen=True, eq=False)
class Built:
    """A tensor program with the schedule of one configuration.

    Attributes
    ----------
    task
        The program.
    strategy, config
        Its space and its configuration.
    """

    task: TensorTask
    strategy: str
    config: Config

    @property
    def mod(self) -> Any:
        """The scheduled `tvm.IRModule`; its function ``main`` takes packed constants (see `pack`)."""
        return self._scheduled[0]

    @functools.cached_property
    def library(self) -> Any:
        """The compiled module; ``library["main"]`` is the function, ``export_library`` writes it."""
        set_threads(self.task.definition.threads)
        return compiled(self.mod, self.task.definition)

    @property
    def function(self) -> Any:
        """The compiled function, which takes a `tvm.runtime.Tensor` for each parameter."""
        return self.library[ENTRY]

    def pack(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Turn the program's arguments, outputs included, into those of `function`.

        Pack constants once, and keep the result.
        """
        packing = self._scheduled[1]
        return list(arrays) if packing is None else list(packing(*arrays))

    def run(self, *inputs: np.ndarray) -> Any:
        """Return the output for numpy arrays, or a tuple of outputs; for checks, since it packs each time.

        Raises `InputError` if the arrays do not have the program's shapes and dtypes.
        """
        written = outputs_of(self.task.definition.module)
        known = self.task.arguments
        wanted = [argument for place, argument in enumerate(known) if place not in written]
        passed = [(array.shape, str(array.dtype)) for array in inputs]
        if passed != wanted:
            raise InputError(f"the program takes arrays of {wanted}, not {passed}")
        rest = iter(inputs)
        arrays = [
            np.zeros(shape, dtype) if place in written else next(rest)
            for place, (shape, dtype) in enumerate(known)
        ]
        values = [runtime.tensor(np.ascontiguousarray(array)) for array in self.pack(*arrays)]
        self.function(*values)
        outputs = tuple(values[place].numpy() for place in written)
        return outputs[0] if len(outputs) == 1 else outputs

    @functools.cached_property
    def _scheduled(self) -> tuple[Any, Pack | None]:
        return self.task.scheduled(self.strategy, self.config)


@dataclass(frozen=True, eq=False)
class Best(Built):
    """The fastest schedule that a search measured.

    Attributes
    ----------
    seconds
        Median seconds of a run: of the final, or of the search without one.
    record
        Its record in the log.
    result
        The whole search: trials, failures, history of records, warnings; None for a log's best.
    """

    seconds: float
    record: Record
    result: Result | None


def built(task: TensorTask, strategy: str, config: Config) -> Built:
    """Return a program with the schedule of a configuration, e.g. of a record.

    Raises `InputError` if there is no such strategy, or its space lacks the configuration.
    """
    task.scheduled(strategy, config)
    return Built(task, strategy, dict(config))
