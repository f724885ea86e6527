"""Options of `hbtvm.search` and `hbtvm.compile`, checked before any work is done."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm import checks
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import DeviceError, InputError, InputTypeError
from hbtvm.logs.bounds import MOST_SIZE
from hbtvm.logs.store import Log
from hbtvm.runtime.cuda import driver
from hbtvm.schedules.workload import Target
from hbtvm.tuning.choices import ChoiceError, Choices, assembled

BATCH_SIZES = (1, 100, 10_000)
"""Batch sizes to tune for, unless told otherwise."""

TRIALS, TIME_BUDGET = 240, 100.0
"""What a search may take where neither is given: candidates, and seconds."""


def common_options(
    target: str | dict[str, Any],
    device: str | int | None,
    batch_sizes: int | Sequence[int],
    threads: int | None,
    dtype: str,
) -> tuple[Target, tuple[int, ...], int, int]:
    """Check what `search` and `compile` have in common; last comes the GPU's number."""
    expected = "whole numbers of rows in a list, such as [1, 100]"
    given = checks.several("batch_sizes", batch_sizes, (int, np.integer), expected)
    sizes = tuple(dict.fromkeys(checks.whole("a batch size", rows, 1, 100, MOST_SIZE) for rows in given))
    if not sizes:
        raise InputError(f"batch_sizes is empty; expected {expected}")
    if threads is not None:
        threads = checks.whole("threads", threads, 1, 2, checks.MOST_THREADS)
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype is {dtype!r}; expected 'float32' or 'float64'")
    if not isinstance(target, str | Mapping):
        raise InputTypeError(
            f"target is {target!r}; expected 'cpu', 'cuda' or a TVM target as a text or dict"
        )
    on_cpu = device in (None, "cpu")
    try:
        index = 0 if on_cpu else driver.device_index(device)  # type: ignore[arg-type]
    except DeviceError as error:
        raise InputError(str(error)) from None
    machine = resolve(target, index)
    if (machine["kind"] == "cuda" and device == "cpu") or not (machine["kind"] == "cuda" or on_cpu):
        raise InputError(
            f"the target is a {'GPU' if on_cpu else 'CPU'}, so it can't be on device {device!r}; name both, "
            f"as --target {'cpu' if on_cpu else 'cuda'} --device {device}"
        )
    if machine["kind"] == "cuda":
        if threads not in (None, 1):
            raise InputError(f"threads are the CPU's; a GPU needs one to be told what to do, not {threads}")
        threads = 1
    elif threads is None:
        threads = len(os.sched_getaffinity(0))
    return machine, sizes, threads, index


def search_limits(trials: int | None, time_budget: float | None, seed: int) -> tuple[int, float | None, int]:
    """Check what limits a search, and fill in what is not given."""
    seed = checks.whole("seed", seed, 0, 1)
    budget = None if time_budget is None else checks.seconds("time_budget", time_budget)
    if trials is not None:
        return checks.whole("trials", trials, 1, 100), budget, seed
    return (TRIALS, TIME_BUDGET, seed) if budget is None else (10**9, budget, seed)


def strategy_names(strategies: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Check the type of the strategies asked for; `tasks.usable` checks the names."""
    if strategies is None:
        return None
    expected = "names in a list, such as ['gemm', 'bitvector']"
    names = checks.several("strategies", strategies, str, expected)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputTypeError(f"strategies is {strategies!r}; expected {expected}")
    return names


def tuning_log(log: Log | str | os.PathLike[str] | None) -> Log | None:
    """The log to learn from and to add to, if any; its file is not looked at yet."""
    return log if isinstance(log, Log) or log is None else Log(checks.path("log", log))


def search_choices(preset: str, *, diversity: int | None, epsilon: float | None, **parts: Any) -> Choices:
    """The parts of a search by their names, checked; see `hbtvm.tuning.choices.assembled`."""
    if diversity is not None:
        diversity = checks.whole("diversity", diversity, 1, 8)
    if epsilon is not None:
        epsilon = checks.share("epsilon", epsilon)
    try:
        choices = assembled(preset, **parts, diversity=diversity, epsilon=epsilon)
        choices.require()
    except ChoiceError as error:
        raise InputError(str(error)) from None
    return choices
