"""A search on recorded times: the real loop, with a machine that looks its answers up."""

from __future__ import annotations

import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.search.measure import log_of
from benchmarks.search.spaces import Spot
from hbtvm.compiler.candidates.tasks import describe
from hbtvm.compiler.recursion.tree_gru import make_scorer
from hbtvm.cost_model.encoding.nest import Nest
from hbtvm.logs.record import Record, canonical
from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.explorers.base import Point
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.learning.tables import understood
from hbtvm.tuning.measuring.machine import BuiltLibrary, Machine
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing
from hbtvm.tuning.session import packaged, tune
from hbtvm.tuning.settings import Settings
from hbtvm.tuning.task import Describe, Task

SHIPPED = Path(__file__).parent / "records"
"""Logs of spaces that were measured before (two cores, AMD Zen 4), each time the fastest of its readings."""

NEAR = 1.05
"""A search has arrived when its best is within this factor of the space's best."""


@dataclass(frozen=True)
class MeasuredSpace(Space):
    """A space cut down to the configurations that were measured.

    Attributes
    ----------
    configs
        Those, in the order of the knobs.
    """

    configs: tuple[Config, ...] = field(default=(), compare=False)

    @property
    def size(self) -> int:
        """Number of configurations: searches may list this space whatever the full one's size."""
        return len(self.configs)

    def sample(self, rng: np.random.Generator, count: int, tries: int = 200) -> list[Config]:
        """Draw distinct configurations."""
        return [self.configs[i] for i in rng.permutation(len(self.configs))[:count]]

    def mutate(self, config: Config, rng: np.random.Generator, tries: int = 50) -> Config:
        """One of the nearest: among a sample, few have a neighbour that differs in one knob."""
        known = self.__dict__.setdefault("_nearest", {})
        point = self.encode(config)
        if point not in known:
            away = self._away(config)
            away[away == 0] = np.inf
            known[point] = np.argsort(away, kind="stable")[: 2 * len(self.knobs)]
        nearest = known[point]
        return self.configs[nearest[int(rng.integers(len(nearest)))]]

    def repair(self, config: Config, rng: np.random.Generator, tries: int = 50) -> Config | None:
        """The nearest configuration; which of equals is drawn."""
        away = self._away(config)
        return self.configs[int(np.argmin(away + 1e-6 * rng.random(len(away))))]

    def __iter__(self) -> Iterator[Config]:
        """Every configuration."""
        return iter(self.configs)

    def _away(self, config: Config) -> np.ndarray:
        """Distance of each configuration: knobs that differ, and a little for how much."""
        points = self.__dict__.get("_points")
        if points is None:
            points = np.array([self.encode(one) for one in self.configs])
            self.__dict__["_points"] = points
        apart = np.abs(points - np.array(self.encode(config)))
        away: np.ndarray = (apart > 0).sum(axis=1) + 0.01 * apart.sum(axis=1)
        return away


@dataclass(frozen=True)
class Recorded:
    """A space with its times.

    Attributes
    ----------
    name, shape, rows, threads
        As of `benchmarks.search.spaces.Spot`.
    task
        What to search, in a `MeasuredSpace`.
    costs
        Seconds of each configuration, infinite for one that failed.
    records
        Where they come from.
    """

    name: str
    shape: str
    rows: int
    threads: int
    task: Task
    costs: Mapping[Point, float]
    records: Sequence[Record]

    @property
    def best(self) -> float:
        """Seconds of the fastest."""
        return min(self.costs.values())


def load(folder: Path, spot: Spot) -> Recorded | None:
    """Read a space's log, or the one that ships; None where there is none that this version understands."""
    log = log_of(folder, spot)
    shipped = SHIPPED / f"{log.path.name}.xz"
    if not log.path.exists() and shipped.exists():
        folder.mkdir(parents=True, exist_ok=True)
        log.path.write_bytes(lzma.decompress(shipped.read_bytes()))
    return space_of(log.read().records, spot.name, spot.shape, spot.rows, spot.threads)


def space_of(records: Sequence[Record], name: str, shape: str, rows: int, threads: int) -> Recorded | None:
    """Return the space of one task's records; None if this version understands none of them."""
    # The fastest reading is the least disturbed one (see `measure`).
    clean = [replace(r, times=(min(r.times),)) if r.times else r for r in records]
    logged = understood(clean, describe)
    if logged is None:
        return None
    space = logged.space
    known = {space.encode(dict(r.config)): r for r in logged.records}
    configs = tuple(space.decode(point) for point in sorted(known))
    # One task for all that were sampled: the record's workload is the key of what is learned.
    measured = MeasuredSpace(space.knobs, partial(_among, space, known), configs)
    task = Task(
        name=name,
        workload=dict(clean[0].workload),
        target=dict(clean[0].target),
        strategy=clean[0].strategy,
        group=name,
        space=measured,
        describe=_remembered(logged.describe, space),
        program="",
        payload={"space": name},
    )
    costs = {point: record.cost for point, record in known.items()}
    return Recorded(name, shape, rows, threads, task, costs, list(known.values()))


def _remembered(describe: Describe, space: Space) -> Describe:
    """Describes each configuration once for all the runs that ask."""
    known: dict[Point, Nest] = {}

    def nest(config: Config) -> Nest:
        point = space.encode(config)
        if point not in known:
            known[point] = describe(config)
        return known[point]

    return nest


def _among(space: Space, known: Mapping[Point, Record], config: Config) -> bool:
    return space.encode(config) in known


