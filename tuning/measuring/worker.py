"""The worker process, which builds and measures candidates that may crash it.

`hbtvm.tuning.measuring.worker_process` starts it with one end of a socket pair, which carries all replies;
candidates print to a file. It imports only this package's messages and the programs' modules.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection

from hbtvm.tuning.measuring.messages import (
    BuildJob,
    Built,
    Candidate,
    Failure,
    Job,
    Measured,
    MeasureJob,
    Ready,
    RemoteJob,
)
from hbtvm.tuning.measuring.program import InvalidConfigError, Program, resolve
from hbtvm.tuning.measuring.repeat import repeat, sentence
from hbtvm.tuning.measuring.start import start_without_torch

_PROGRAMS_KEPT = 8
_FILE_LIMIT = 2**30  # bytes; a candidate that prints forever must not fill the disk
_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int, module: str) -> None:
    """Serve jobs until the parent closes the connection.

    `descriptor`: file descriptor of the worker's end of the connection.
    `parent`: process id of the tuner; the worker ends with it.
    `module`: module to import before the first job, while the tuner is planning; "" for none.
    """
    _isolate(descriptor, parent)
    start_without_torch()
    with Connection(descriptor) as connection:
        if module:
            # The first job that needs the module reports an import error.
            with contextlib.suppress(Exception):
                importlib.import_module(module)
        connection.send(Ready())
        _serve(connection)


def _isolate(descriptor: int, parent: int) -> None:
    """Ignore signals to stop, end with the tuner, and limit the size of files."""
    # Ctrl-C, batch systems and systemd signal all processes of a job. A worker's death would count as the
    # candidate's crash; the tuner stops its workers by SIGKILL.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # A candidate's compiler must not keep the connection open after a crash.
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
            connection.send(Failure("build", f"the program could not be loaded: {sentence(error)}"))
            continue
        if isinstance(job, RemoteJob):
            from hbtvm.tuning.measuring import remote  # imports TVM's RPC

            connection.send(remote.measure(program, job, lambda: connection.send(Ready())))
            continue
        connection.send(Ready())
        if isinstance(job, BuildJob):
            connection.send(build(program, job))
        else:
            connection.send(measure(program, job))


def _program(candidate: Candidate, programs: dict[str, Program]) -> Program:
    """Return the candidate's program, cached if possible."""
    key = json.dumps([candidate.program, candidate.payload], sort_keys=True)
    program = programs.pop(key, None) or resolve(candidate.program)(candidate.payload)
    while len(programs) >= _PROGRAMS_KEPT:
        programs.pop(next(iter(programs)))  # least recently used
    programs[key] = program
    return program


def build(program: Program, job: BuildJob) -> Built | Failure:
    """Compile one candidate."""
    start = processor_seconds()
    try:
        fingerprint = program.build(job.candidate.config, job.library)
    except InvalidConfigError as error:
        return Failure("invalid", sentence(error))
    except Exception as error:
        return Failure("build", sentence(error))
    return Built(processor_seconds() - start, fingerprint)


def processor_seconds() -> float:
    """Return the processor time of this process and its finished children."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def measure(program: Program, job: MeasureJob) -> Measured | Failure:
    """Check one candidate and, if it is correct, time it."""
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
    # Threads that ended are no longer counted, so a difference may be negative.
    waited = delayed / (ran + delayed) if ran > 0 and delayed > 0 else 0.0
    return Measured(time.perf_counter() - start, times, waited)


def scheduled() -> tuple[float, float]:
    """Return the seconds that this process's threads ran, and waited for a processor; zeros if unknown."""
    ran = delayed = 0
    with contextlib.suppress(OSError, ValueError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/schedstat") as file:
                running, waiting, _ = file.read().split()
                ran, delayed = ran + int(running), delayed + int(waiting)
    return ran / 1e9, delayed / 1e9
