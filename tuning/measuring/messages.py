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
    """How a candidate is timed."""

    # `repeats`, `most`: fewest and most times reported
    repeats: int = 3
    most: int = 10
    # Relative uncertainty of the median that ends the repeats (see
    # `hbtvm.tuning.measuring.repeat.uncertainty`)
    spread: float = 0.01
    min_repeat: float = 0.02  # shortest duration of a repeat, well above the clock's resolution
    cutoff: float = float("inf")  # seconds per run above which one repeat suffices: the candidate has lost
    # Seconds per run of the best so far. Two repeats that are both a quarter slower suffice.
    goal: float = float("inf")
    patience: float = 5.0  # seconds after which no repeat starts


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
    """Load a library on a fleet's device, check it, and time it."""

    candidate: Candidate
    library: str
    timing: Timing
    # `host`, `port`, `key`: the tracker, and the key of its devices
    host: str
    port: int
    key: str
    seconds: float  # time limit on the device
    hold: bool = False  # whether to keep the device for the worker's next job


Job = BuildJob | MeasureJob | RemoteJob


@dataclass(frozen=True)
class Ready:
    """The job's program is loaded, and the job's time starts now."""


@dataclass(frozen=True)
class Built:
    """A candidate was compiled."""

    seconds: float  # processor time of the build, child compilers included; other load hardly changes it
    fingerprint: str | None  # see `hbtvm.tuning.measuring.program.Program.build`


@dataclass(frozen=True)
class Measured:
    """A candidate was correct, and was timed."""

    seconds: float  # time of loading, checking and timing
    times: tuple[float, ...]  # seconds per run of each repeat
    waited: float = 0.0  # share of the running time spent waiting for a processor


Reply = Built | Measured | Failure
