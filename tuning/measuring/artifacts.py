"""Keep the libraries of each group's fastest candidates, so that a winner is built once.

The final measures the library that the search built, and a package can hold it: the code that was timed is
the code that runs, to the byte.
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
from hbtvm.tuning.measuring.machine import Attempt, BuiltLibrary, Machine
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing
from hbtvm.tuning.measuring.program import OBJECT
from hbtvm.tuning.task import Task

KEPT = 6  # libraries kept for each group; more than a final's candidates


@dataclass
class _Kept:
    group: str
    library: BuiltLibrary
    seconds: float


class Artifacts:
    """The libraries that one run keeps.

    `kept`: libraries kept for each group.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._most = kept
        self._groups: dict[str, str] = {}
        self._kept: dict[str, _Kept] = {}
        self._contents: dict[str, bytes] = {}
        self._objects: dict[str, bytes] = {}

    def over(self, machine: Machine, tasks: Sequence[Task]) -> Machine:
        """Wrap a machine so that it builds no kept library again."""
        for task in tasks:
            self._groups[_key(Candidate(task.program, task.payload, {}))] = task.group
        return _Keeper(self, machine)

    def library(self, task: Task, config: Config) -> bytes | None:
        """Return the library of a candidate after the run; None if it was not kept."""
        return self._contents.get(_key(Candidate(task.program, task.payload, config)))

    def object(self, task: Task, config: Config) -> bytes:
        """Return the object of a candidate's library; empty if it was not kept."""
        return self._objects.get(_key(Candidate(task.program, task.payload, config)), b"")

    def find(self, candidate: Candidate) -> BuiltLibrary | None:
        """Return the library of a candidate during the run; None if it is not kept."""
        kept = self._kept.get(_key(candidate))
        return kept.library if kept else None

    def offer(self, candidate: Candidate, library: BuiltLibrary, seconds: float) -> list[BuiltLibrary]:
        """Keep a library if it is among the fastest of its group; return those no longer kept."""
        group = self._groups.get(_key(Candidate(candidate.program, candidate.payload, {})))
        if group is None:
            return []
        self._kept[_key(candidate)] = _Kept(group, library, seconds)
        rivals = [(kept.seconds, key) for key, kept in self._kept.items() if kept.group == group]
        return [self._kept.pop(key).library for _, key in sorted(rivals)[self._most :]]

    def holds(self, library: BuiltLibrary) -> bool:
        """Whether a library is kept."""
        return any(kept.library.path == library.path for kept in self._kept.values())

    def forget(self, candidate: Candidate) -> None:
        """Stop keeping a candidate, because it failed."""
        self._kept.pop(_key(candidate), None)

    def collect(self) -> list[BuiltLibrary]:
        """Read the kept files into memory, for `library` and `object`; return the libraries to delete."""
        for key, kept in self._kept.items():
            with contextlib.suppress(OSError):
                self._contents[key] = Path(kept.library.path).read_bytes()
                self._objects[key] = Path(kept.library.path + OBJECT).read_bytes()
        done = [kept.library for kept in self._kept.values()]
        self._kept.clear()
        return done


class _Keeper(Machine):
    """A machine that doesn't delete kept libraries, or libraries that another caller still uses."""

    def __init__(self, artifacts: Artifacts, machine: Machine) -> None:
        self._artifacts, self._machine = artifacts, machine
        self._held: Counter[str] = Counter()

    @property
    def parallel(self) -> bool:
        return self._machine.parallel

    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure | None]:
        results: list[BuiltLibrary | Failure | None] = [
            self._artifacts.find(candidate) for candidate in candidates
        ]
        missing = [number for number, library in enumerate(results) if library is None]
        if missing:
            built = self._machine.build([candidates[number] for number in missing], until)
            for number, library in zip(missing, built, strict=True):
                results[number] = library
        self._held.update(library.path for library in results if isinstance(library, BuiltLibrary))
        return results

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        result = self._machine.measure(candidate, library, timing)
        self._note(candidate, library, result)
        return result

    def measure_all(self, attempts: Iterator[Attempt]) -> Iterator[tuple[Attempt, Measured | Failure]]:
        for attempt, result in self._machine.measure_all(attempts):
            self._note(attempt.candidate, attempt.library, result)
            yield attempt, result

    def _note(self, candidate: Candidate, library: BuiltLibrary, result: Measured | Failure) -> None:
        if isinstance(result, Measured):
            for dropped in self._artifacts.offer(candidate, library, statistics.median(result.times)):
                self._remove(dropped)
        else:
            self._artifacts.forget(candidate)

    def discard(self, library: BuiltLibrary) -> None:
        self._held[library.path] -= 1
        self._remove(library)

    def _remove(self, library: BuiltLibrary) -> None:
        if self._held[library.path] <= 0 and not self._artifacts.holds(library):
            self._machine.discard(library)

    def close(self) -> None:
        for library in self._artifacts.collect():
            self._machine.discard(library)
        self._machine.close()


def _key(candidate: Candidate) -> str:
    return json.dumps([candidate.program, candidate.payload, candidate.config], sort_keys=True)
