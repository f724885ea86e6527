"""Searches that annealing is compared with, each a thin adapter: grid, genetic, Optuna's TPE, MetaSchedule.

Optuna is an extra; `hbtvm.tuning.choices.Choices.require` reports it missing before a run measures anything.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import Point
from hbtvm.tuning.explorers.random_search import RandomExplorer


class GridExplorer(RandomExplorer):
    """Walks through a space in order, the last knob fastest."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        super().__init__(space, rng)
        self._rest = iter(space)

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Take the next `count` configurations that were not measured."""
        new = (config for config in self._rest if self._space.encode(config) not in measured)
        return list(itertools.islice(new, count))


class _Proposing(RandomExplorer):
    """Repairs another search's proposals, drops measured ones, and fills the batch with random draws."""

    startup = 16  # measurements before the search is asked

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Collect `count` configurations that were not measured."""
        batch: dict[Point, Config] = {}
        proposals = self._proposals(count, measured) if len(measured) >= self.startup else ()
        for digits in proposals:
            config = self._space.repair(self._space.decode(digits), self._rng)
            if config is not None and (point := self._space.encode(config)) not in measured:
                batch[point] = config
                if len(batch) == count:
                    break
        return self.fill(batch, count, measured)

    def _proposals(self, count: int, measured: Mapping[Point, float]) -> Iterator[Sequence[int]]:
        """Yield finitely many proposals as positions of choices, in the search's order."""
        raise NotImplementedError


class GeneticExplorer(_Proposing):
    """Crosses and mutates the best measured configurations: AutoTVM's black-box baseline (figure 4).

    Parents are drawn by rank, the best most often; a child takes each choice from either
    parent (uniform crossover), and some choices are drawn anew.
    """

    elite = 16  # most parents: the best measured
    mutation = 0.1  # probability with which each of a child's choices is drawn anew
    tries = 20  # children for each place in a batch

    def _proposals(self, count: int, measured: Mapping[Point, float]) -> Iterator[Sequence[int]]:
        working = [(cost, point) for point, cost in measured.items() if np.isfinite(cost)]
        parents = [point for _, point in heapq.nsmallest(self.elite, working)]
        if len(parents) > 1:
            for _ in range(self.tries * count):
                yield self._child(parents)

    def _child(self, parents: list[Point]) -> list[int]:
        weights = np.arange(len(parents), 0, -1, dtype=float)
        mother, father = self._rng.choice(len(parents), size=2, replace=False, p=weights / weights.sum())
        knobs = self._space.knobs
        first = self._rng.random(len(knobs)) < 0.5
        genes = np.where(first, parents[mother], parents[father])
        for i in np.flatnonzero(self._rng.random(len(knobs)) < self.mutation):
            genes[i] = self._rng.integers(len(knobs[i].choices))
        return [int(gene) for gene in genes]


class TpeExplorer(_Proposing):
    """Asks Optuna's tree-structured Parzen estimator.

    Knobs of numbers are positions in rising order, others are categories. The objective is the logarithm of
    the seconds; failures count as twice the slowest time.
    """

    startup = 10  # optuna's default
    tries = 10  # proposals for each place in a batch

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        super().__init__(space, rng)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=int(rng.integers(2**31)), n_startup_trials=self.startup, constant_liar=True
            )
        self._study: Any = optuna.create_study(sampler=sampler)
        self._domain = {knob.name: self._distribution(knob.choices) for knob in space.knobs}
        self._known: set[Point] = set()

    def _distribution(self, choices: tuple[Any, ...]) -> Any:
        if all(type(choice) is int for choice in choices):
            return self._optuna.distributions.IntDistribution(0, len(choices) - 1)
        return self._optuna.distributions.CategoricalDistribution(list(range(len(choices))))

    def _proposals(self, count: int, measured: Mapping[Point, float]) -> Iterator[Sequence[int]]:
        self._tell(measured)
        asked = []
        try:
            for _ in range(self.tries * count):
                asked.append(self._study.ask(self._domain))
                yield [asked[-1].params[knob.name] for knob in self._space.knobs]
        finally:
            # Pending trials keep the sampler from repeating proposals.
            for trial in asked:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def _tell(self, measured: Mapping[Point, float]) -> None:
        """Report new measurements, wherever they were proposed."""
        slowest = max((cost for cost in measured.values() if math.isfinite(cost)), default=1.0)
        for point in [point for point in measured if point not in self._known]:
            self._known.add(point)
            seconds = measured[point] if math.isfinite(measured[point]) else 2 * slowest
            parameters = {knob.name: digit for knob, digit in zip(self._space.knobs, point, strict=True)}
            trial = self._optuna.trial.create_trial(
                params=parameters, distributions=self._domain, value=math.log(seconds)
            )
            self._study.add_trial(trial)


class MetaScheduleExplorer(_Proposing):
    """Asks TVM's evolutionary search with its own cost model."""

    fewest = 64
    """Unmeasured combinations below which all are drawn at random: MetaSchedule searches long in vain."""

    generations = 3  # generations for one batch

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        super().__init__(space, rng)
        self._search = _MetaSchedule([len(knob.choices) for knob in space.knobs], rng)
        self._known: set[Point] = set()

    def _proposals(self, count: int, measured: Mapping[Point, float]) -> Iterator[Sequence[int]]:
        if self._space.size - len(measured) < self.fewest:
            return
        new = [point for point in measured if point not in self._known]
        self._known.update(new)
        self._search.tell(new, [measured[point] for point in new])
        for _ in range(self.generations):
            yield from self._search.ask(count)


