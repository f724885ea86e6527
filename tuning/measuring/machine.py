"""Who builds and who measures candidates: the interfaces, as MetaSchedule has them, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing


@dataclass(frozen=True)
class BuiltLibrary:
    """A candidate that was built.

    Attributes
    ----------
    path
        The shared library; `Builder.discard` removes it.
    fingerprint
        See `hbtvm.tuning.measuring.program.Program.build`.
    seconds
        Processor time that building took; 0 where unknown.
    """

    path: str
    fingerprint: str | None
    seconds: float = 0.0


class RunnerError(RuntimeError):
    """Nothing can be measured any more; the message is one sentence for the user."""


@dataclass(frozen=True, eq=False)
class Attempt:
    """A measurement to be made."""

    candidate: Candidate
    library: BuiltLibrary
    timing: Timing


class Builder(Protocol):
    """Compiles candidates."""

    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure | None]:
        """Build candidates; None for those not begun at `until` (as `time.monotonic` counts)."""
        ...

    def discard(self, library: BuiltLibrary) -> None:
        """Forget a library."""
        ...


class Runner(Protocol):
    """Runs what a `Builder` has built."""

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        """Check and time one candidate, with nothing else running."""
        ...


@runtime_checkable
class ParallelRunner(Runner, Protocol):
    """Measures on several devices at once."""

    def measure_all(self, attempts: Iterator[Attempt]) -> Iterator[tuple[Attempt, Measured | Failure]]:
        """Check and time candidates, each taken when a device is free for it, and told when done."""
        ...


class Machine(Builder, Runner, Protocol):
    """Builds and measures candidates.

    `hbtvm.tuning.measuring.pool.Pool` does so on this machine; `hbtvm.tuning.measuring.fleet.Fleet` builds
    here and measures on many.
    """

    def close(self) -> None:
        """End everything that was started."""
        ...
