"""The tree-structured Parzen estimator, by Optuna: black-box optimisation as it is done today.

Optuna is an extra. `hbtvm.tuning.choices.Choices.require` says so before anything is measured.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import Point, Score
from hbtvm.tuning.explorers.random_search import RandomExplorer

_TRIES = 10
"""Proposals for each place in a batch, after which it is filled at random."""

_STARTUP = 10
"""Measurements before the estimator has a say, which is Optuna's own default."""


class TpeExplorer:
    """Asks Optuna's sampler (an `Explorer`).

    Knobs of numbers are given to it as positions in rising order, others as categories. It
    minimises the logarithm of the seconds; failures count as twice the slowest time.
    """

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._optuna: Any = optuna
        self._space = space
        self._rng = rng
        self._random = RandomExplorer(space, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=int(rng.integers(2**31)), n_startup_trials=_STARTUP, constant_liar=True
            )
        self._study: Any = optuna.create_study(sampler=sampler)
        self._domain = {knob.name: self._distribution(knob.choices) for knob in space.knobs}
        self._told: set[Point] = set()
        self._asked: list[Any] = []

    def _distribution(self, choices: tuple[Any, ...]) -> Any:
        ordered = all(type(choice) is int for choice in choices)
        if ordered:
            return self._optuna.distributions.IntDistribution(0, len(choices) - 1)
        return self._optuna.distributions.CategoricalDistribution(list(range(len(choices))))

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Ask for `count` configurations that were not measured."""
        self._tell(measured)
        batch: dict[Point, Config] = {}
        if len(measured) >= _STARTUP:
            for _ in range(_TRIES * count):
                if len(batch) == count:
                    break
                trial = self._study.ask(self._domain)
                wanted = self._space.decode([trial.params[knob.name] for knob in self._space.knobs])
                config = self._space.repair(wanted, self._rng)
                self._asked.append(trial)
                if config is not None and (point := self._space.encode(config)) not in measured:
                    batch[point] = config
        return self._random.fill(batch, count, measured)

    def _tell(self, measured: Mapping[Point, float]) -> None:
        """Report what is new; what was proposed here and what came from elsewhere count alike."""
        # Until now they were pending, which kept a batch from asking for the same again.
        for trial in self._asked:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        self._asked = []
        slowest = max((cost for cost in measured.values() if math.isfinite(cost)), default=1.0)
        for point, cost in measured.items():
            if point in self._told:
                continue
            self._told.add(point)
            seconds = cost if math.isfinite(cost) else 2 * slowest
            parameters = {knob.name: digit for knob, digit in zip(self._space.knobs, point, strict=True)}
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    params=parameters, distributions=self._domain, value=math.log(seconds)
                )
            )

    def update(self, score: Score | None) -> None:
        """The sampler has a model of its own."""
