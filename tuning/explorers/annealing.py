"""Parallel simulated annealing on the cost model's scores (AutoTVM, algorithm 1)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import BatchScore, Point, Score
from hbtvm.tuning.explorers.batch_selection import select
from hbtvm.tuning.explorers.random_search import RandomExplorer


@dataclass(frozen=True)
class AnnealingOptions:
    """How hard to search between two batches."""

    chains: int = 128  # parallel Markov chains; they keep their positions when the model changes
    steps: int = 8  # most steps of each chain per batch
    patience: int = 6  # steps without change among the top candidates after which the chains stop
    # Temperature of the first step, in standard deviations of the chains' scores; falls linearly to 0
    temperature: float = 1.0
    # Share of the worst chains that move to the best measured configurations, and share that moves to the
    # best of a scan
    elite: float = 0.25
    epsilon: float = 0.05  # random share of each batch (the paper's ε)
    # Worth of a newly covered choice (equation 3), in standard deviations of the top candidates' scores
    alpha: float = 0.1
    ratio: int = 8  # candidates per place of the batch to pick from (the paper's λ)
    # Candidates drawn once and scored whenever the model changes; all candidates of a space of up to four
    # times this size. All chains start at the best of them, and later some return there, because chains leave
    # an old model's optimum slowly.
    scan: int = 512


class AnnealingExplorer:
    """Proposes the cost model's best candidates, with some diversity, or random ones without a model."""

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
        self._moved = True
        self._pool: tuple[list[Point], list[Config]] | None = None

    def update(self, score: Score | None) -> None:
        """Take a new cost model; the chains keep their positions."""
        self._score = score
        self._scores = {}
        self._moved = True

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Pick a batch: ε of it at random, the rest by equation 3 from the top candidates."""
        if self._score is None:
            return self._random.draw(count, measured)
        guided = count - int(self._rng.binomial(count, self._options.epsilon))
        top = self._options.ratio * count
        visited = self._walk(measured, top)
        batch = self._pick(visited, guided, top)
        return self._random.fill({point: self._space.decode(point) for point in batch}, count, measured)

    def _pick(self, visited: dict[Point, float], count: int, top: int) -> list[Point]:
        best = heapq.nlargest(top, visited.items(), key=lambda item: (item[1], item[0]))
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

    def _walk(self, measured: Mapping[Point, float], top: int) -> dict[Point, float]:
        """Run the chains; return the scores of the unmeasured configurations that they visited."""
        options, rng = self._options, self._rng
        chains, points, scores = self._set_out(measured)
        if not chains:
            return {}
        spread = float(scores.std()) or 1.0
        seen = _Seen(top, measured)
        seen.add(points, scores)
        still = 0
        for step in range(options.steps):
            steps = [self._space.mutate(config, rng) for config in chains]
            new_points = [self._space.encode(config) for config in steps]
            new_scores = self._rate(new_points, steps)
            temperature = options.temperature * spread * (1 - step / options.steps)
            # Metropolis: better steps are always taken.
            odds = np.exp(np.minimum((new_scores - scores) / temperature, 0.0))
            for i in np.flatnonzero(rng.random(len(chains)) < odds):
                chains[i], points[i], scores[i] = steps[i], new_points[i], new_scores[i]
            still = 0 if seen.add(new_points, new_scores) else still + 1
            if still >= options.patience:
                break
        self._chains = chains
        return seen.scores

    def _set_out(self, measured: Mapping[Point, float]) -> tuple[list[Config], list[Point], np.ndarray]:
        """Return where chains start: the worst of them move to the best measured and scanned points."""
        fresh = self._scanned() if self._moved or not self._chains else []
        self._moved = False
        chains = list(self._chains) or fresh
        points = [self._space.encode(config) for config in chains]
        scores = self._rate(points, chains)
        succeeded = [(cost, point) for point, cost in measured.items() if np.isfinite(cost)]
        count = int(self._options.elite * len(chains))
        elite = [self._space.decode(point) for _, point in heapq.nsmallest(count, succeeded)]
        for i, config in zip(np.argsort(scores, kind="stable"), [*elite, *fresh[:count]], strict=False):
            chains[i], points[i] = config, self._space.encode(config)
        return chains, points, self._rate(points, chains)

    def _scanned(self) -> list[Config]:
        """Return the best of the pool, at most one for each chain."""
        assert self._score is not None
        points, configs = self._scan_pool()
        # `Tables.listed` caches the features of this list object.
        scores = self._score(configs)
        self._scores.update(zip(points, map(float, scores), strict=True))
        order = np.argsort(-scores, kind="stable")
        return [configs[i] for i in order[: self._options.chains]]

    def _scan_pool(self) -> tuple[list[Point], list[Config]]:
        """Return the scan's candidates, drawn once: drawing valid candidates can be slow."""
        if self._space.size <= 4 * self._options.scan:
            return self._random.listed()
        if self._pool is None:
            configs = self._space.sample(self._rng, max(self._options.scan, self._options.chains))
            self._pool = [self._space.encode(config) for config in configs], configs
        return self._pool

    def _rate(self, points: list[Point], configs: list[Config]) -> np.ndarray:
        """Return scores, asking the model only for new points."""
        assert self._score is not None
        new = {p: config for p, config in zip(points, configs, strict=True) if p not in self._scores}
        if new:
            scores = self._score(list(new.values()))
            self._scores.update(zip(new, map(float, scores), strict=True))
        return np.array([self._scores[point] for point in points])


class _Seen:
    """Unmeasured configurations that chains visited, and whether the best of them still change."""

    def __init__(self, top: int, measured: Mapping[Point, float]) -> None:
        self.scores: dict[Point, float] = {}
        self._top, self._measured = top, measured
        self._best: list[float] = []  # a heap of the `top` highest scores

    def add(self, points: list[Point], scores: np.ndarray) -> bool:
        """Add configurations; return whether any is among the best."""
        changed = False
        for point, score in zip(points, map(float, scores), strict=True):
            if point in self._measured or point in self.scores:
                continue
            self.scores[point] = score
            if len(self._best) < self._top:
                heapq.heappush(self._best, score)
            elif score > self._best[0]:
                heapq.heapreplace(self._best, score)
            else:
                continue
            changed = True
        return changed
