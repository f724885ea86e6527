"""A task with a known cost surface, and a runner that needs no processes."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from hbtvm.cost_model.encoding.nest import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Access,
    Loop,
    Nest,
    Statement,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.tuning.measuring.machine import BuiltLibrary, Machine
from hbtvm.tuning.measuring.messages import BuildJob, Built, Candidate, Failure, Measured, MeasureJob, Timing
from hbtvm.tuning.measuring.worker import build, measure
from hbtvm.tuning.result import Result
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from hbtvm.tuning.task import Task
from tests.fake_programs import Synthetic, cost

SPACE = Space(
    (
        Knob("a", tuple(2**i for i in range(12))),
        Knob("b", tuple(2**i for i in range(10))),
        Knob("c", tuple(2**i for i in range(8))),
        Knob("unroll", (False, True)),
    ),
    valid=lambda config: int(config["a"]) * int(config["b"]) <= 2**14,
)
START: Config = {"a": 1, "b": 1, "c": 1, "unroll": False}
BEST: Config = {"a": 64, "b": 4, "c": 8, "unroll": True}
TARGET = {"kind": "llvm", "num-cores": 2}


def loops(config: Config) -> Nest:
    """A tiled copy: enough for the features to tell configurations apart."""
    a, b, c = (int(config[name]) for name in "abc")
    unrolled = UNROLLED if config["unroll"] else SERIAL
    nest = (Loop(2**14 // (a * b), PARALLEL), Loop(c, SERIAL), Loop(b, unrolled), Loop(a, VECTORIZED))
    read = Access("x", 4, (a * b, a * b, a, 1))
    write = Access("out", 4, (a * b, 0, a, 1), store=True)
    return (Statement(nest, {"add": 1}, (read, write)),)


def task(
    name: str = "fast", *, group: str = "1000 rows", rows: int = 1000, space: Space = SPACE, **payload: Any
) -> Task:
    return Task(
        name=f"{name} {group}",
        workload={"rows": rows, "trees": 10},
        target=TARGET,
        strategy=name,
        group=group,
        space=space,
        describe=loops,
        program="tests.fake_programs:Synthetic",
        payload=payload,
        initial=(START,) if space is SPACE else (),
    )


class InProcess(Machine):
    """A runner as `hbtvm.tuning.measuring.pool.Pool`, without processes of its own.

    Parameters
    ----------
    before
        Called with each candidate before it is measured.
    noise
        Factor on the time of the n-th measurement.
    program
        Makes a program of a payload.
    """

    def __init__(
        self,
        before: Callable[[Candidate], None] = lambda candidate: None,
        noise: Callable[[int], float] = lambda n: 1.0,
        program: Callable[[dict[str, Any]], Any] = Synthetic,
    ) -> None:
        self._program = program
        self._folder = tempfile.TemporaryDirectory()
        self._before = before
        self._noise = noise
        self._built = 0
        self.measured: list[Config] = []
        self.closed = False

    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure | None]:
        return [self._build(candidate) for candidate in candidates]

    def _build(self, candidate: Candidate) -> BuiltLibrary | Failure:
        self._built += 1
        path = os.path.join(self._folder.name, f"{self._built}.so")
        reply = build(self._program(candidate.payload), BuildJob(candidate, path))
        return BuiltLibrary(path, reply.fingerprint) if isinstance(reply, Built) else reply

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        self._before(candidate)
        self.measured.append(candidate.config)
        reply = measure(self._program(candidate.payload), MeasureJob(candidate, library.path, timing))
        if isinstance(reply, Failure):
            return reply
        factor = self._noise(len(self.measured))
        return Measured(0.0, tuple(time * factor for time in reply.times))

    def discard(self, library: BuiltLibrary) -> None:
        os.remove(library.path)

    def close(self) -> None:
        self.closed = True
        assert os.listdir(self._folder.name) == []
        self._folder.cleanup()


def trials_to(history: Sequence[Any], goal: float) -> float:
    """Return the number of trials until a time of at most `goal`; infinity if there is none."""
    return next((i + 1 for i, record in enumerate(history) if record.cost <= goal), math.inf)


def optimum() -> float:
    """Return the seconds of the best configuration."""
    return cost(BEST)


def run(*tasks: Any, trials: int = 60, machine: InProcess | None = None, **more: Any) -> Result:
    """Search in this process, with no experience where none is given."""
    more.setdefault("experience", [])
    return tune(tasks or [task()], Settings(trials=trials, **more), machine or InProcess())


def winner(result: Result, group: str = "1000 rows") -> tuple[str, Config, float]:
    """Strategy, configuration and seconds of a group's best."""
    best = result.groups[group].best
    assert best is not None
    return best.task.strategy, best.config, best.time


def configs(result: Result) -> list[Config]:
    """What was tried, in order; finals aside."""
    return [dict(record.config) for record in result.history if not record.extra]
