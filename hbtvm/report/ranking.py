"""Cross-validation of a cost model on a log: predicted against measured times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.cost_model.base import CostModel
from hbtvm.cost_model.metrics import pairwise_accuracy
from hbtvm.cost_model.models.gaussian_process import FeatureSpace
from hbtvm.logs.record import Record
from hbtvm.report.story import Chapter
from hbtvm.tuning.learning.tables import DescribeRecord, Logged, Tables, understood
from hbtvm.tuning.learning.threads import one_thread

FOLDS = 5

_FEWEST = 10  # minimal number of a task's measurements for validation
_MOST = 3000  # maximal number of records to fit; more take long and add little


@dataclass(frozen=True)
class Ranking:
    """Out-of-fold predictions for a chapter's candidates."""

    # For each working candidate: its strategy, predicted score (higher is better; 0 is the prediction for the
    # strategy's average candidate here), and measured seconds
    points: Sequence[tuple[str, float, float]]
    # Share of pairs of candidates of the same strategy and fold that the scores order correctly
    accuracy: float


def validate(
    chapters: Sequence[Chapter],
    describe: DescribeRecord,
    make_model: Callable[[FeatureSpace], CostModel],
    seed: int = 0,
) -> dict[int, Ranking]:
    """Fit cost models to parts of the chapters' records, and predict the rest.

    Each of the `FOLDS` models is fitted to all chapters' choices together, as in a search.

    `chapters`: of one log.
    `describe`: returns the space of a chapter's records.
    `make_model`: creates an untrained model for features in this frame.
    `seed`: seed of the folds.
    Returns rankings of the chapters with enough measurements, by index.
    """
    total = sum(len(chapter.trials) for chapter in chapters)
    parts: list[Logged] = []
    chapter_of: list[int] = []
    for index, chapter in enumerate(chapters):
        for strategy in chapter.strategies:
            trials = [record for record in chapter.trials if record.strategy == strategy]
            keep = max(_FEWEST, _MOST * len(trials) // max(total, 1))
            part = _understood(trials[-keep:], describe)
            if part is not None and len(part.records) >= _FEWEST:
                parts.append(part)
                chapter_of.append(index)
    if not parts:
        return {}
    tables = Tables("knobs", parts)
    X = np.concatenate([tables.of(part, part.configs) for part in parts])
    y = np.array([record.cost for part in parts for record in part.records])
    name = [record.strategy for part in parts for record in part.records]
    sizes = [len(part.records) for part in parts]
    task = np.repeat(np.arange(len(parts)), sizes)
    owner = np.repeat(chapter_of, sizes)
    fold = np.random.default_rng(seed).permutation(len(y)) % FOLDS
    scores = np.zeros(len(y))
    for number in range(FOLDS):
        seen = fold != number
        with one_thread():
            model = make_model(tables.frame())
            model.fit(X[seen], y[seen], task[seen])
            predicted = model.predict(X).mean
        for current in np.unique(task):
            # Scores of different tasks or models have no common zero.
            known_here = predicted[seen & (task == current)]
            mine = (fold == number) & (task == current)
            scores[mine] = predicted[mine] - (known_here.mean() if len(known_here) else 0.0)
    rankings = {}
    for index in np.unique(owner):
        here = owner == index
        worked = here & np.isfinite(y)
        points = [(name[i], float(scores[i]), float(y[i])) for i in np.flatnonzero(worked)]
        label = task * FOLDS + fold
        rankings[int(index)] = Ranking(points, pairwise_accuracy(scores[here], y[here], label[here]))
    return rankings


def _understood(records: Sequence[Record], describe: DescribeRecord) -> Logged | None:
    try:
        return understood(records, describe)
    except Exception:  # untrusted logs: leave out workloads that cannot be described
        return None
