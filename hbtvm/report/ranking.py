"""How well a cost model would have foreseen a log: predicted against measured, in cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cost_model.base import CostModel
from cost_model.encode import Encoder
from cost_model.gaussian_process import Frame
from cost_model.metrics import pairwise_accuracy
from hbtvm.report.story import Chapter
from logs.record import Record
from schedules.space import Config, Space, columns
from tuning.learner import DescribeRecord
from tuning.task import Describe

FOLDS = 5

_FEWEST = 10
"""Measurements of a task below which there is nothing to validate with."""

_DRAWN = 256
"""Candidates of each space whose spread gives features their units."""

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
    chapters: Sequence[Chapter],
    describe: DescribeRecord,
    make_model: Callable[[Frame], CostModel],
    seed: int = 0,
) -> dict[int, Ranking]:
    """Fit cost models to parts of the chapters' records, and predict the rest.

    One model is fitted to all chapters' choices together, as a search does, for each of `FOLDS` folds.

    Parameters
    ----------
    chapters
        Of one log.
    describe
        Finds the space of a chapter's records.
    make_model
        Makes an untrained model, for features in this frame.
    seed
        Of the folds.

    Returns
    -------
    By index, the chapters of which enough is known.
    """
    total = sum(len(chapter.trials) for chapter in chapters)
    parts: list[_Part] = []
    for index, chapter in enumerate(chapters):
        for strategy in chapter.strategies:
            own = [record for record in chapter.trials if record.strategy == strategy]
            keep = max(_FEWEST, _MOST * len(own) // max(total, 1))
            part = _understood(index, own[-keep:], describe)
            if part is not None and len(part.records) >= _FEWEST:
                parts.append(part)
    if not parts:
        return {}
    X, frame = _encoded(parts)
    y = np.array([record.cost for part in parts for record in part.records])
    name = [record.strategy for part in parts for record in part.records]
    sizes = [len(part.records) for part in parts]
    task = np.repeat(np.arange(len(parts)), sizes)
    owner = np.repeat([part.chapter for part in parts], sizes)
    fold = np.random.default_rng(seed).permutation(len(y)) % FOLDS
    scores = np.zeros(len(y))
    for number in range(FOLDS):
        seen = fold != number
        model = make_model(frame)
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
        points = [(name[i], float(scores[i]), float(y[i])) for i in np.flatnonzero(worked)]
        label = task * FOLDS + fold
        found[int(index)] = Ranking(points, pairwise_accuracy(scores[here], y[here], label[here]))
    return found


@dataclass(frozen=True)
class _Part:
    """One strategy's records of a chapter."""

    chapter: int
    records: Sequence[Record]
    loops: Describe
    space: Space


def _understood(chapter: int, records: Sequence[Record], describe: DescribeRecord) -> _Part | None:
    """The records that this version understands."""
    try:
        found = describe(records[0]) if records else None
        if found is not None:
            loops, space = found
            known = [record for record in records if space.contains(dict(record.config))]
            return _Part(chapter, known, loops, space)
    except Exception:  # a log may hold anything, and what cannot be described is left out
        pass
    return None


def _encoded(parts: Sequence[_Part]) -> tuple[np.ndarray, Frame]:
    """Choices of all records as a search's cost model gets them, and in what units."""
    workloads = [part.records[0].workload for part in parts]
    spaces = [{knob.name: knob.choices for knob in part.space.knobs} for part in parts]
    encode = Encoder("knobs", spaces, workloads)

    def table(part: _Part, configs: Sequence[Config]) -> np.ndarray:
        return encode(part.loops, columns(configs), len(configs), part.records[0].workload)

    drawn = [table(part, part.space.sample(np.random.default_rng(0), _DRAWN)) for part in parts]
    known = [table(part, [dict(record.config) for record in part.records]) for part in parts]
    return np.concatenate(known), Frame.of(np.concatenate(drawn), encode.widths)
