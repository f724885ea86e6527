"""The tuning loop (AutoTVM, algorithm 1) over many tasks, within one budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hbtvm.logs.query import contrast, shipped
from hbtvm.logs.record import Record
from hbtvm.logs.store import LogError
from hbtvm.schedules.space import Config
from hbtvm.tuning.build_cost import out_of_proportion
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.database import Database
from hbtvm.tuning.explorers.create import create
from hbtvm.tuning.final import Final
from hbtvm.tuning.interrupts import NotedInterrupt
from hbtvm.tuning.learning.learner import Learner
from hbtvm.tuning.learning.settling import Settling
from hbtvm.tuning.learning.threads import one_thread
from hbtvm.tuning.learning.transfer import seeds
from hbtvm.tuning.measuring.machine import BuiltLibrary, Machine, RunnerError
from hbtvm.tuning.measuring.noise import NoiseMonitor
from hbtvm.tuning.measuring.pool import Pool
from hbtvm.tuning.outcome import group_results, incumbents
from hbtvm.tuning.planning import spread
from hbtvm.tuning.result import Entry, Result, WallClock
from hbtvm.tuning.settings import Settings
from hbtvm.tuning.state import TaskState
from hbtvm.tuning.task import Task
from hbtvm.tuning.task_scheduler import TaskScheduler
from hbtvm.tuning.trials import Budget, Recorder, candidate, try_batch

_TURN = 8  # fewest trials of a task from which its gain is extrapolated (see `hbtvm.tuning.task_scheduler`)


def tune(tasks: Sequence[Task], settings: Settings, machine: Machine | None = None) -> Result:
    """Find the fastest configuration for each group of tasks.

    Each group's default is measured first. While the next candidates build, the global cost model is trained:
    these are the tasks' other initial configurations and the best ones of similar workloads in the log.
    Batches then go to the tasks that promise most (`hbtvm.tuning.task_scheduler`). A final measures each
    group's fastest candidates again, in turns, and picks the winner.

    `tasks`: what to tune. Each task has its own combination of workload, target and strategy. The first
        initial configuration of a group's first task is the group's default.
    `settings`: how to search.
    `machine`: builds and measures, closed at the end; by default, a `Pool`.
    Raises `ValueError` if a task has no knobs, a workload or target that is not JSON, or an initial
    configuration outside its space; if two tasks share their records; or if a choice needs a library that is
    not installed. Raises `LogError` if the log cannot be read. The result holds later errors of the log.
    """
    return _Session(tasks, settings).run(machine)


def plan(tasks: Sequence[Task], settings: Settings) -> list[tuple[Task, Config]]:
    """Choose candidates to measure on another machine, best first (see `hbtvm.tuning.planning`).

    Errors are those of `tune`.
    """
    return _Session(tasks, settings).plan()


def packaged(choices: Choices) -> list[Record]:
    """Return the shipped records: winners and, for searches that learn, random candidates."""
    return [*shipped(), *(contrast() if choices.learns else ())]


class _Session:
    """One call of `tune` or `plan`."""

    def __init__(self, tasks: Sequence[Task], settings: Settings) -> None:
        self._settings = settings
        choices = settings.choices
        choices.require()
        self._scheduler = TaskScheduler(max(_TURN, settings.batch))
        self._clock = WallClock()
        *generators, self._rng = np.random.default_rng(settings.seed).spawn(len(tasks) + 1)
        self._states = [
            TaskState(i, task, create(choices, task.space, generators[i])) for i, task in enumerate(tasks)
        ]
        self._owners = dict(zip(_check(tasks), self._states, strict=True))
        self.database = Database(settings.log, self._owners)
        self._others: list[Record] = []
        if settings.transfer:
            experience = packaged(choices) if settings.experience is None else settings.experience
            self._others = [*experience, *self.database.foreign]
        self._resumed = sum(len(state.measured) for state in self._states)
        self._budget = Budget(settings.trials, settings.time_budget)
        self._lost = ""
        self._left: list[str] = []
        self._overheads: dict[str, tuple[float, float]] = {}
        self._settling = Settling(settings.enough)
        self._noise = NoiseMonitor(settings.noise)
        self._interrupt = NotedInterrupt()
        self._recorder = Recorder(
            self._states, self._budget, self.database, settings.progress, settings.stamp, self._noise
        )
        self._learns = choices.learns
        self._learner = Learner(tasks, choices, settings.make_model, settings.make_scorer)

    def run(self, machine: Machine | None) -> Result:
        """Search, measure the final and summarise, also after an interrupt or a failing log or device."""
        stopped, log_error = "trials", None
        settings = self._settings
        if machine is None:
            machine = Pool([state.task.program for state in self._states], settings.pool)
        machine = settings.artifacts.over(machine, [state.task for state in self._states])
        with self._interrupt:
            try:
                stopped = self._search(machine)
                champions = [*incumbents(self._owners, self.database.resumed), *self._measured_defaults()]
                with self._clock.spend("measuring"):
                    final = Final(settings.final, self._states, champions)
                    final.play(machine, self._recorder, self._budget, settings.timing)
            except KeyboardInterrupt:
                stopped = "interrupted"
            except LogError as error:
                stopped, log_error = "log", error
            except RunnerError as error:
                stopped, self._lost = "devices", str(error)
            finally:
                self._noise.close(machine)
                machine.close()
        self._clock.total = self._budget.elapsed
        return Result(
            groups=group_results(self._owners, self.database.records),
            history=self.database.history,
            trials=self._recorder.trials,
            resumed=self._resumed,
            failures=self._recorder.failures,
            seconds=self._clock,
            stopped=stopped,
            log_error=log_error,
            warnings=self._warnings(),
            overheads=self._overheads,
            settled=self._settling.gains,
        )

    def plan(self) -> list[tuple[Task, Config]]:
        """Choose as many candidates as the budget has trials, without measuring any."""
        self._teach()
        with one_thread():
            chosen = spread(self._states, [*self._guesses(), *self._probes()], self._budget.trials)
        return [(state.task, config) for state, config in chosen]

    def _teach(self) -> None:
        """Train the cost model on other workloads' records and those of this run so far."""
        if not self._learns:
            return
        with one_thread():
            if self._settings.describe is not None and self._others:
                self._learner.learn_from(self._others, self._settings.describe)
            for state in self._states:
                self._learn(state, list(state.records.values()))
            self._train()

    def _search(self, machine: Machine) -> str:
        """Spend the budget; return why it ended."""
        self._budget.reserve = self._settings.final.reserve(self._states, self._budget)
        new = [(state, config) for state, config in self._defaults() if not state.knows(config)]
        defaults = new[: max(self._budget.trials - self._recorder.trials, 0)]
        if defaults:
            self._measure(machine, defaults)
        self._leave_overheads(machine)
        if self._overheads and all(state.exhausted for state in self._states):
            return "overhead"
        with self._clock.spend("planning"):
            guesses = self._guesses()
        taught = False
        while True:
            self._interrupt.check()
            left = self._budget.trials - self._recorder.trials
            if left <= 0:
                return "trials"
            if self._budget.over:
                return "time"
            if not guesses and not taught:
                with self._clock.spend("training"):
                    self._teach()
                taught, guesses = True, self._probes()
            with self._clock.spend("planning"), one_thread():
                if guesses:
                    chosen, guesses = guesses[: self._settings.batch], guesses[self._settings.batch :]
                else:
                    chosen = self._plan(min(self._settings.batch, left))
            if not chosen:
                return "settled" if self._settling.gains else "exhausted"
            if taught:
                self._try(machine, chosen[:left])
            else:
                self._try(machine, chosen[:left], self._teach)
                taught, guesses = True, [*self._probes(), *guesses]

    def _defaults(self) -> list[tuple[TaskState, Config]]:
        """Return each group's default."""
        first: dict[str, TaskState] = {}
        for state in self._states:
            first.setdefault(state.task.group, state)
        return [(state, state.task.initial[0]) for state in first.values() if state.task.initial]

    def _measured_defaults(self) -> list[tuple[TaskState, Entry]]:
        """Return the defaults that worked."""
        points = [(state, state.task.space.encode(config)) for state, config in self._defaults()]
        records = [(state, state.records[point]) for state, point in points if point in state.records]
        return [(state, state.entry(record)) for state, record in records if record.times]

    def _leave_overheads(self, machine: Machine) -> None:
        """Drop groups whose calls are nearly all overhead (see `hbtvm.tuning.settings.Settings`)."""
        if self._settings.overheads is None or self._budget.over:
            return
        fastest: dict[str, tuple[TaskState, Entry]] = {}
        for state in self._states:
            for entry in state.entries()[:1]:
                group = state.task.group
                if group not in fastest or entry.time < fastest[group][1].time:
                    fastest[group] = state, entry
        with self._clock.spend("building"):
            candidates = [candidate(state, entry.config) for state, entry in fastest.values()]
            built = machine.build(candidates, self._budget.search_end)
        ready = {
            group: (entry, library)
            for (group, (_, entry)), library in zip(fastest.items(), built, strict=True)
            if isinstance(library, BuiltLibrary)
        }
        try:
            with self._clock.spend("measuring"):
                calls = self._settings.overheads(ready)
        finally:
            for _, library in ready.values():
                machine.discard(library)
        self._overheads = {group: (ready[group][0].time, seconds) for group, seconds in calls.items()}
        for state in self._states:
            state.exhausted |= state.task.group in calls

    def _guesses(self) -> list[tuple[TaskState, Config]]:
        """Return first guesses, best first, each task in turn."""
        queues: list[list[Config]] = []
        # A tested global model is worth more than a second workload's winner.
        taught = self._learns and self._settings.describe is not None and self._others and not self._resumed
        count = min(1, self._settings.seeds) if taught else self._settings.seeds
        open_ = [state for state in self._states if not state.exhausted]
        for state in open_:
            queue: list[Config] = []
            for config in [*seeds(state.task, self._others, count), *state.task.initial]:
                if config not in queue and not state.knows(config):
                    queue.append(config)
            queues.append(queue)
        longest = max(map(len, queues), default=0)
        pairs = list(zip(open_, queues, strict=True))
        return [(state, queue[i]) for i in range(longest) for state, queue in pairs if i < len(queue)]

    def _probes(self) -> list[tuple[TaskState, Config]]:
        """Return candidates that test the global model: its best prediction and a random candidate.

        Without them a wrong global model costs a batch or two of its predictions. All tasks share one cost
        model, so one task suffices. A task that was measured needs no prediction.
        """
        state = next((state for state in self._states if not state.exhausted), None)
        if state is None or not self._learner.taught or self._resumed:
            return []
        with self._clock.spend("planning"), one_thread():
            configs = list(state.task.space.sample(self._rng, 1))
            if self._settings.seeds and not state.measured:
                configs = [*state.explorer.propose(1, state.measured), *configs]
        return [(state, config) for config in configs if not state.knows(config)]

    def _plan(self, count: int) -> list[tuple[TaskState, Config]]:
        """Pick a task and a batch of its candidates; empty if all spaces are exhausted."""
        if self._learns:
            count = min(count, self._learner.wanted or count)
        while True:
            index = self._scheduler.next([state.standing for state in self._states])
            if index is None:
                return []
            state = self._states[index]
            configs = state.explorer.propose(count, state.measured)
            if configs and not (self._learns and self._leaves(state, configs)):
                return [(state, config) for config in configs]
            state.exhausted = True

    def _leaves(self, state: TaskState, configs: Sequence[Config]) -> bool:
        """Leave a task's group if the model expects too little of another batch (see `Settling`)."""
        left = self._settling.leaves(state, configs, self._states, self._learner)
        for rival in self._states:
            rival.exhausted |= left and rival.task.group == state.task.group
        return left

    def _try(
        self,
        machine: Machine,
        chosen: list[tuple[TaskState, Config]],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Measure a batch and learn from it; `meanwhile` as in `hbtvm.tuning.trials.try_batch`."""
        done = self._measure(machine, chosen, meanwhile)
        if not self._learns:
            return
        with self._clock.spend("training"), one_thread():
            for state in self._states:
                self._learn(state, [record for owner, record in done if owner is state])
            self._train()

    def _measure(
        self,
        machine: Machine,
        chosen: list[tuple[TaskState, Config]],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[tuple[TaskState, Record]]:
        """Measure a batch, and return its records."""
        for state in {state.index: state for state, _ in chosen}.values():
            state.begin_batch()
        with self._clock.spend("measuring"):
            self._noise.check(machine, self._settings.timing, self._recorder.trials)
        settings = self._settings
        done = try_batch(
            machine,
            chosen,
            self._recorder,
            self._budget,
            self._clock,
            settings.timing,
            settings.slow,
            meanwhile,
        )
        self._leave_expensive()
        return done

    def _leave_expensive(self) -> None:
        """Drop tasks whose candidates compile disproportionately long.

        A group keeps such tasks until another of its tasks has a working candidate.
        """
        expensive = [self._states[i] for i in out_of_proportion([state.builds for state in self._states])]
        for state in expensive:
            served = any(
                math.isfinite(rival.best)
                for rival in self._states
                if rival.task.group == state.task.group and rival not in expensive
            )
            if served and not state.exhausted:
                state.exhausted = True
                cheapest = min(state.builds)
                took = f"{cheapest:.0f} s" if math.isfinite(cheapest) else "longer than allowed"
                self._left.append(
                    f"{state.task.name} was left after {len(state.builds)} builds: each took {took} or more, "
                    "many times as long as the others'"
                )

    def _learn(self, state: TaskState, records: Sequence[Record]) -> None:
        configs = [dict(record.config) for record in records]
        self._learner.add(state.index, configs, [record.cost for record in records])

    def _train(self) -> None:
        self._learner.fit()
        for state in self._states:
            state.explorer.update(self._learner.score(state.index))

    def _warnings(self) -> list[str]:
        known = (self._lost, *self._left, self._noise.warning, *self.database.notes)
        warnings = [text for text in known if text]
        count = self._learner.failures
        if count:
            times = "once" if count == 1 else f"{count} times"
            why = self._learner.warning
            warnings.append(f"the cost model failed {times} ({why}); candidates were drawn at random")
        return warnings


def _check(tasks: Sequence[Task]) -> list[tuple[str, str, str]]:
    """Return the log keys of the tasks; errors as in `tune`."""
    keys: list[tuple[str, str, str]] = []
    for task in tasks:
        if not task.space.knobs:
            raise ValueError(f"task {task.name!r} has no knobs: there is nothing to tune")
        for config in task.initial:
            if not task.space.contains(config):
                raise ValueError(f"initial configuration {config} of task {task.name!r} is not in its space")
        probe = Record(
            workload=task.workload, target=task.target, strategy=task.strategy, config={}, times=(1.0,)
        )
        probe.to_line()  # reject non-JSON workloads now, not after the first trial
        if probe.task in keys:
            raise ValueError(f"task {task.name!r} has the workload, target and strategy of another")
        keys.append(probe.task)
    return keys
