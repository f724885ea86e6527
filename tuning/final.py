"""The final: measure a group's fastest candidates again, interleaved.

The fastest of many noisy times is biased low. Interleaving spreads other load on the machine evenly over the
finalists, and their medians decide.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hbtvm.logs.store import LogError
from hbtvm.tuning.measuring.machine import BuiltLibrary, Machine
from hbtvm.tuning.measuring.messages import Failure, Timing
from hbtvm.tuning.result import Entry
from hbtvm.tuning.state import TaskState
from hbtvm.tuning.trials import Budget, Recorder, candidate


@dataclass(frozen=True)
class FinalOptions:
    """Options of finals."""

    # Most candidates of each group, winners of earlier finals not counted; below 2, there is no final
    finalists: int = 3
    margin: float = 1.3  # slowdown against the best beyond which third and later candidates are excluded
    rounds: int = 5  # measurements of each finalist
    share: float = 0.1  # largest share of the time budget reserved for the final

    def count(self, seconds: Sequence[float]) -> int:
        """Return the number of finalists for a group's times in rising order.

        The second candidate always takes part, because the first reading may be far too fast.
        """
        close = sum(time <= self.margin * seconds[0] for time in seconds[2 : self.finalists])
        return min(len(seconds), self.finalists, 2) + close

    def reserve(self, states: Sequence[TaskState], budget: Budget) -> float:
        """Return the seconds of the time budget to reserve; 0 without a limit."""
        if budget.remaining is None:
            return 0.0
        groups = len({state.task.group for state in states})
        # A measurement (check and reading) takes 0.1 to 0.2 seconds.
        each = 0.2 * (self.rounds + 1)
        return min(self.share * budget.seconds, groups * (self.finalists + 1) * each)


@dataclass
class _Finalist:
    state: TaskState
    entry: Entry
    library: BuiltLibrary
    times: list[float]
    waited: float = 0.0


class Final:
    """One run's final.

    `states`: the run's tasks.
    `incumbents`: candidates that always take part: winners of earlier finals, so that no new reading replaces
        them unchallenged, and groups' defaults, so that the search's gain is a ratio of times in turns.
    """

    def __init__(
        self,
        options: FinalOptions,
        states: Sequence[TaskState],
        incumbents: Sequence[tuple[TaskState, Entry]] = (),
    ) -> None:
        self._options = options
        self._states = states
        self._incumbents = incumbents
        self._id = uuid.uuid4().hex

    def play(self, machine: Machine, recorder: Recorder, budget: Budget, timing: Timing) -> None:
        """Measure the finalists in rounds until the rounds or the time are over.

        Records the rounds that all finalists of a group completed, also after an interrupt. Raises `LogError`
        if the log cannot be written; the run keeps all results.
        """
        finalists = self._enter(machine, budget, recorder)
        turn = replace(timing, repeats=1, most=1)
        try:
            for _ in range(self._options.rounds):
                for finalist in list(finalists):
                    if time.monotonic() >= budget.end:
                        return
                    config = finalist.entry.config
                    result = machine.measure(candidate(finalist.state, config), finalist.library, turn)
                    if isinstance(result, Failure):
                        # A candidate that fails sometimes must not win.
                        finalists.remove(finalist)
                        machine.discard(finalist.library)
                        recorder.add(finalist.state, config, final=self._id, error=result.error)
                    else:
                        finalist.times.extend(result.times)
                        finalist.waited = max(finalist.waited, result.waited)
        finally:
            for finalist in finalists:
                machine.discard(finalist.library)
            self._record(finalists, recorder)

    def _enter(self, machine: Machine, budget: Budget, recorder: Recorder) -> list[_Finalist]:
        """Choose the finalists and build those whose library was not kept."""
        chosen: list[tuple[TaskState, Entry]] = []
        if self._options.finalists > 1:
            for group in dict.fromkeys(state.task.group for state in self._states):
                chosen += self._chosen(group)
        built = machine.build([candidate(state, entry.config) for state, entry in chosen], budget.end)
        finalists = []
        for (state, entry), library in zip(chosen, built, strict=True):
            if isinstance(library, BuiltLibrary):
                finalists.append(_Finalist(state, entry, library, []))
            elif library is not None:
                recorder.add(state, entry.config, final=self._id, error=library.error)
        return finalists

    def _chosen(self, group: str) -> list[tuple[TaskState, Entry]]:
        """Return a group's finalists: the fastest, at least two if available, and the incumbents."""
        pairs = [
            (state, entry)
            for state in self._states
            if state.task.group == group
            for entry in state.entries()[: self._options.finalists]
        ]
        pairs.sort(key=lambda pair: pair[1].time)
        close = pairs[: self._options.count([entry.time for _, entry in pairs])]
        listed = {(state.index, state.task.space.encode(entry.config)) for state, entry in close}
        for state, entry in self._incumbents:
            key = state.index, state.task.space.encode(entry.config)
            if state.task.group == group and key not in listed:
                listed.add(key)
                close.append((state, entry))
        return close

    def _record(self, finalists: Sequence[_Finalist], recorder: Recorder) -> None:
        """Record the rounds that all finalists of a group completed."""
        failed: LogError | None = None
        for group in dict.fromkeys(finalist.state.task.group for finalist in finalists):
            rivals = [finalist for finalist in finalists if finalist.state.task.group == group]
            rounds = min(len(rival.times) for rival in rivals)
            for rival in rivals if rounds else []:
                marks = recorder.noise.note(rival.waited)
                times = tuple(rival.times[:rounds])
                try:
                    recorder.add(rival.state, rival.entry.config, final=self._id, marks=marks, times=times)
                except LogError as lost:
                    failed = lost
        if failed is not None:
            raise failed
