"""Build here, and measure in parallel on the devices of a TVM RPC tracker.

A worker process measures a candidate (see `hbtvm.tuning.measuring.remote`): it asks the tracker for a device
and gives it back, so that other users get their turns, each candidate finds fresh memory, and a device that
hangs blocks only that worker.

Another device repeats a measurement whose device was lost. A candidate that loses two devices counts as
having crashed them.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from hbtvm.tuning.measuring.machine import Attempt, BuiltLibrary, Machine, RunnerError
from hbtvm.tuning.measuring.messages import LOST, NO_DEVICE, Candidate, Failure, Measured, RemoteJob, Timing
from hbtvm.tuning.measuring.pool import Pool, PoolOptions
from hbtvm.tuning.measuring.worker_process import Limits, Worker

_LOOK = 1.0  # seconds for which the tracker's number of devices is cached

_GLANCE = 0.25

_GRACE = 10.0  # seconds beyond its limit after which a silent device counts as lost

_ONCE = Timing(repeats=1, most=1, min_repeat=0.0, patience=0.0)


@dataclass(frozen=True)
class FleetOptions:
    """Which devices to use, and their limits."""

    # `host`, `port`: address of the tracker
    host: str
    port: int
    key: str  # key of the devices, which should be of one kind
    # Whether to run each candidate here first. A crash ends TVM's server for good, so rehearse wherever this
    # machine can run the candidates.
    rehearse: bool = True
    patience: float = 30.0  # seconds without any device after which the run ends
    limits: Limits = field(default_factory=lambda: Limits(measure=30.0))  # limits of each measurement


class Fleet(Machine):
    """Builds here, and measures on a tracker's devices.

    `programs`, `pool`: as for `hbtvm.tuning.measuring.pool.Pool`, which builds.
    Raises `RunnerError` if the tracker cannot be reached, or has no such device.
    """

    def __init__(
        self, options: FleetOptions, programs: Sequence[str] = (), pool: PoolOptions | None = None
    ) -> None:
        self._options = options
        self._seen, self._devices = -_LOOK, 0
        where = f"the RPC tracker at {options.host}:{options.port}"
        try:
            keys = registered(options.host, options.port)
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            raise RunnerError(f"{where} does not answer: {reason}") from error
        if not keys[options.key]:
            others = ", ".join(f"{key} ({number})" for key, number in sorted(keys.items())) or "none at all"
            raise RunnerError(
                f"{where} has no device with key {options.key!r} (it has: {others}); start one there with "
                f"python -m tvm.exec.rpc_server --tracker {options.host}:{options.port} --key {options.key}"
            )
        self._module = programs[0].partition(":")[0] if programs else ""
        self._pool = Pool(programs, pool)
        allowed = options.limits.measure + _GRACE
        self._limits = Limits(
            options.limits.start, options.limits.build, allowed, options.limits.memory, options.limits.jobs
        )
        self._workers: list[Worker] = []

    @property
    def parallel(self) -> bool:
        return True

    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure | None]:
        """Build candidates in parallel, and rehearse them here if asked to."""
        built = self._pool.build(candidates, until)
        if not self._options.rehearse:
            return built
        return [
            self._rehearsed(candidate, result) if isinstance(result, BuiltLibrary) else result
            for candidate, result in zip(candidates, built, strict=True)
        ]

    def _rehearsed(self, candidate: Candidate, library: BuiltLibrary) -> BuiltLibrary | Failure:
        result = self._pool.measure(candidate, library, _ONCE)
        if isinstance(result, Measured):
            return library
        self._pool.discard(library)
        return result

    def measure_all(self, attempts: Iterator[Attempt]) -> Iterator[tuple[Attempt, Measured | Failure]]:
        """Measure on all devices in parallel.

        Raises `RunnerError` if no device is left.
        """
        at_work: dict[Worker, Attempt] = {}
        again: deque[Attempt] = deque()
        losses: Counter[Attempt] = Counter()
        heard, ended = time.monotonic(), False
        try:
            while True:
                while len(at_work) < self.devices and (again or not ended):
                    attempt = again.popleft() if again else next(attempts, None)
                    if attempt is None:
                        ended = True
                        break
                    worker = self._idle(at_work)
                    worker.submit(self._job(attempt))
                    at_work[worker] = attempt
                if not at_work and ended and not again:
                    return
                if at_work:
                    _wait(list(at_work))
                else:
                    time.sleep(_GLANCE)
                for worker, attempt in list(at_work.items()):
                    reply = worker.poll()
                    if reply is None and not worker.ready and not self.devices:
                        worker.kill()  # it would wait for a device
                        reply = Failure(NO_DEVICE, "the last device is gone")
                    if reply is None:
                        continue
                    del at_work[worker]
                    result = self._judge(reply, attempt, losses)
                    if result is None:
                        again.append(attempt)
                    else:
                        heard = time.monotonic()
                        yield attempt, result
                # Busy workers have a device, or a limit on waiting for one.
                if not at_work and time.monotonic() - heard > self._options.patience:
                    raise self._alone()
        finally:
            for worker in at_work:
                worker.kill()

    def _judge(self, reply: object, attempt: Attempt, losses: Counter[Attempt]) -> Measured | Failure | None:
        """Return the result of a candidate; None to try it again."""
        assert isinstance(reply, Measured | Failure)
        if isinstance(reply, Measured) or reply.kind not in (LOST, NO_DEVICE):
            return reply
        self._seen = -_LOOK  # ask the tracker again
        if reply.kind == LOST:
            losses[attempt] += 1
            if losses[attempt] > 1:
                return Failure("crash", f"two devices were lost while they ran it: {reply.message}")
        return None

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        """Check and time one candidate for a final: all calls use the same device while it lives."""
        worker = self._idle({})
        attempt = Attempt(candidate, library, timing)
        losses: Counter[Attempt] = Counter()
        start = time.monotonic()
        try:
            while time.monotonic() - start < self._options.patience + self._limits.measure:
                worker.submit(self._job(attempt, hold=True))
                while (reply := worker.poll()) is None:
                    _wait([worker])
                result = self._judge(reply, attempt, losses)
                if result is not None:
                    return result
                time.sleep(_GLANCE)
        except BaseException:
            worker.kill()
            raise
        raise self._alone()

    @property
    def devices(self) -> int:
        """Devices registered with the tracker, busy devices included."""
        if time.monotonic() - self._seen >= _LOOK:
            self._seen = time.monotonic()
            self._devices = 0
            # An unreachable tracker counts as having none; it may come back.
            with contextlib.suppress(OSError, ValueError):
                self._devices = registered(self._options.host, self._options.port)[self._options.key]
        return self._devices

    def discard(self, library: BuiltLibrary) -> None:
        """Delete a library."""
        self._pool.discard(library)

    def close(self) -> None:
        """Stop the workers with their sessions, and delete all libraries."""
        for worker in self._workers:
            worker.close()
        self._pool.close()

    def _job(self, attempt: Attempt, hold: bool = False) -> RemoteJob:
        options = self._options
        place = options.host, options.port, options.key
        return RemoteJob(
            attempt.candidate, attempt.library.path, attempt.timing, *place, options.limits.measure, hold
        )

    def _idle(self, at_work: dict[Worker, Attempt]) -> Worker:
        for worker in self._workers:
            if worker not in at_work:
                return worker
        self._workers.append(Worker(self._limits, self._module))
        return self._workers[-1]

    def _alone(self) -> RunnerError:
        where = f"{self._options.host}:{self._options.port}"
        return RunnerError(f"no device with key {self._options.key!r} is left at the RPC tracker {where}")


def registered(host: str, port: int, timeout: float = 5.0) -> Counter[str]:
    """Return the tracker's number of devices by key.

    Raises `OSError` if it cannot be reached. Raises `ValueError` if something else listens there.
    """
    from tvm.rpc import base

    with socket.create_connection((host, port), timeout) as connection:
        connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        if struct.unpack("<i", base.recvall(connection, 4))[0] != base.RPC_TRACKER_MAGIC:
            raise ValueError("it is not an RPC tracker")
        base.sendjson(connection, [base.TrackerCode.SUMMARY])
        code, summary = base.recvjson(connection)
        if code != base.TrackerCode.SUCCESS:
            raise ValueError("it gives no summary")
    listed: list[dict[str, Any]] = summary["server_info"]
    return Counter(str(server["key"]).removeprefix("server:") for server in listed)


def _wait(workers: Sequence[Worker]) -> None:
    """Sleep until a worker may have replied."""
    patience = min(worker.remaining for worker in workers)
    wait([worker.connection for worker in workers], min(patience, _GLANCE))
