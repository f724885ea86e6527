"""The tuning loop (AutoTVM, algorithm 1), over many tasks and within one budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hbtvm.cost_model.base import CostModel
from hbtvm.cost_model.loop_trees import MakeScorer
from hbtvm.logs.query import contrast, shipped
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log, LogError
from hbtvm.schedules.space import Config
from hbtvm.tuning.build_cost import out_of_proportion
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.database import Database
from hbtvm.tuning.explorers.create import create
from hbtvm.tuning.final import Final, FinalOptions
from hbtvm.tuning.interrupts import NotedInterrupt
from hbtvm.tuning.learning.learner import Learner
from hbtvm.tuning.learning.tables import DescribeRecord
from hbtvm.tuning.learning.threads import one_thread
from hbtvm.tuning.learning.transfer import seeds
from hbtvm.tuning.measuring.artifacts import Artifacts
from hbtvm.tuning.measuring.machine import Machine, RunnerError
from hbtvm.tuning.measuring.messages import Timing
from hbtvm.tuning.measuring.noise import NoiseMonitor, NoiseOptions
from hbtvm.tuning.measuring.pool import Pool, PoolOptions
from hbtvm.tuning.outcome import group_results, incumbents
from hbtvm.tuning.planning import spread
from hbtvm.tuning.progress import Progress
from hbtvm.tuning.result import Result, WallClock
from hbtvm.tuning.state import TaskState
from hbtvm.tuning.task import Task
from hbtvm.tuning.task_scheduler import TaskScheduler
from hbtvm.tuning.trials import Budget, Recorder, try_batch


@dataclass(frozen=True)
class Options:
    """What seldom needs to be changed.

    Attributes
    ----------
    pool
        Number and limits of the worker processes.
    timing
        How candidates are timed; its cutoff is set by the run.
    slow
        Times the group's best above which one reading of a candidate is enough.
    seeds
        Most configurations that each task takes over from like workloads in the log.
    final
        How the winner is picked among the fastest.
    steady
        When the machine counts as busy with something else.
    make_model
        Makes cost models in place of the chosen one.
    make_scorer
        Makes what predicts for a TreeGRU in PyTorch's place (see `hbtvm.cost_model.tree_gru.TreeGRU`).
    artifacts
        Keeps the libraries of each group's fastest candidates for whoever wants them after the run.
    stamp
        Fields of `hbtvm.logs.record.Record` that are the same for all records of the run, e.g.
        ``tvm`` and ``hbtvm`` versions and ``session``.
    """

    pool: PoolOptions = field(default_factory=PoolOptions)
    timing: Timing = field(default_factory=Timing)
    slow: float = 3.0
    seeds: int = 2
    final: FinalOptions = field(default_factory=FinalOptions)
    noise: NoiseOptions = field(default_factory=NoiseOptions)
    make_model: Callable[[], CostModel] | None = None
    make_scorer: MakeScorer | None = None
    artifacts: Artifacts = field(default_factory=Artifacts)
    stamp: Mapping[str, str] = field(default_factory=dict)


def tune(
    tasks: Sequence[Task],
    *,
    trials: int,
    time_budget: float | None = None,
    log: Log | None = None,
    seed: int = 0,
    transfer: bool = True,
    choices: Choices | None = None,
    batch: int = 4,
    progress: Progress | None = None,
    describe: DescribeRecord | None = None,
    experience: Sequence[Record] | None = None,
    options: Options | None = None,
    machine: Machine | None = None,
) -> Result:
    """Find the fastest configuration for each group of tasks.

    First the best configurations of like workloads in the log and the tasks' initial ones
    are measured, then batches go to the tasks that promise most (`hbtvm.tuning.task_scheduler`). A
    final measures each group's fastest candidates anew, in turns, and picks the winner.

    Parameters
    ----------
    tasks
        What to tune. Each has its own combination of workload, target and strategy.
    trials
        Candidates to try, over all tasks. Those that the log already has for these very
        tasks count, and are not tried again: the same call carries on where it stopped.
    time_budget
        Seconds for everything, kept to within a trial or so; None for no limit.
    log
        Where every result is appended at once. None keeps nothing.
    seed
        With the same seed, log and measured times the same candidates are tried.
    transfer
        Whether to learn from other workloads' records.
    choices
        The parts of the search; by default, `hbtvm.tuning.choices.Choices()`.
    batch
        Candidates planned, built and measured at a time.
    progress
        Called after each trial.
    describe
        Finds spaces of other workloads' records, and what describes their programs; without it they give
        first guesses only.
    experience
        Records to learn from besides the log's; by default, those that ship.
    options
        What seldom needs to be changed.
    machine
        What builds and measures, closed at the end; by default, a `Pool`.

    Raises
    ------
    ValueError
        If a task has no knobs, a workload or target that is not JSON, an initial
        configuration outside its space, two tasks would share their records, or what a choice needs is
        not installed.
    LogError
        If the log cannot be read. What happens to it later is told in the result.
    """
    choices = choices or Choices()
    choices.require()
    session = _Session(tasks, trials, time_budget, log, seed, choices, batch, progress, options or Options())
    others = session.others(experience, choices) if transfer else []
    return session.run(others, describe, machine)


def plan(
    tasks: Sequence[Task],
    *,
    trials: int,
    log: Log | None = None,
    seed: int = 0,
    transfer: bool = True,
    choices: Choices | None = None,
    describe: DescribeRecord | None = None,
    options: Options | None = None,
) -> list[tuple[Task, Config]]:
    """Choose candidates that are to be measured elsewhere (see `hbtvm.tuning.planning`).

    Parameters
    ----------
    trials
        How many, those that the log has of these tasks not included.

    Returns
    -------
    Tasks with configurations, those that promise most first. Other parameters, and errors, as of `tune`.
    """
    choices = choices or Choices()
    choices.require()
    session = _Session(tasks, trials, None, log, seed, choices, 1, None, options or Options())
    return session.plan(session.others(None, choices) if transfer else [], describe)


def packaged(choices: Choices) -> list[Record]:
    """What a search knows before its first run: winners and, where it learns, candidates drawn at random."""
    return [*shipped(), *(contrast() if choices.learns else ())]


_TURN = 8
"""Trials of a task from which its gain is extrapolated, at least (see `hbtvm.tuning.task_scheduler`)."""


class _Session:
    """One run of `tune`."""

    def __init__(
        self,
        tasks: Sequence[Task],
        trials: int,
        time_budget: float | None,
        log: Log | None,
        seed: int,
        choices: Choices,
        batch: int,
        progress: Progress | None,
        options: Options,
    ) -> None:
        self._options = options
        self._batch = batch
        self._scheduler = TaskScheduler(max(_TURN, batch))
        self._clock = WallClock()
        *generators, self._rng = np.random.default_rng(seed).spawn(len(tasks) + 1)
        self._states = [
            TaskState(i, task, create(choices, task.space, generators[i])) for i, task in enumerate(tasks)
        ]
        self._owners = dict(zip(_check(tasks), self._states, strict=True))
        self.database = Database(log, self._owners)
        self._resumed = sum(len(state.measured) for state in self._states)
        self._budget = Budget(trials, time_budget)
        self._lost = ""
        self._left: list[str] = []
        self._noise = NoiseMonitor(options.noise)
        self._interrupt = NotedInterrupt()
        self._recorder = Recorder(
            self._states, self._budget, self.database, progress, options.stamp, self._noise
        )
        self._learns = choices.learns
        self._learner = Learner(tasks, choices, options.make_model, options.make_scorer)

    def others(self, experience: Sequence[Record] | None, choices: Choices) -> list[Record]:
        """Records of other workloads: what ships, unless others are given, and the log's."""
        return [*(packaged(choices) if experience is None else experience), *self.database.foreign]

    def run(
        self, others: Sequence[Record], describe: DescribeRecord | None, machine: Machine | None
    ) -> Result:
        """Search, measure the finalists, and sum up; also after an interrupt or a failing log or device."""
        with self._interrupt:
            return self._run(others, describe, machine)

    def _run(
        self, others: Sequence[Record], describe: DescribeRecord | None, machine: Machine | None
    ) -> Result:
        stopped, log_error = "trials", None
        if machine is None:
            machine = Pool([state.task.program for state in self._states], self._options.pool)
        machine = self._options.artifacts.over(machine, [state.task for state in self._states])
        try:
            self._teach(others, describe)
            stopped = self._search(machine, others)
            champions = incumbents(self._owners, self.database.resumed)
            with self._clock.spend("measuring"):
                final = Final(self._options.final, self._states, champions)
                final.play(machine, self._recorder, self._budget, self._options.timing)
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
        )

    def plan(self, others: Sequence[Record], describe: DescribeRecord | None) -> list[tuple[Task, Config]]:
        """Choose as many candidates as the budget has trials, without measuring any."""
        self._teach(others, describe)
        with one_thread():
            found = spread(self._states, self._first(others), self._budget.trials)
        return [(state.task, config) for state, config in found]

    def _teach(self, others: Sequence[Record], describe: DescribeRecord | None) -> None:
        """Train the cost model on what is known before anything is measured."""
        if not self._learns:
            return
        with self._clock.spend("training"), one_thread():
            if describe is not None and others:
                self._learner.learn_from(others, describe)
            for state in self._states:
                self._learn(state, list(state.records.values()))
            self._train()

    def _search(self, machine: Machine, others: Sequence[Record]) -> str:
        """Spend the budget; return why it ended."""
        with self._clock.spend("planning"), one_thread():
            first = self._first(others)
        self._budget.reserve = self._options.final.reserve(self._states, self._budget)
        while True:
            self._interrupt.check()
            left = self._budget.trials - self._recorder.trials
            if left <= 0:
                return "trials"
            if self._budget.over:
                return "time"
            with self._clock.spend("planning"), one_thread():
                if first:
                    chosen, first = first[: self._batch], first[self._batch :]
                else:
                    chosen = self._plan(min(self._batch, left))
            if not chosen:
                return "exhausted"
            self._try(machine, chosen[:left])

    def _first(self, others: Sequence[Record]) -> list[tuple[TaskState, Config]]:
        """What to measure before any search: best guesses first, every task's in turn."""
        queues: list[list[Config]] = []
        tried = self._learner.taught and not self._resumed
        for state in self._states:
            queue: list[Config] = []
            # A global model that passes the test is worth more than a second workload's winner.
            count = min(1, self._options.seeds) if tried else self._options.seeds
            guesses = [*seeds(state.task, others, count), *state.task.initial]
            for config in guesses:
                if config not in queue and not state.knows(config):
                    queue.append(config)
            queues.append(queue)
        if tried and queues:
            self._probe(self._states[0], queues[0])
        longest = max(map(len, queues), default=0)
        pairs = list(zip(self._states, queues, strict=True))
        return [(state, queue[i]) for i in range(longest) for state, queue in pairs if i < len(queue)]

    def _probe(self, state: TaskState, queue: list[Config]) -> None:
        """Add two candidates that test the global model: its best prediction, and one drawn at random.

        Otherwise a global model that predicts wrongly would be noticed only after a batch or two of its
        predictions. All tasks share one cost model, so that testing it on one of them is enough.
        """
        if not queue and self._options.seeds:
            queue.extend(state.explorer.propose(1, state.measured))
        queue.extend(config for config in state.task.space.sample(self._rng, 1) if config not in queue)

    def _plan(self, count: int) -> list[tuple[TaskState, Config]]:
        """Pick a task, and a batch of its candidates; nothing if all spaces are exhausted."""
        if self._learns:
            count = min(count, self._learner.wanted or count)
        while True:
            index = self._scheduler.next([state.standing for state in self._states])
            if index is None:
                return []
            state = self._states[index]
            configs = state.explorer.propose(count, state.measured)
            if configs:
                return [(state, config) for config in configs]
            state.exhausted = True

    def _try(self, machine: Machine, chosen: list[tuple[TaskState, Config]]) -> None:
        """Measure a batch and learn from it."""
        for state in {state.index: state for state, _ in chosen}.values():
            state.begin_batch()
        with self._clock.spend("measuring"):
            self._noise.check(machine, self._options.timing, self._recorder.trials)
        done = try_batch(
            machine,
            chosen,
            self._recorder,
            self._budget,
            self._clock,
            self._options.timing,
            self._options.slow,
        )
        self._leave_expensive()
        if not self._learns:
            return
        with self._clock.spend("training"), one_thread():
            for state in self._states:
                self._learn(state, [record for owner, record in done if owner is state])
            self._train()

    def _leave_expensive(self) -> None:
        """Try no more of tasks whose candidates take out of proportion long to compile.

        A group keeps them until another of its tasks has a candidate that works.
        """
        expensive = [self._states[i] for i in out_of_proportion([state.builds for state in self._states])]
        for state in expensive:
            others = [one for one in self._states if one.task.group == state.task.group]
            served = any(math.isfinite(one.best) for one in others if one not in expensive)
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
    """Keys under which the log has each task's records; `tune` tells what is raised."""
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
        probe.to_line()  # what JSON has no form for must show now, not after the first trial
        if probe.task in keys:
            raise ValueError(f"task {task.name!r} has the workload, target and strategy of another")
        keys.append(probe.task)
    return keys
