"""The process that builds and measures candidates, and may die of it.

It is started by `tuning.process` with one end of a socket pair, over which all answers
go: whatever a candidate prints lands in a file. It imports nothing but this package's
messages and the modules of the programs that it is told to run.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import math
import os
import resource
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from tuning.messages import (
    BuildJob,
    Built,
    Candidate,
    Failure,
    Job,
    Measured,
    MeasureJob,
    Ready,
    RemoteJob,
    Timing,
)
from tuning.program import InvalidConfigError, Program, Runnable, resolve

_PROGRAMS_KEPT = 8
_FILE_LIMIT = 2**30  # bytes; a candidate that prints without end must not fill the disk
_MOST_RUNS = 10**8
_CLEARLY = 1.25
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int, module: str) -> None:
    """Serve jobs until the parent hangs up.

    Parameters
    ----------
    descriptor
        File descriptor of this process's end of the connection.
    parent
        Process id of the tuner.
    module
        Imported before the first job, while the tuner is still planning; "" for none.
    """
    _isolate(descriptor, parent)
    with Connection(descriptor) as connection:
        if module:
            # A module that cannot be imported is reported by the first job that needs it.
            with contextlib.suppress(Exception):
                importlib.import_module(module)
        connection.send(Ready())
        _serve(connection)


def _isolate(descriptor: int, parent: int) -> None:
    """Make sure that this process outlives neither its parent nor its welcome."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Compilers that a candidate starts must not hold the line open after a crash.
    os.set_inheritable(descriptor, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = _FILE_LIMIT if hard == resource.RLIM_INFINITY else min(hard, _FILE_LIMIT)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os.killpg(0, signal.SIGKILL)


def _serve(connection: Connection) -> None:
    programs: dict[str, Program] = {}
    while True:
        try:
            job: Job = connection.recv()
        except (EOFError, OSError):
            return
        try:
            program = _program(job.candidate, programs)
        except Exception as error:
            connection.send(Failure("build", f"the program could not be made: {sentence(error)}"))
            continue
        if isinstance(job, RemoteJob):
            from tuning import remote  # which needs TVM's RPC; other workers do without

            connection.send(remote.measure(program, job, lambda: connection.send(Ready())))
            continue
        connection.send(Ready())
        if isinstance(job, BuildJob):
            connection.send(build(program, job))
        else:
            connection.send(measure(program, job))


def _program(candidate: Candidate, programs: dict[str, Program]) -> Program:
    """Program of a candidate, from those made before where possible."""
    key = json.dumps([candidate.program, candidate.payload], sort_keys=True)
    program = programs.pop(key, None) or resolve(candidate.program)(candidate.payload)
    while len(programs) >= _PROGRAMS_KEPT:
        programs.pop(next(iter(programs)))  # the one used longest ago
    programs[key] = program
    return program


def build(program: Program, job: BuildJob) -> Built | Failure:
    """Compile one candidate."""
    start = time.perf_counter()
    try:
        fingerprint = program.build(job.candidate.config, job.library)
    except InvalidConfigError as error:
        return Failure("invalid", sentence(error))
    except Exception as error:
        return Failure("build", sentence(error))
    return Built(time.perf_counter() - start, fingerprint)


def measure(program: Program, job: MeasureJob) -> Measured | Failure:
    """Check and time one candidate. A wrong one is not timed at all."""
    start = time.perf_counter()
    try:
        runnable = program.load(job.candidate.config, job.library)
        difference = runnable.check()
        if difference is not None:
            return Failure("wrong_result", difference)
        ran, delayed = scheduled()
        times = repeat(runnable, job.timing)
        ran, delayed = scheduled()[0] - ran, scheduled()[1] - delayed
    except Exception as error:
        return Failure("measure", sentence(error))
    # Threads that ended take their share with them, so that a difference may be negative.
    waited = delayed / (ran + delayed) if ran > 0 and delayed > 0 else 0.0
    return Measured(time.perf_counter() - start, times, waited)


def repeat(
    runnable: Runnable, timing: Timing, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, ...]:
    """Time a candidate until its time is certain enough, giving up early on one that has lost.

    The first run warms caches up and is not reported, unless it alone took longer than
    three times the cutoff.

    Raises
    ------
    ValueError
        If the program reports a time that is not a positive number.
    """
    start = clock()
    total = _run(runnable, 1)
    if total > 3 * timing.cutoff:
        return (total,)
    number, total = 1, _run(runnable, 1)
    while total < timing.min_repeat and number < _MOST_RUNS:
        # A tenth more than needed, but never a leap that trusts one short reading.
        growth = 1.1 * timing.min_repeat / total if total > 0 else math.inf
        number = min(math.ceil(number * min(growth, 100)), _MOST_RUNS)
        total = _run(runnable, number)
    times = [total / number]
    while not _enough(times, timing) and clock() - start < timing.patience:
        times.append(_run(runnable, number) / number)
    if min(times) <= 0:
        raise ValueError("running it takes no time")
    return tuple(times)


def _enough(times: list[float], timing: Timing) -> bool:
    """Whether another time would change nothing that matters."""
    if times[0] > timing.cutoff or len(times) >= timing.most:
        return True
    if len(times) > 1 and min(times) > _CLEARLY * timing.goal:
        return True
    return len(times) >= timing.repeats and uncertainty(times) <= timing.spread


def uncertainty(times: list[float]) -> float:
    """How far the median of some times may be off, relative to it: a robust standard error.

    Half of the distance between the quartiles, over the root of their number: unlike the standard
    deviation, it is not moved by a single interruption, of which the median takes no notice either.
    """
    if len(times) < 2:
        return math.inf
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / 2 / median / math.sqrt(len(times)) if median > 0 else math.inf


def scheduled() -> tuple[float, float]:
    """Seconds that this process's threads ran, and that they waited for a processor; zeros if unknown."""
    ran = delayed = 0
    with contextlib.suppress(OSError, ValueError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/schedstat") as file:
                one, other, _ = file.read().split()
                ran, delayed = ran + int(one), delayed + int(other)
    return ran / 1e9, delayed / 1e9


def _run(runnable: Runnable, number: int) -> float:
    total = float(runnable.run(number))
    if not (math.isfinite(total) and total >= 0):
        raise ValueError(f"it reports {total} seconds")
    return total


def sentence(error: Exception) -> str:
    """An error as one line of at most 500 characters; its end tells most in TVM's reports."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " / ".join(lines[-3:])
    return f"{type(error).__name__}: {text[-500:]}"
