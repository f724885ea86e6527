"""Messages between the tuner and its worker processes, and the kinds of failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hbtvm.schedules.space import Config

FAILURES = (
    "invalid",  # not a configuration of the space, or refused by the program
    "build",  # the program could not be made or compiled
    "build_timeout",
    "crash",  # the process died, or outgrew its memory
    "timeout",  # checking or measuring took too long
    "wrong_result",  # output differs from the reference
    "measure",  # loading or running raised an error, or gave no sensible time
)
"""Kinds of failed trial."""

LOST, NO_DEVICE = "lost", "no_device"
"""Failures of a fleet, not of a trial: the device went away, or none was available."""


@dataclass(frozen=True)
class Candidate:
    """One configuration of one program."""

    program: str
    payload: dict[str, Any]
    config: Config


@dataclass(frozen=True)
class Failure:
    """A failed trial: one of `FAILURES`, and a sentence for the user."""

    kind: str
    message: str

    @property
    def error(self) -> dict[str, str]:
        """The failure as a field of records."""
        return {"kind": self.kind, "message": self.message}


@dataclass(frozen=True)
class Timing:
    """How a candidate is timed.

    Attributes
    ----------
    repeats, most
        Fewest and most times reported.
    spread
        Relative uncertainty of the median that ends the repeats (see
        `hbtvm.tuning.measuring.repeat.uncertainty`).
    min_repeat
        Shortest duration of a repeat, well above the clock's resolution.
    cutoff
        Seconds per run above which one repeat suffices: the candidate has lost.
    goal
        Seconds per run of the best so far. Two repeats that are both a quarter slower suffice.
    patience
        Seconds after which no repeat starts.
    """

    repeats: int = 3
    most: int = 10
    spread: float = 0.01
    min_repeat: float = 0.02
    cutoff: float = float("inf")
    goal: float = float("inf")
    patience: float = 5.0


@dataclass(frozen=True)
class BuildJob:
    """Compile a candidate into a library."""

    candidate: Candidate
    library: str


@dataclass(frozen=True)
class MeasureJob:
    """Load a library, check it, and time it."""

    candidate: Candidate
    library: str
    timing: Timing


@dataclass(frozen=True)
class RemoteJob:
    """Load a library on a fleet's device, check it, and time it.

    Attributes
    ----------
    host, port, key
        The tracker, and the key of its devices.
    seconds
        Time limit on the device.
    hold
        Whether to keep the device for the worker's next job.
    """

    candidate: Candidate
    library: str
    timing: Timing
    host: str
    port: int
    key: str
    seconds: float
    hold: bool = False


Job = BuildJob | MeasureJob | RemoteJob


@dataclass(frozen=True)
class Ready:
    """The job's program is loaded, and the job's time starts now."""


@dataclass(frozen=True)
class Built:
    """A candidate was compiled.

    Attributes
    ----------
    seconds
        Processor time of the build, child compilers included; other load hardly changes it.
    fingerprint
        See `hbtvm.tuning.measuring.program.Program.build`.
    """

    seconds: float
    fingerprint: str | None


@dataclass(frozen=True)
class Measured:
    """A candidate was correct, and was timed.

    Attributes
    ----------
    seconds
        Time of loading, checking and timing.
    times
        Seconds per run of each repeat.
    waited
        Share of the running time spent waiting for a processor.
    """

    seconds: float
    times: tuple[float, ...]
    waited: float = 0.0


Reply = Built | Measured | Failure
