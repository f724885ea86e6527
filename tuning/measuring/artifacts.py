"""The libraries of a group's fastest candidates, kept so that nobody builds a winner again.

A search builds its winner once. The final measures that very library, and a package can hold it: what was
timed is then what runs, to the byte. Only a few for each group are kept, in the machine's own folder.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hbtvm.schedules.space import Config
from hbtvm.tuning.measuring.machine import Attempt, BuiltLibrary, Machine, ParallelRunner
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing
from hbtvm.tuning.measuring.program import OBJECT
from hbtvm.tuning.task import Task

KEPT = 6
"""Libraries kept for each group; a final has fewer candidates."""


@dataclass
class _Kept:
    group: str
    library: BuiltLibrary
    seconds: float


class Artifacts:
    """Libraries worth keeping, of one run.

    Parameters
    ----------
    kept
        How many for each group.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._most = kept
        self._groups: dict[str, str] = {}
        self._kept: dict[str, _Kept] = {}
        self._contents: dict[str, bytes] = {}
        self._objects: dict[str, bytes] = {}

    def over(self, machine: Machine, tasks: Sequence[Task]) -> Machine:
        """A machine that does what another does, but builds nothing again that is kept here."""
        for task in tasks:
            self._groups[_key(Candidate(task.program, task.payload, {}))] = task.group
        if isinstance(machine, ParallelRunner):
            return _ParallelKeeper(self, machine, machine)
        return _Keeper(self, machine)

    def library(self, task: Task, config: Config) -> bytes | None:
        """The built library of a candidate, once the run is over; None if it was not kept."""
        return self._contents.get(_key(Candidate(task.program, task.payload, config)))

    def object(self, task: Task, config: Config) -> bytes:
        """What the library of a candidate was linked from; empty if nothing was kept."""
        return self._objects.get(_key(Candidate(task.program, task.payload, config)), b"")

    def find(self, candidate: Candidate) -> BuiltLibrary | None:
        """The library of a candidate, while the run goes on."""
        found = self._kept.get(_key(candidate))
        return found.library if found else None

    def offer(self, candidate: Candidate, library: BuiltLibrary, seconds: float) -> list[BuiltLibrary]:
        """Keep a library if it is among the fastest of its group.

        Returns
        -------
        Those that are no longer kept.
        """
        group = self._groups.get(_key(Candidate(candidate.program, candidate.payload, {})))
        if group is None:
            return []
        self._kept[_key(candidate)] = _Kept(group, library, seconds)
        rivals = [(one.seconds, key) for key, one in self._kept.items() if one.group == group]
        return [self._kept.pop(key).library for _, key in sorted(rivals)[self._most :]]

    def holds(self, library: BuiltLibrary) -> bool:
        """Whether a library is kept."""
        return any(one.library.path == library.path for one in self._kept.values())

    def forget(self, candidate: Candidate) -> None:
        """Keep a candidate no longer, as it failed."""
        self._kept.pop(_key(candidate), None)

    def collect(self) -> list[BuiltLibrary]:
        """Read what is kept, for `library` and `object` to tell; the files are needed no longer."""
        for key, one in self._kept.items():
            with contextlib.suppress(OSError):
                self._contents[key] = Path(one.library.path).read_bytes()
                self._objects[key] = Path(one.library.path + OBJECT).read_bytes()
        done = [one.library for one in self._kept.values()]
        self._kept.clear()
        return done


class _Keeper:
    """A machine that keeps libraries; those that others still hold are left to them."""

    def __init__(self, artifacts: Artifacts, machine: Machine) -> None:
        self._artifacts, self._machine = artifacts, machine
        self._held: Counter[str] = Counter()

    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure | None]:
        """Build what is not kept (see `Machine`)."""
        results: list[BuiltLibrary | Failure | None] = [self._artifacts.find(one) for one in candidates]
        missing = [number for number, one in enumerate(results) if one is None]
        if missing:
            built = self._machine.build([candidates[number] for number in missing], until)
            for number, library in zip(missing, built, strict=True):
                results[number] = library
        self._held.update(one.path for one in results if isinstance(one, BuiltLibrary))
        return results

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        """Check and time one candidate (see `Machine`)."""
        return self._noted(candidate, library, self._machine.measure(candidate, library, timing))

    def _noted(
        self, candidate: Candidate, library: BuiltLibrary, result: Measured | Failure
    ) -> Measured | Failure:
        if isinstance(result, Measured):
            for one in self._artifacts.offer(candidate, library, statistics.median(result.times)):
                self._remove(one)
        else:
            self._artifacts.forget(candidate)
        return result

    def discard(self, library: BuiltLibrary) -> None:
        """Delete a library's file, unless it is kept (see `Machine`)."""
        self._held[library.path] -= 1
        self._remove(library)

    def _remove(self, library: BuiltLibrary) -> None:
        if self._held[library.path] <= 0 and not self._artifacts.holds(library):
            self._machine.discard(library)

    def close(self) -> None:
        """End everything, once what is kept has been read (see `Machine`)."""
        for library in self._artifacts.collect():
            self._machine.discard(library)
        self._machine.close()


class _ParallelKeeper(_Keeper):
    """The same over several devices."""

    def __init__(self, artifacts: Artifacts, machine: Machine, devices: ParallelRunner) -> None:
        super().__init__(artifacts, machine)
        self._devices = devices

    def measure_all(self, attempts: Iterator[Attempt]) -> Iterator[tuple[Attempt, Measured | Failure]]:
        """Check and time candidates (see `ParallelRunner`)."""
        for attempt, result in self._devices.measure_all(attempts):
            yield attempt, self._noted(attempt.candidate, attempt.library, result)


def _key(candidate: Candidate) -> str:
    return json.dumps([candidate.program, candidate.payload, candidate.config], sort_keys=True)
