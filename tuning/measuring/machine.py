"""The interface of what builds and measures candidates (MetaSchedule's builder and runner)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing


@dataclass(frozen=True)
class BuiltLibrary:
    """A candidate that was built."""

    path: str  # the shared library; `Machine.discard` removes it
    fingerprint: str | None  # see `hbtvm.tuning.measuring.program.Program.build`
    seconds: float = 0.0  # processor time of the build; 0 if unknown


class RunnerError(RuntimeError):
    """No device can measure any more; the message is one sentence for the user."""


@dataclass(frozen=True, eq=False)
class Attempt:
    """A measurement to be made."""

    candidate: Candidate
    library: BuiltLibrary
    timing: Timing


class Machine(ABC):
    """Builds and measures candidates.

    `hbtvm.tuning.measuring.pool.Pool` does both on this machine; `hbtvm.tuning.measuring.fleet.Fleet` builds
    here and measures on many devices. MetaSchedule's `LocalBuilder`, `LocalRunner` and `RPCRunner` neither
    check a candidate's output, nor limit its memory, nor stop timing a slow candidate early.
    """

    @property
    def parallel(self) -> bool:
        """Whether `measure_all` uses several devices."""
        return False

    @abstractmethod
    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure | None]:
        """Build candidates in parallel; None for builds not started by `until` (a `time.monotonic` time)."""

    @abstractmethod
    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        """Check and time one candidate while nothing else runs."""

    def measure_all(self, attempts: Iterator[Attempt]) -> Iterator[tuple[Attempt, Measured | Failure]]:
        """Measure each attempt once a device is free, and yield it when it is done."""
        for attempt in attempts:
            yield attempt, self.measure(attempt.candidate, attempt.library, attempt.timing)

    @abstractmethod
    def discard(self, library: BuiltLibrary) -> None:
        """Delete a library that the caller no longer needs."""

    @abstractmethod
    def close(self) -> None:
        """Stop all processes and delete all libraries."""
