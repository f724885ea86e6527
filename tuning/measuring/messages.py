"""What the tuner and its worker processes say to each other, and how trials fail."""

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
"""Failures of a fleet, which are no failed trials: a device went away, or none was to be had."""


@dataclass(frozen=True)
class Candidate:
    """One configuration of one program."""

    program: str
    payload: dict[str, Any]
    config: Config


@dataclass(frozen=True)
class Failure:
    """Why a trial gave no time: one of `FAILURES`, and one sentence for the user."""

    kind: str
    message: str

    @property
    def error(self) -> dict[str, str]:
        """The same in the form that records have."""
        return {"kind": self.kind, "message": self.message}


@dataclass(frozen=True)
class Timing:
    """How a candidate is timed.

    Attributes
    ----------
    repeats, most
        Fewest and most times reported.
    spread
        Uncertainty of their median, relative to it, at which they are enough (see
        `hbtvm.tuning.measuring.repeat.uncertainty`).
    min_repeat
        Seconds that each of them must cover, so that the clock's grain does not show.
    cutoff
        Seconds per run above which the first time is enough: the candidate has lost.
    goal
        Seconds per run of the best so far. Two times that are both longer by a quarter are
        enough: however unlucky they were, this is not the next best.
    patience
        Seconds after which no further repeat is begun.
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
    """Load a library on a device of a fleet, check it there, and time it.

    Attributes
    ----------
    host, port, key
        The tracker, and which of its devices to ask for.
    seconds
        What the device may take.
    hold
        Whether to keep the device for this worker's next job.
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
    """Sent when the program of a job is at hand, so that its time starts counting now."""


@dataclass(frozen=True)
class Built:
    """A candidate was compiled.

    Attributes
    ----------
    seconds
        Processor time that it took, of compilers that were started, too; it hardly depends on what else runs.
    fingerprint
        As `hbtvm.tuning.measuring.program.Program.build` gives it.
    """

    seconds: float
    fingerprint: str | None


@dataclass(frozen=True)
class Measured:
    """A candidate was right, and took this long.

    Attributes
    ----------
    seconds
        For everything: loading, checking, timing.
    times
        Seconds per run, one for each repeat.
    waited
        Share of its running time that it was ready to run, but waited for a processor.
    """

    seconds: float
    times: tuple[float, ...]
    waited: float = 0.0


Reply = Built | Measured | Failure
