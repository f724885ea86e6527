"""Time the best schedules and PyTorch in turns, in one process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import side_by_side
from benchmarks.tensor_programs.workloads import Workload
from hbtvm import tuning
from hbtvm.compiler.targets.target import tvm_target
from hbtvm.programs.computation import outputs_of, samples

Call = Callable[[], Any]

TURN = 0.02  # seconds of a turn
TURNS = 15  # turns of each peer
REST = 0.25  # seconds before a turn of several threads: PyTorch's spin for 0.2 after a call


@dataclass(frozen=True)
class Times:
    """Median seconds of each peer's run."""

    workload: str
    threads: int
    seconds: dict[str, float]
    trials: dict[str, int]


def task_of(workload: Workload, threads: int) -> tuning.TensorTask:
    """Return the search task of a workload."""
    return tuning.tensor_task(
        workload.program, workload.args, constants=workload.constants, threads=threads, name=workload.name
    )


def compare(workload: Workload, threads: int, log: Path, database: Path) -> Times:
    """Time the peers in turns; those that were not searched are left out.

    Raises `ValueError` if PyTorch's output differs.
    """
    task = task_of(workload, threads)
    module = task.definition.module
    arrays = samples(module)
    peers: dict[str, Call] = {}
    best = tuning.best(task, log)
    written = outputs_of(module)
    peers["hbtvm"] = bound(best.function, best.pack(*arrays))
    expected = best.run(*(array for place, array in enumerate(arrays) if place not in written))
    trials = {"hbtvm": len({json.dumps(r.config, sort_keys=True) + r.strategy for r in _records(task, log)})}
    if database.exists():
        from benchmarks.tensor_programs import metaschedule

        target = target_fields(task)
        found = metaschedule.best(workload, target, threads, database)
        if found is not None:
            function, shapes = found
            rng = np.random.default_rng(0)
            peers["MetaSchedule"] = bound(
                function, [rng.standard_normal(shape).astype(dtype) for shape, dtype in shapes]
            )
            trials["MetaSchedule"] = metaschedule.records(database)
    import torch

    from benchmarks.tensor_programs.torch_peer import calls

    with torch.inference_mode():
        first = expected[0] if isinstance(expected, tuple) else expected
        for name, call in calls(workload, arrays, threads).items():
            _agree(call().numpy(), first, f"{workload.name}, {name}")
            peers[f"PyTorch, {name}"] = call
        alone = threads == 1
        seconds = side_by_side(
            peers,
            seconds=TURN * TURNS,
            rounds=TURNS,
            clock=time.thread_time if alone else time.perf_counter,
            rest=0.0 if alone else REST,
        )
    return Times(workload.name, threads, seconds, trials)


def target_fields(task: tuning.TensorTask) -> dict[str, Any]:
    """Return the fields of TVM's target of a task."""
    exported = tvm_target(task.target).export()
    return {key: _plain(exported[key]) for key in ("kind", "mcpu", "mattr") if key in exported}


def _plain(value: Any) -> Any:
    return [str(part) for part in value] if not isinstance(value, str) else str(value)


def _records(task: tuning.TensorTask, log: Path) -> list[Any]:
    from hbtvm.logs.record import canonical
    from hbtvm.logs.store import Log

    key = canonical(task.workload)
    return [record for record in Log(log).read().records if record.workload_key == key]


def _agree(result: np.ndarray, expected: np.ndarray, name: str) -> None:
    off = float(np.abs(result.reshape(expected.shape) - expected).max())
    if not off <= 1e-4 * float(np.abs(expected).max()):
        raise ValueError(f"{name} differs by {off:.3g}")


def bound(function: Any, arrays: list[np.ndarray]) -> Call:
    """Return a call of a scheduled function on arrays, packed if its layouts are."""
    from tvm import runtime

    values = [runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
    return lambda: function(*values)
