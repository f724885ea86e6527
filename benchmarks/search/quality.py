"""How well cost models rank what they have not seen: recall@k, pairwise accuracy, and their time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import mean

import numpy as np

from benchmarks.search.replay import Recorded
from hbtvm.cost_model import pairwise_accuracy, recall_at_k
from hbtvm.cost_model.create import maker
from hbtvm.tuning.choices import FEATURES
from hbtvm.tuning.learning.tables import Tables

SAMPLES = 64
"""Measurements that a model learns from, as many as a search should need."""

_TOP = 10


@dataclass(frozen=True)
class Quality:
    """A model's ranking, averaged over spaces and seeds.

    Attributes
    ----------
    recall, accuracy
        Share of the ten fastest among the model's first ten; share of pairs in the right order.
    training, predicting
        Seconds to fit, and to score 1,000 candidates.
    """

    recall: float
    accuracy: float
    training: float
    predicting: float


def kinds() -> list[tuple[str, str]]:
    """Models and the features that they are tried on."""
    models = ("rank_process", "gaussian_process", "rank", "regression")
    found = [(model, features) for model in models for features in FEATURES]
    return found if find_spec("torch") is None else [*found, ("tree_gru", "flat")]


def quality(spaces: Sequence[Recorded], model: str, features: str, seeds: int) -> Quality:
    """Fit to `SAMPLES` candidates of a space drawn at random, and rank the rest."""
    found: list[tuple[float, float, float, float]] = []
    for recorded in spaces:
        points = list(recorded.costs)
        configs = [recorded.task.space.decode(point) for point in points]
        costs = np.array([recorded.costs[point] for point in points])
        if len(costs) < 2 * SAMPLES:
            continue
        tables = Tables(features, [recorded.task])
        table = tables.of(recorded.task, configs)
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(costs))
            known, rest = order[:SAMPLES], order[SAMPLES:]
            learned = maker(model, frame=tables.frame)([])
            start = time.perf_counter()
            learned.fit(table[known], costs[known])
            fitted = time.perf_counter()
            scores = learned.predict(table[rest]).mean
            predicted = (time.perf_counter() - fitted) * 1000 / len(rest)
            found.append(
                (
                    recall_at_k(scores, costs[rest], _TOP),
                    pairwise_accuracy(scores, costs[rest]),
                    fitted - start,
                    predicted,
                )
            )
    return Quality(*(mean(column) for column in zip(*found, strict=True)))
