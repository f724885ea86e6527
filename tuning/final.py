"""The final: a group's fastest candidates measured anew, side by side.

A search takes the luckiest of many noisy times for the best. Here the few fastest take
turns, so that whatever disturbs the machine disturbs all of them, and their medians decide.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hbtvm.tuning.measuring.messages import Failure, Timing
from hbtvm.tuning.measuring.pool import BuiltLibrary, Runner
from hbtvm.tuning.result import Entry
from hbtvm.tuning.state import TaskState
from hbtvm.tuning.trials import Budget, Recorder, candidate, error


@dataclass(frozen=True)
class FinalOptions:
    """How the final goes.

    Attributes
    ----------
    finalists
        Most candidates of each group.
    margin
        Candidates slower than the best by more than this factor do not take part.
    rounds
        How often each finalist has its turn.
    share
        Largest share of the time budget that is kept for the final.
    """

    finalists: int = 3
    margin: float = 1.3
    rounds: int = 5
    share: float = 0.1

    def reserve(self, states: Sequence[TaskState], budget: Budget) -> float:
        """Seconds of a time budget to leave to the final; 0 where there is no limit."""
        if budget.remaining is None:
            return 0.0
        groups = len({state.task.group for state in states})
        # A turn takes about as long as a check and a reading: a tenth of a second or two.
        return min(self.share * budget.seconds, 0.2 * groups * self.finalists * (self.rounds + 1))


@dataclass
class _Finalist:
    state: TaskState
    entry: Entry
    library: BuiltLibrary
    times: list[float]
    waited: float = 0.0


class Final:
    """One run's final.

    Parameters
    ----------
    options
        How it goes.
    states
        The run's tasks.
    """

    def __init__(self, options: FinalOptions, states: Sequence[TaskState]) -> None:
        self._options = options
        self._states = states
        self._rankings: dict[str, list[Entry]] = {}

    def ranking(self, group: str) -> list[Entry]:
        """A group's finalists, the winner first; empty where no final was held."""
        return list(self._rankings.get(group, []))

    def play(self, runner: Runner, recorder: Recorder, budget: Budget, timing: Timing) -> None:
        """Measure the finalists in turns until the rounds, or the time, are over.

        Raises
        ------
        LogError
            If a result cannot be written.
        """
        finalists = self._enter(runner, budget, recorder)
        turn = replace(timing, repeats=1, most=1)
        try:
            for _ in range(self._options.rounds):
                for finalist in list(finalists):
                    if time.monotonic() >= budget.end:
                        return
                    config = finalist.entry.config
                    result = runner.measure(candidate(finalist.state, config), finalist.library, turn)
                    if isinstance(result, Failure):
                        # It worked before, but what fails now and then is no winner.
                        finalists.remove(finalist)
                        runner.discard(finalist.library)
                        recorder.add(finalist.state, config, final=True, error=error(result))
                    else:
                        finalist.times.extend(result.times)
                        finalist.waited = max(finalist.waited, result.waited)
        finally:
            for finalist in finalists:
                runner.discard(finalist.library)
            self._rank(finalists)
        for finalist in finalists:
            if finalist.times:
                times = tuple(finalist.times)
                marks = recorder.noise.note(finalist.waited)
                recorder.add(finalist.state, finalist.entry.config, final=True, marks=marks, times=times)

    def _enter(self, runner: Runner, budget: Budget, recorder: Recorder) -> list[_Finalist]:
        """Choose the finalists, and build them again."""
        chosen: list[tuple[TaskState, Entry]] = []
        for group in dict.fromkeys(state.task.group for state in self._states):
            pairs = [
                (state, entry)
                for state in self._states
                if state.task.group == group
                for entry in state.entries()[: self._options.finalists]
            ]
            pairs.sort(key=lambda pair: pair[1].time)
            close = [pair for pair in pairs if pair[1].time <= self._options.margin * pairs[0][1].time]
            if len(close) > 1:
                chosen += close[: self._options.finalists]
        built = runner.build([candidate(state, entry.config) for state, entry in chosen], budget.end)
        finalists = []
        for (state, entry), library in zip(chosen, built, strict=True):
            if isinstance(library, BuiltLibrary):
                finalists.append(_Finalist(state, entry, library, []))
            elif library is not None:
                recorder.add(state, entry.config, final=True, error=error(library))
        return finalists

    def _rank(self, finalists: Sequence[_Finalist]) -> None:
        """Order each group by what its finalists' common rounds say."""
        for group in {finalist.state.task.group for finalist in finalists}:
            rivals = [finalist for finalist in finalists if finalist.state.task.group == group]
            rounds = min(len(rival.times) for rival in rivals)
            if rounds == 0:
                continue
            entries = []
            for rival in rivals:
                times = tuple(rival.times[:rounds])
                entries.append(replace(rival.entry, time=statistics.median(times), times=times))
            self._rankings[group] = sorted(entries, key=lambda entry: entry.time)
