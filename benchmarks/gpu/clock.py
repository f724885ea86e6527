"""Three times of a call on a GPU, taken in the same way of each library.

A call may return before the device is done, and may use a stream of its own. An event of the default stream
comes after all that was queued in it and in other streams that synchronize with it (all that are created by
default, and each thread's own), so the libraries' work is covered without knowing their streams. Of few rows,
queued calls take what their libraries need to queue one: the device then waits for the host.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.memory import Event

KINDS = {
    "queued": "events around calls that are queued one behind the other, for each call; rows on the device",
    "waited": "wall clock of a call that is waited for, rows on the device",
    "host": "wall clock of a call from numpy to numpy, both copies included",
}
"""The times, in the order of tables, and what each one is."""


@dataclass(frozen=True)
class Calls:
    """What is timed.

    Attributes
    ----------
    device
        Predicts for rows that are on the device, to an array there; may return before that is done.
    host
        Predicts from numpy to numpy.
    """

    device: Callable[[], Any]
    host: Callable[[], np.ndarray]


_SECONDS = 0.02
"""A reading takes so many calls that it lasts about that long."""

_MOST_CALLS = 1000
"""Most calls of a reading: a stream holds about so many launches before the host has to wait."""


class Clock:
    """Times calls on one device.

    Parameters
    ----------
    gpu
        The device, on which the libraries work, too.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        with gpu.current():
            self._first, self._last = Event(gpu, timed=True), Event(gpu, timed=True)

    def seconds(self, kind: str, call: Callable[[], Any]) -> float:
        """Return the seconds of one call, as one of `KINDS`, the mean of as many as a reading takes."""
        run = {"queued": self._queued, "waited": self._waited, "host": self._by_wall_clock}[kind]
        once = run(call, 1)
        number = max(1, min(_MOST_CALLS, math.ceil(_SECONDS / max(once, 1e-7))))
        return run(call, number) / number

    def _queued(self, call: Callable[[], Any], number: int) -> float:
        with self._gpu.current():
            self._first.record(None)
            for _ in range(number):
                call()
            self._last.record(None)
            return self._last.seconds_since(self._first)

    def _waited(self, call: Callable[[], Any], number: int) -> float:
        def waited() -> None:
            call()
            self._last.record(None)
            self._last.wait()

        with self._gpu.current():
            return self._by_wall_clock(waited, number)

    def _by_wall_clock(self, call: Callable[[], Any], number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            call()
        return time.perf_counter() - start


def medians(clock: Clock, calls: Mapping[str, Calls], rounds: int) -> dict[str, dict[str, float]]:
    """Return seconds by kind of time and name: medians over interleaved rounds."""
    times: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        readings: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, one in calls.items():
                readings[name].append(clock.seconds(kind, one.host if kind == "host" else one.device))
        times[kind] = {name: statistics.median(values) for name, values in readings.items()}
    return times
