"""Parallel simulated annealing on the cost model's scores (AutoTVM, algorithm 1)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import BatchScore, Point, Score
from hbtvm.tuning.explorers.batch_selection import select
from hbtvm.tuning.explorers.random_search import SMALL, RandomExplorer


@dataclass(frozen=True)
class AnnealingOptions:
    """How hard to search between two batches.

    Attributes
    ----------
    chains
        Number of Markov chains that walk in parallel; they go on where they were when the
        model changes.
    steps
        Most steps of each chain for one batch.
    patience
        Steps without change among the top candidates after which they stop.
    temperature
        At the first step, in standard deviations of the chains' scores; it falls to 0
        linearly.
    elite
        Share of the chains, the worst, that are moved to the best measured configurations.
    epsilon
        Share of each batch that is drawn at random (the paper's ε).
    alpha
        Worth of one newly covered choice (equation 3), in standard deviations of the top
        candidates' scores.
    ratio
        Candidates that the batch is picked from, for each place in it (the paper's λ).
    exhaustive
        Spaces of up to this many combinations are scored in full, which finds the very best and
        costs less than walking them.
    """

    chains: int = 256
    steps: int = 8
    patience: int = 6
    temperature: float = 1.0
    elite: float = 0.25
    epsilon: float = 0.05
    alpha: float = 0.1
    ratio: int = 8
    exhaustive: int = SMALL


class AnnealingExplorer:
    """Proposes what the cost model thinks best, with some diversity (an `Explorer`).

    Without a cost model it draws at random.
    """

    def __init__(
        self, space: Space, rng: np.random.Generator, options: AnnealingOptions | None = None
    ) -> None:
        self._space = space
        self._rng = rng
        self._options = options or AnnealingOptions()
        self._random = RandomExplorer(space, rng)
        self._score: Score | None = None
        self._scores: dict[Point, float] = {}
        self._chains: list[Config] = []

    def update(self, score: Score | None) -> None:
        """Take a new cost model; the chains stay where they are."""
        self._score = score
        self._scores = {}

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Pick a batch: ε of it at random, the rest by equation 3 from the top candidates."""
        if self._score is None:
            return self._random.draw(count, measured)
        guided = count - int(self._rng.binomial(count, self._options.epsilon))
        top = self._options.ratio * count
        if self._space.size <= self._options.exhaustive:
            found = self._scan(measured, top)
        else:
            found = self._walk(measured, top)
        batch = self._pick(found, guided, top)
        return self._random.fill({point: self._space.decode(point) for point in batch}, count, measured)

    def _pick(self, found: dict[Point, float], count: int, top: int) -> list[Point]:
        best = heapq.nlargest(top, found.items(), key=lambda item: (item[1], item[0]))
        if not best:
            return []
        points = [point for point, _ in best]
        if isinstance(self._score, BatchScore):
            picked = self._score.pick([self._space.decode(point) for point in points], count)
            if picked is not None:
                return [points[i] for i in picked]
        scores = np.array([score for _, score in best])
        chosen = select(np.array(points), scores, count, self._options.alpha * float(scores.std()))
        return [points[i] for i in chosen]

    def _scan(self, measured: Mapping[Point, float], top: int) -> dict[Point, float]:
        """Scores of the `top` best of all configurations that were not measured."""
        assert self._score is not None
        points, configs = self._random.listed()
        scores = self._score(configs)
        found: dict[Point, float] = {}
        for i in np.argsort(-scores, kind="stable"):
            if len(found) == top:
                break
            if points[i] not in measured:
                found[points[i]] = float(scores[i])
        return found

    def _walk(self, measured: Mapping[Point, float], top: int) -> dict[Point, float]:
        """Let the chains walk; return scores of the unmeasured configurations that they saw."""
        options, rng = self._options, self._rng
        chains, points, scores = self._set_out(measured)
        if not chains:
            return {}
        spread = float(scores.std()) or 1.0
        found: dict[Point, float] = {}
        best: list[float] = []  # a heap of the `top` highest scores
        changed = 0
        seen_points, seen_scores = points, scores
        for step in range(options.steps):
            for point, score in zip(seen_points, map(float, seen_scores), strict=True):
                if point in measured or point in found:
                    continue
                found[point] = score
                if len(best) < top:
                    heapq.heappush(best, score)
                elif score > best[0]:
                    heapq.heapreplace(best, score)
                else:
                    continue
                changed = step
            if step - changed >= options.patience:
                break
            steps = [self._space.mutate(config, rng) for config in chains]
            seen_points = [self._space.encode(config) for config in steps]
            seen_scores = self._rate(seen_points, steps)
            temperature = options.temperature * spread * (1 - step / options.steps)
            # Better steps are always taken, worse ones with Metropolis' probability.
            odds = np.exp(np.minimum((seen_scores - scores) / temperature, 0.0))
            for i in np.flatnonzero(rng.random(len(chains)) < odds):
                chains[i], points[i], scores[i] = steps[i], seen_points[i], seen_scores[i]
        self._chains = chains
        return found

    def _set_out(self, measured: Mapping[Point, float]) -> tuple[list[Config], list[Point], np.ndarray]:
        """Where the chains start: where they stopped, but the worst join the best measured."""
        if not self._chains:
            self._chains = self._space.sample(self._rng, self._options.chains)
        chains = list(self._chains)
        points = [self._space.encode(config) for config in chains]
        scores = self._rate(points, chains)
        succeeded = [(cost, point) for point, cost in measured.items() if np.isfinite(cost)]
        elite = [point for _, point in heapq.nsmallest(int(self._options.elite * len(chains)), succeeded)]
        for i, point in zip(np.argsort(scores, kind="stable"), elite, strict=False):
            chains[i], points[i] = self._space.decode(point), point
        return chains, points, self._rate(points, chains)

    def _rate(self, points: list[Point], configs: list[Config]) -> np.ndarray:
        """Scores, asking the model only for what it has not rated yet."""
        assert self._score is not None
        new = {p: config for p, config in zip(points, configs, strict=True) if p not in self._scores}
        if new:
            scores = self._score(list(new.values()))
            self._scores.update(zip(new, map(float, scores), strict=True))
        return np.array([self._scores[point] for point in points])
