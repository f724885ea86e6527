"""TVM's own tuner, MetaSchedule, on this project's spaces: the outside reference.

A space becomes a MetaSchedule design space in which each knob is a categorical decision of a
program that does nothing. What searches it is TVM's `EvolutionarySearch` with its own cost model,
both as they come, but for three things: MetaSchedule has no mutator for decisions of a user's, so one that
draws a decision anew is given to it; its cost model reads the decisions, since a candidate is not
lowered to be ranked; and the model is asked from the `_WARMUP`-th measurement on, before which candidates
are drawn at random, not from the hundredth.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import Point, Score
from hbtvm.tuning.explorers.random_search import RandomExplorer

_WARMUP = 16
"""Measurements before the cost model has a say."""

_FEWEST = 64
"""Unmeasured combinations below which they are drawn at random: MetaSchedule looks in vain, and long."""

_TRIES = 3
"""Generations for one batch, after which the rest of it is drawn at random."""

_ENDLESS = 1 << 30
"""Trials that MetaSchedule is told of: when a run ends is not its business."""


class MetaScheduleExplorer:
    """Asks TVM's evolutionary search (an `Explorer`).

    What it proposes outside of a space counts as the nearest configuration in it.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng
        self._random = RandomExplorer(space, rng)
        self._search = _Search([len(knob.choices) for knob in space.knobs], rng)
        self._told: set[Point] = set()

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Ask for `count` configurations that were not measured."""
        if len(measured) < _WARMUP or self._space.size - len(measured) < _FEWEST:
            return self._random.draw(count, measured)
        new = [point for point in measured if point not in self._told]
        self._told.update(new)
        self._search.tell(new, [measured[point] for point in new])
        batch: dict[Point, Config] = {}
        for _ in range(_TRIES):
            for digits in self._search.ask(count):
                config = self._space.repair(self._space.decode(digits), self._rng)
                if config is None or len(batch) == count:
                    continue
                point = self._space.encode(config)
                if point not in measured:
                    batch[point] = config
            if len(batch) == count:
                break
        return self._random.fill(batch, count, measured)

    def update(self, score: Score | None) -> None:
        """MetaSchedule has a model of its own."""


class _Search:
    """MetaSchedule's search over positions.

    Parameters
    ----------
    sizes
        Number of choices of each knob.
    """

    def __init__(self, sizes: Sequence[int], rng: np.random.Generator) -> None:
        # TVM takes a second to import, and runs with other explorers need nothing of this.
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
                """It needs nothing of it."""

            def apply(self, trace: Any, _: Any) -> Any:
                made = [one for one in trace.insts if one in trace.decisions]
                chosen = made[int(rng.integers(len(made)))]
                return trace.with_decision(chosen, int(rng.integers(len(chosen.attrs[0]))), True)

            def clone(self) -> Any:
                return Redraw()

        @derived_object
        class Positions(PyFeatureExtractor):  # type: ignore[misc]
            """A candidate's positions."""

            def extract_from(self, context: Any, candidates: Any) -> list[Any]:
                return [tvm.runtime.tensor(np.array([position(one)], dtype=np.float64)) for one in candidates]

        self._position = position
        given = te.placeholder((1,), name="given")
        nothing = te.create_prim_func([given, te.compute((1,), lambda i: given[i], name="nothing")])
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
        """Positions of the next candidates, each of which counts as measured from now on."""
        if count != self._batch:
            if self._batch:
                self._context.post_tuning()
            self._context.pre_tuning(_ENDLESS, count, [self._design], self._database, self._model)
            self._batch = count
        candidates = self._context.generate_measure_candidates() or []
        results = [self._meta.runner.RunnerResult(None, "told when it is known") for _ in candidates]
        self._context.notify_runner_results(candidates, results)
        return [self._position(one) for one in candidates]

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
        """The schedule that takes these decisions."""
        trace = self._design.trace
        made = [one for one in trace.insts if one in trace.decisions]
        for decision, digit in zip(made, point, strict=True):
            trace = trace.with_decision(decision, digit, False)
        schedule = self._tvm.s_tir.Schedule(self._context.mod)
        trace.apply_to_schedule(schedule, remove_postproc=True)
        return schedule


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Have a module that was not imported yet taken for an empty one.

    A `TuneContext` imports what TVM knows of all processors' matrix instructions: a minute's work, and of no
    use to a program that does nothing.
    """
    lacking = name not in sys.modules
    sys.modules.setdefault(name, ModuleType(name))
    try:
        yield
    finally:
        if lacking:
            del sys.modules[name]