class _Arrived(KeyboardInterrupt):
    """Raised when the best configuration was measured: the replay can end."""


class Replay(Machine):
    """A `hbtvm.tuning.measuring.machine.Machine` that answers from recorded times.

    Attributes
    ----------
    reached
        After each trial, the best over the best so far: the geometric mean over groups of spaces, of
        which only the fastest counts. A group without a success counts as a hundred times as slow.
    """

    def __init__(self, spaces: Sequence[Recorded]) -> None:
        self._spaces = {one.name: one for one in spaces}
        groups = dict.fromkeys(one.task.group for one in spaces)
        self._goals = {g: min(one.best for one in spaces if one.task.group == g) for g in groups}
        self._bests = dict.fromkeys(groups, np.inf)
        self.reached: list[float] = []

    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure | None]:
        """Nothing is built; and once the best was measured, the search is over."""
        if self.reached and self.reached[-1] >= 1:
            raise _Arrived
        return [BuiltLibrary("", None) for _ in candidates]

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        """Look a time up."""
        space = self._spaces[candidate.payload["space"]]
        cost = space.costs[space.task.space.encode(candidate.config)]
        group = space.task.group
        self._bests[group] = min(self._bests[group], cost)
        ratios = [max(0.01, goal / self._bests[group]) for group, goal in self._goals.items()]
        self.reached.append(float(np.exp(np.log(ratios).mean())))
        return Measured(0.0, (cost,)) if np.isfinite(cost) else Failure("measure", "failed when measured")

    def discard(self, library: BuiltLibrary) -> None:
        """Nothing to do: there is no library."""

    def close(self) -> None:
        """Nothing to do: no process was started."""


@dataclass(frozen=True)
class Variant:
    """One way to search.

    Attributes
    ----------
    name
        What figures call it.
    choices
        The parts.
    source
        The records that are known: ``""`` none, ``"shipped"`` those that come with the package,
        ``"machine"`` those of them of other workloads on another kind of machine (AVX2 for AVX-512, and
        back), ``"same"`` other workloads' of the strategy, ``"other"`` other strategies', ``"misleading"``
        the same's with the fast made slow.
    batch
        Candidates planned at a time.
    guesses
        Whether the best of like workloads are measured first.
    """

    name: str
    choices: Choices = field(default_factory=Choices)
    source: str = ""
    batch: int = 4
    guesses: bool = True


@dataclass(frozen=True)
class Run:
    """What one replayed search came to.

    Attributes
    ----------
    curve
        The space's best over the best so far, after each trial: 1 is the goal. It ends
        where the best was found.
    planning, training
        Seconds.
    """

    curve: list[float]
    planning: float
    training: float

    def needed(self, near: float = NEAR) -> float:
        """Trials until it arrived; infinite if it did not."""
        return next((i for i, value in enumerate(self.curve, 1) if value * near >= 1), np.inf)

    def padded(self, trials: int) -> np.ndarray:
        """The curve for a number of trials."""
        curve = self.curve[:trials]
        return np.array(curve + [curve[-1]] * (trials - len(curve)))


def replay(
    spaces: Sequence[Recorded], variant: Variant, seed: int, trials: int, experience: Sequence[Record] = ()
) -> Run:
    """Search one space, or several in one run."""
    machine = Replay(spaces)
    result = tune(
        [one.task for one in spaces],
        Settings(
            trials=trials,
            seed=seed,
            choices=variant.choices,
            batch=variant.batch,
            transfer=bool(experience),
            experience=experience,
            describe=describe,
            final=FinalOptions(finalists=1),
            seeds=2 if variant.guesses else 0,
            make_scorer=make_scorer,
        ),
        machine,
    )
    if result.warnings:
        raise RuntimeError(f"{variant.name} on {spaces[0].name}: {result.warnings[0]}")
    return Run(machine.reached, result.seconds.planning, result.seconds.training)


def whole(spaces: Sequence[Recorded], shape: str) -> list[Recorded]:
    """The spaces of one model, as `hbtvm tune` searches them: strategies compete for each batch size."""
    own = [one for one in spaces if one.shape == shape and one.threads == 1]
    return [replace(one, task=replace(one.task, group=f"{one.rows} rows")) for one in own]


def experience(recorded: Recorded, all_spaces: Sequence[Recorded], source: str, seed: int) -> list[Record]:
    """The records that a variant knows: of other spaces, at most 400 of each, drawn by the seed."""
    if source == "shipped":
        return packaged(Choices())
    if source == "machine":
        own, workload = recorded.task.target, canonical(recorded.task.workload)
        return [
            record
            for record in packaged(Choices())
            if record.target["kind"] == own["kind"]
            and record.target["vector_bits"] != own["vector_bits"]
            and record.workload_key != workload
        ]
    rng = np.random.default_rng(seed)
    known: list[Record] = []
    for other in all_spaces:
        same = other.task.strategy == recorded.task.strategy
        if other is recorded or not source or same != (source != "other"):
            continue
        records = [other.records[i] for i in rng.permutation(len(other.records))[:400]]
        known.extend(_reversed(records) if source == "misleading" else records)
    return known


def _reversed(records: Sequence[Record]) -> list[Record]:
    """Records whose times are swapped, the fastest for the slowest."""
    times = sorted((record.times for record in records if record.times), key=np.median)
    order = sorted((record for record in records if record.times), key=lambda record: record.cost)
    return [replace(record, times=other) for record, other in zip(order, reversed(times), strict=True)]
