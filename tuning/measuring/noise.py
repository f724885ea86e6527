"""Notice other load on the machine while candidates are measured.

Two signs: a candidate waited for a processor (read from the scheduler), or a reference candidate, measured
every so often, became slower (which also shows a slower clock, a busy host and shared caches).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hbtvm.tuning.measuring.machine import Attempt, Machine
from hbtvm.tuning.measuring.messages import Failure, Measured, Timing


@dataclass(frozen=True)
class NoiseOptions:
    """When a machine counts as busy."""

    every: int = 24  # trials between two measurements of the reference; 0 for none
    drift: float = 1.15  # the reference's time relative to its best from which the machine counts as busy
    # Share of a candidate's time spent waiting for a processor from which the machine counts as busy
    waiting: float = 0.1


class NoiseMonitor:
    """Watches one run's machine.

    `marks`: fields to add to records: ``drift`` while the reference is slower than before.
    """

    def __init__(self, options: NoiseOptions) -> None:
        self.marks: dict[str, float] = {}
        self._options = options
        self._attempt: Attempt | None = None
        self._best = 0.0
        self._next = 0
        self._marked = self._measured = 0
        self._worst_wait, self._worst_drift = 0.0, 1.0

    def adopt(self, attempt: Attempt, result: Measured | Failure, trial: int) -> bool:
        """Offer a candidate as the reference; True if it was taken, with its library."""
        if not self._options.every or self._attempt is not None:
            return False
        if isinstance(result, Failure) or len(result.times) < 2:
            return False
        self._attempt = attempt
        self._best = statistics.median(result.times)
        self._next = trial + self._options.every
        return True

    def check(self, machine: Machine, timing: Timing, trial: int) -> None:
        """Measure the reference if it is due."""
        if self._attempt is None or trial < self._next:
            return
        self._next = trial + self._options.every
        # The fastest of three, so that a single interruption is not drift.
        three = replace(timing, repeats=3, most=3)
        result = machine.measure(self._attempt.candidate, self._attempt.library, three)
        if not isinstance(result, Measured):
            self.close(machine)
            return
        seconds = min(result.times)
        self._best = min(self._best, seconds)
        drift = seconds / self._best
        self.marks = {"drift": round(drift, 3)} if drift >= self._options.drift else {}
        self._worst_drift = max(self._worst_drift, drift)

    def note(self, waited: float) -> dict[str, Any]:
        """Count a measurement, and return the marks of its record."""
        self._measured += 1
        marks: dict[str, Any] = dict(self.marks)
        if waited >= self._options.waiting:
            marks["waited"] = round(waited, 3)
            self._worst_wait = max(self._worst_wait, waited)
        self._marked += bool(marks)
        return marks

    @property
    def warning(self) -> str:
        """A sentence on the run's noise; empty if there was none."""
        if not self._marked:
            return ""
        signs = []
        if self._worst_wait:
            signs.append(f"candidates waited up to {self._worst_wait:.0%} of their time for a processor")
        if self._worst_drift >= self._options.drift:
            signs.append(f"a reference took up to {self._worst_drift:.2f} times as long as before")
        return (
            f"the machine was busy with something else during {self._marked:,} of {self._measured:,} "
            f"measurements ({', '.join(signs)}); their times may be too long, and their records are marked"
        )

    def close(self, machine: Machine) -> None:
        """Discard the reference."""
        if self._attempt is not None:
            machine.discard(self._attempt.library)
        self._attempt = None


def busy(marks: Mapping[str, Any]) -> str:
    """Describe marks for progress displays; empty for none."""
    words = []
    if "waited" in marks:
        words.append(f"waited {marks['waited']:.0%} of the time for a processor")
    if "drift" in marks:
        words.append(f"{marks['drift']:.2f} times slower than before")
    return "the machine is busy: " + ", ".join(words) if words else ""