_UNLIMITED = 1 << 30  # MetaSchedule's limit of trials; the session stops the run


class _MetaSchedule:
    """MetaSchedule's search over positions of choices.

    A space becomes a MetaSchedule design space in which each knob is a categorical decision of an empty
    program. `EvolutionarySearch` and its cost model run with three changes: `Redraw` mutates decisions, since
    MetaSchedule has no mutator for user decisions; the cost model reads decisions, since ranking does not
    lower candidates; and it ranks from `_Proposing.startup` measurements on, not from the hundredth.

    `sizes`: number of choices of each knob.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator) -> None:
        # Importing TVM takes a second, and other explorers don't need it.
        import tvm
        from tvm import te
        from tvm.ir.utils import derived_object
        from tvm.s_tir import meta_schedule
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBModel
        from tvm.s_tir.meta_schedule.feature_extractor import PyFeatureExtractor
        from tvm.s_tir.meta_schedule.mutator import PyMutator

        self._tvm, self._meta = tvm, meta_schedule
        names = [f"knob.{number}" for number in range(len(sizes))]

        def design(schedule: Any) -> None:
            block = schedule.get_sblock("nothing")
            for name, size in zip(names, sizes, strict=True):
                decision = schedule.sample_categorical(list(range(size)), [1 / size] * size)
                schedule.annotate(block, name, decision)

        def position(candidate: Any) -> list[int]:
            schedule = candidate.sch
            annotations = schedule.get(schedule.get_sblock("nothing")).annotations
            return [int(annotations[name]) for name in names]

        @derived_object
        class Redraw(PyMutator):  # type: ignore[misc]
            """Draws one decision anew."""

            def _initialize_with_tune_context(self, context: Any) -> None:
                """Ignore the context."""

            def apply(self, trace: Any, _: Any) -> Any:
                decisions = [step for step in trace.insts if step in trace.decisions]
                chosen = decisions[int(rng.integers(len(decisions)))]
                return trace.with_decision(chosen, int(rng.integers(len(chosen.attrs[0]))), True)

            def clone(self) -> Any:
                return Redraw()

        @derived_object
        class Positions(PyFeatureExtractor):  # type: ignore[misc]
            """A candidate's positions."""

            def extract_from(self, context: Any, candidates: Any) -> list[Any]:
                return [
                    tvm.runtime.tensor(np.array([position(item)], dtype=np.float64)) for item in candidates
                ]

        self._position = position
        x = te.placeholder((1,), name="given")
        nothing = te.create_prim_func([x, te.compute((1,), lambda i: x[i], name="nothing")])
        quiet = logging.getLogger(__name__)
        quiet.setLevel(logging.ERROR)
        generator = meta_schedule.space_generator.ScheduleFn(
            design, sch_rules=[], postprocs=[], mutator_probs={Redraw(): 1.0}
        )
        with _without("tvm.s_tir.tensor_intrin"):
            self._context = meta_schedule.TuneContext(
                mod=nothing,
                target=tvm.target.Target({"kind": "llvm", "num-cores": 1}),
                space_generator=generator,
                search_strategy=meta_schedule.search_strategy.EvolutionarySearch(),
                rand_state=1 + int(rng.integers(2**30)),
                num_threads=1,
                logger=quiet,
            )
        self._database = meta_schedule.database.MemoryDatabase()
        self._workload = self._database.commit_workload(self._context.mod)
        self._model = XGBModel(extractor=Positions(), num_warmup_samples=0, num_tuning_cores=1)
        (self._design,) = self._context.generate_design_space()
        self._batch = 0

    def ask(self, count: int) -> list[list[int]]:
        """Return the positions of the next candidates, which count as measured from now on."""
        if count != self._batch:
            if self._batch:
                self._context.post_tuning()
            self._context.pre_tuning(_UNLIMITED, count, [self._design], self._database, self._model)
            self._batch = count
        candidates = self._context.generate_measure_candidates() or []
        results = [self._meta.runner.RunnerResult(None, "reported later") for _ in candidates]
        self._context.notify_runner_results(candidates, results)
        return [self._position(item) for item in candidates]

    def tell(self, points: Sequence[Point], costs: Sequence[float]) -> None:
        """Report measurements, wherever they come from."""
        candidates, results = [], []
        for point, cost in zip(points, costs, strict=True):
            schedule = self._at(point)
            candidates.append(self._meta.MeasureCandidate(schedule, []))
            seconds = [cost] if math.isfinite(cost) else None
            results.append(self._meta.runner.RunnerResult(seconds, None if seconds else "failed"))
            if seconds:
                self._database.commit_tuning_record(
                    self._meta.database.TuningRecord(
                        schedule.trace, self._workload, seconds, self._context.target, []
                    )
                )
        if candidates:
            self._model.update(self._context, candidates, results)

    def _at(self, point: Point) -> Any:
        """Return the schedule with these decisions."""
        trace = self._design.trace
        decisions = [step for step in trace.insts if step in trace.decisions]
        for decision, digit in zip(decisions, point, strict=True):
            trace = trace.with_decision(decision, digit, False)
        schedule = self._tvm.s_tir.Schedule(self._context.mod)
        trace.apply_to_schedule(schedule, remove_postproc=True)
        return schedule


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Replace a module that is not imported yet by an empty module.

    A `TuneContext` imports TVM's matrix instructions of all processors, which takes a minute.
    """
    lacking = name not in sys.modules
    sys.modules.setdefault(name, ModuleType(name))
    try:
        yield
    finally:
        if lacking:
            del sys.modules[name]
