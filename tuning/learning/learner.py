"""What a run learns from its measurements, and from those of earlier runs.

One local model is shared by all tasks of a run, since features mean the same for all
of them (knobs of one name do the same); costs are compared only within a task. The records
of other workloads train a global model once, at the start, that the local one builds upon
(AutoTVM, section 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hbtvm.cost_model.base import CostModel
from hbtvm.cost_model.create import MakeModel, broad, maker
from hbtvm.cost_model.gaussian_process import FeatureSpace
from hbtvm.cost_model.transfer import Remembering, TransferModel
from hbtvm.logs.record import Record
from hbtvm.schedules.space import Config
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.explorers.base import Score
from hbtvm.tuning.learning.acquisition import AcquisitionScore
from hbtvm.tuning.learning.tables import DescribeRecord, Tables, understood
from hbtvm.tuning.learning.transfer import nearest
from hbtvm.tuning.task import Task

_FEWEST = 6
"""Measurements of a run below which a local model would only learn noise."""

_FEWEST_MORE = 2
"""The same for a local model that corrects a global one: a guess of its, and what it is held against."""

_MANY = 256
"""Configurations whose features are kept until the task is asked about others."""

_RECORDS = 3000
"""Most records that the global model is trained on: more cost time and add little."""

_RECORDS_LOWERED = 384
"""The same where the program of each has to be lowered to be described: seconds in all."""

_WORKLOADS = 48
"""Most workloads that they come from: each takes some milliseconds to make a table of."""

_TELLING = 8
"""Fewest records of a workload that the global model learns from."""


class Learner:
    """Fits cost models and hands out scores. Errors of a model are counted, never raised.

    Parameters
    ----------
    tasks
        The run's tasks.
    choices
        Says which model, features and acquisition.
    make_model
        Makes an untrained model in place of the chosen one.

    Attributes
    ----------
    failures
        How often a model failed; scores are withheld from then on until a fit succeeds.
    warning
        What the last failure said; "" without one.
    """

    def __init__(self, tasks: Sequence[Task], choices: Choices, make_model: MakeModel | None = None) -> None:
        self.failures = 0
        self.warning = ""
        self._tasks = tasks
        self._acquisition = choices.merit
        self._tables = Tables(choices.table, tasks)
        self._make_model = make_model or maker(choices.cost_model, choices.merit, self._tables.frame)
        self._broad = choices.cost_model == "gaussian_process" and make_model is None
        self._rows: list[np.ndarray] = []
        self._costs: list[float] = []
        self._groups: list[int] = []
        self._listed: dict[int, tuple[Sequence[Config], np.ndarray]] = {}
        self._fitted = 0
        self._global: Remembering | None = None
        self._model: CostModel | None = None

    @property
    def taught(self) -> bool:
        """Whether there is a global model."""
        return self._global is not None

    @property
    def wanted(self) -> int:
        """Measurements that are lacking for a first model; 0 where nothing is to be waited for."""
        return max(0, _FEWEST - len(self._rows)) if self._model is None else 0

    def learn_from(self, records: Iterable[Record], describe: DescribeRecord) -> int:
        """Train the global model on other workloads' records.

        Returns
        -------
        The number of records used; 0 also where that failed.
        """
        try:
            return self._train_global(records, describe)
        except Exception as error:
            self._fail(error)
            return 0

    def _train_global(self, records: Iterable[Record], describe: DescribeRecord) -> int:
        groups: dict[tuple[str, str, str], list[Record]] = {}
        for record in records:
            groups.setdefault(record.task, []).append(record)
        rows, costs, labels = [], [], []
        # A few winners, such as those that ship, are good first guesses, but show no slow candidates.
        telling = [group for group in groups.values() if len(group) >= _TELLING]
        chosen = nearest(telling, self._tasks, _WORKLOADS)
        most = _RECORDS_LOWERED if self._tables.reads_loops else _RECORDS
        share = max(_TELLING, most // max(len(chosen), 1))
        for label, group in enumerate(chosen):
            # Evenly from all of a search: it begins with random candidates and ends with predicted ones.
            kept = np.unique(np.linspace(0, len(group) - 1, share).astype(int))
            table, times = self._recalled([group[i] for i in kept], describe)
            if len(times) > 1:
                rows.append(table)
                costs.append(times)
                labels.append(np.full(len(times), label))
        if not rows:
            return 0
        known = np.concatenate(rows)
        model = broad(FeatureSpace.of(known, self._tables.widths)) if self._broad else self._make_model()
        model.fit(known, np.concatenate(costs), np.concatenate(labels))
        self._global = Remembering(model)
        self._model = TransferModel(self._global, self._make_model())
        return sum(map(len, rows))

    def _recalled(self, group: Sequence[Record], describe: DescribeRecord) -> tuple[np.ndarray, np.ndarray]:
        """Features and costs of one workload's records; none where they are not understood."""
        try:
            known = understood(group, describe)
            if known is not None:
                costs = np.array([record.cost for record in known.records])
                return self._tables.of(known, known.configs), costs
        except Exception as error:  # a log may hold anything
            self._fail(error)
        return np.empty((0, 0)), np.empty(0)

    def add(self, task: int, configs: Sequence[Config], costs: Sequence[float]) -> None:
        """Remember measurements of the task at this index: seconds, infinite for failures."""
        if not configs:
            return
        try:
            rows = self._table(task, configs)
        except Exception as error:
            self._fail(error)
            return
        self._rows.extend(rows)
        self._costs.extend(costs)
        self._groups.extend([task] * len(configs))

    def fit(self) -> bool:
        """Fit the local model if there is news.

        Returns
        -------
        Whether scores changed, so that explorers need to be told.
        """
        count = len(self._rows)
        fewest = _FEWEST if self._global is None else _FEWEST_MORE
        # Late in a run a batch adds little to what is known, but fitting costs the more.
        if count < max(fewest, self._fitted + max(1, self._fitted // 20)):
            return False
        try:
            model = TransferModel(self._global, self._make_model())
            known = np.stack(self._rows), np.array(self._costs), np.array(self._groups)
            if count < _FEWEST and not model.weigh(*known):
                # The global model orders these wrongly, and they are too few for a local one.
                self._model = None
                return True
            model.fit(*known)
        except Exception as error:
            self._fail(error)
            return True
        self._model = model
        self._fitted = count
        return True

    def score(self, task: int) -> Score | None:
        """The model's scores for the task at this index; None where there is no model."""
        if self._model is None:
            return None

        known = [i for i, group in enumerate(self._groups) if group == task]
        fastest = min(known, key=self._costs.__getitem__, default=None)

        def features(configs: Sequence[Config]) -> np.ndarray:
            return self._features(task, configs)

        best = self._rows[fastest][None] if fastest is not None else None
        return AcquisitionScore(self._model, self._acquisition, features, best, self._fail)

    def _features(self, task: int, configs: Sequence[Config]) -> np.ndarray:
        if len(configs) < _MANY:
            return self._table(task, configs)
        # An explorer that scores all of its space asks with the same list for each batch.
        if task not in self._listed or self._listed[task][0] is not configs:
            self._listed[task] = configs, self._table(task, configs)
        return self._listed[task][1]

    def _table(self, task: int, configs: Sequence[Config]) -> np.ndarray:
        return self._tables.of(self._tasks[task], configs)

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        self.warning = f"{type(error).__name__}: {error}"
        self._model = None
