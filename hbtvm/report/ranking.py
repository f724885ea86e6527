"""How well a cost model would have foreseen a log: predicted against measured, in cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cost_model.base import CostModel
from cost_model.features import features
from cost_model.metrics import pairwise_accuracy
from hbtvm.report.story import Chapter
from logs.record import Record
from schedules.space import columns
from tuning.learner import DescribeRecord

FOLDS = 5

_FEWEST = 10
"""Measurements of a task below which there is nothing to validate with."""

_MOST = 3000
"""Most records that are fitted: more take long and tell no more."""


@dataclass(frozen=True)
class Ranking:
    """Predictions for one chapter's candidates, by a model that had not seen them.

    Attributes
    ----------
    points
        For each candidate that worked: its strategy, predicted score (higher is better; 0 is what the
        model gives to its strategy's average candidate here), and measured seconds.
    accuracy
        Share of the pairs of candidates of one strategy and fold that the scores order rightly.
    """

    points: Sequence[tuple[str, float, float]]
    accuracy: float


def validate(
    chapters: Sequence[Chapter], describe: DescribeRecord, make_model: Callable[[], CostModel], seed: int = 0
) -> dict[int, Ranking]:
    """Fit cost models to parts of the chapters' records, and predict the rest.

    One model is fitted to all chapters together, as a search does, for each of `FOLDS` folds.

    Returns
    -------
    By index, the chapters of which enough is known.
    """
    rows: list[np.ndarray] = []
    costs: list[list[float]] = []
    tasks: list[np.ndarray] = []
    names: list[list[str]] = []
    owners: list[np.ndarray] = []
    total = sum(len(chapter.trials) for chapter in chapters)
    for index, chapter in enumerate(chapters):
        for strategy in chapter.strategies:
            own = [record for record in chapter.trials if record.strategy == strategy]
            keep = max(_FEWEST, _MOST * len(own) // max(total, 1))
            table, known = _describe(own[-keep:], describe)
            if len(known) >= _FEWEST:
                rows.append(table)
                costs.append([record.cost for record in known])
                tasks.append(np.full(len(known), len(tasks)))
                names.append([strategy] * len(known))
                owners.append(np.full(len(known), index))
    if not rows:
        return {}
    X, y, task, owner = (
        np.concatenate(rows),
        np.concatenate(costs),
        np.concatenate(tasks),
        np.concatenate(owners),
    )
    name = np.concatenate(names)
    fold = np.random.default_rng(seed).permutation(len(y)) % FOLDS
    scores = np.zeros(len(y))
    for number in range(FOLDS):
        seen = fold != number
        model = make_model()
        model.fit(X[seen], y[seen], task[seen])
        predicted = np.asarray(model.predict(X), float)
        for one in np.unique(task):
            # Scores of two tasks, or of two models, have no common zero.
            known_here = predicted[seen & (task == one)]
            mine = (fold == number) & (task == one)
            scores[mine] = predicted[mine] - (known_here.mean() if len(known_here) else 0.0)
    found = {}
    for index in np.unique(owner):
        here = owner == index
        worked = here & np.isfinite(y)
        points = [(str(name[i]), float(scores[i]), float(y[i])) for i in np.flatnonzero(worked)]
        label = task * FOLDS + fold
        found[int(index)] = Ranking(points, pairwise_accuracy(scores[here], y[here], label[here]))
    return found


def _describe(records: Sequence[Record], describe: DescribeRecord) -> tuple[np.ndarray, list[Record]]:
    """Features of the records that this version understands."""
    try:
        found = describe(records[0]) if records else None
        if found is not None:
            loops, space = found
            known = [record for record in records if space.contains(dict(record.config))]
            if known:
                return features(loops(columns([dict(record.config) for record in known])), len(known)), known
    except Exception:  # a log may hold anything, and what cannot be described is left out
        pass
    return np.empty((0, 0)), []
