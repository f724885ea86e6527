"""Measure a candidate in a worker, on a device of a TVM RPC tracker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hbtvm.tuning.measuring.messages import LOST, NO_DEVICE, Failure, Measured, RemoteJob
from hbtvm.tuning.measuring.program import Program
from hbtvm.tuning.measuring.repeat import repeat, sentence

_held: dict[tuple[str, int, str], Any] = {}  # sessions held from one job to the next
_HOLD = 900.0  # time limit of a held session; a final takes less


def measure(program: Program, job: RemoteJob, ready: Callable[[], None]) -> Measured | Failure:
    """Check and time one candidate on a device of the fleet.

    `program`: has ``load_remote(config, library_path, session)``,
        `hbtvm.tuning.measuring.program.Program.load` on a `tvm.rpc.RPCSession`.
    `job`: the candidate and the tracker.
    `ready`: called once the tracker has lent a device.
    Failures of kind `NO_DEVICE` and `LOST` are not the candidate's.
    """
    place = job.host, job.port, job.key
    session = _held.pop(place, None)
    if session is None:
        try:
            session = _connect(job)
        except Exception as error:
            return Failure(NO_DEVICE, sentence(error))
    ready()
    start = time.perf_counter()
    try:
        load: Callable[..., Any] = program.load_remote  # type: ignore[attr-defined]
        runnable = load(job.candidate.config, job.library, session)
        difference = runnable.check()
        if difference is not None:
            return Failure("wrong_result", difference)
        result = Measured(time.perf_counter() - start, repeat(runnable, job.timing))
    except Exception as error:
        if "RPCSessionTimeoutError" in str(error):
            return Failure("timeout", "it took too long on the device")
        return Failure("measure" if _alive(session) else LOST, sentence(error))
    if job.hold:
        _held[place] = session
    return result


def _connect(job: RemoteJob) -> Any:
    from tvm import rpc

    tracker = rpc.connect_tracker(job.host, job.port)
    timeout = _HOLD if job.hold else job.seconds
    # The server expects whole seconds.
    return tracker.request(job.key, session_timeout=max(1, round(timeout)), max_retry=1)


def _alive(session: Any) -> bool:
    """Whether the device answers."""
    try:
        session.get_function("tvm.rpc.server.workpath")("")
    except Exception:
        return False
    return True
