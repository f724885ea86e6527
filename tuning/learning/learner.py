"""Learn from a run's measurements and from earlier runs.

All tasks of a run share one local model, because knobs of the same name do the same; costs are compared only
within a task. Records of other workloads train global models once, at the start, and the local model builds
on them (AutoTVM, section 4 and equation 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from hbtvm.cost_model.base import CostModel
from hbtvm.cost_model.create import MakeModel, maker, sources, transfer
from hbtvm.cost_model.encoding.loop_trees import MakeScorer
from hbtvm.cost_model.models.gaussian_process import FeatureSpace
from hbtvm.logs.record import Record
from hbtvm.schedules.space import Config
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.learning.acquisition import AcquisitionScore
from hbtvm.tuning.learning.history import History
from hbtvm.tuning.learning.lessons import lessons
from hbtvm.tuning.learning.policy import FEWEST, FittingPolicy
from hbtvm.tuning.learning.tables import DescribeRecord, Tables
from hbtvm.tuning.task import Task


class Learner:
    """Fits cost models and returns their scores. Errors of a model are counted, never raised.

    `tasks`: the run's tasks.
    `choices`: the model, features and acquisition.
    `make_model`, `make_scorer`: as in `hbtvm.tuning.settings.Settings`.
    `failures`: failures of a model; there are no scores until the next fit succeeds.
    `warning`: the last failure's message; "" without one.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        choices: Choices,
        make_model: Callable[[], CostModel] | None = None,
        make_scorer: MakeScorer | None = None,
    ) -> None:
        self.failures = 0
        self.warning = ""
        self._tasks = tasks
        self._choices = choices
        self._tables = Tables(choices.table, tasks)
        self._given, self._make_scorer = make_model, make_scorer
        self._make: MakeModel = maker(choices.cost_model, choices.merit, self._tables.frame, make_scorer)
        if make_model is not None:
            self._make = lambda known: transfer(known, make_model())
        self._history = History()
        self._policy = FittingPolicy()
        self._global: list[CostModel] = []
        self._model: CostModel | None = None

    @property
    def taught(self) -> bool:
        """Whether there is a global model."""
        return bool(self._global)

    @property
    def wanted(self) -> int:
        """Measurements that the first model still needs; 0 if there is a model."""
        return max(0, FEWEST - len(self._history)) if self._model is None else 0

    def learn_from(self, records: Iterable[Record], describe: DescribeRecord) -> int:
        """Train the global models on other workloads' records; return the number used, 0 after a failure."""
        try:
            known = lessons(records, self._tasks, self._tables, describe, self._fail)
            if known is None:
                return 0
            models = [self._given()] if self._given else self._sources(known.features)
            for model in models:
                model.fit(known.features, known.costs, known.groups)
            self._model = self._make(models)
        except Exception as error:
            self._fail(error)
            return 0
        self._global = models
        return len(known.costs)

    def _sources(self, table: np.ndarray) -> list[CostModel]:
        frame = FeatureSpace.of(table, self._tables.widths)
        return sources(self._choices.cost_model, frame, len(table), self._make_scorer)

    def add(self, task: int, configs: Sequence[Config], costs: Sequence[float]) -> None:
        """Add a task's measurements: seconds, infinite for failures."""
        if not configs:
            return
        try:
            self._history.add(task, self._tables.of(self._tasks[task], configs), costs)
        except Exception as error:
            self._fail(error)

    def fit(self) -> bool:
        """Fit the local model if a fit is due; return whether scores changed."""
        count = len(self._history)
        if not self._policy.due(count, taught=self.taught):
            return False
        try:
            model = self._model or self._make(self._global)
            model.fit(*self._history.arrays())
        except Exception as error:
            self._fail(error)
            return True
        self._model = model
        self._policy.fitted(count)
        return True

    def gain(self, task: int, configs: Sequence[Config], behind: float) -> float | None:
        """Return a batch's expected gain (see `AcquisitionScore.gain`); None without a model."""
        score = self.score(task)
        return None if score is None else score.gain(list(configs), behind)

    def score(self, task: int) -> AcquisitionScore | None:
        """Return the model's scores for a task; None without a model."""
        if self._model is None:
            return None

        def features(configs: Sequence[Config]) -> np.ndarray:
            return self._tables.listed(self._tasks[task], configs)

        fastest = self._history.fastest(task)
        return AcquisitionScore(self._model, self._choices.merit, features, fastest, self._fail)

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        self.warning = f"{type(error).__name__}: {error}"
        self._model = None
