"""Knob spaces: the choices of a schedule, and moves among them.

A *configuration* assigns a choice to each knob. A space holds the knobs and a constraint on their
combinations; searches (`hbtvm.tuning`) see only the space, never a tensor program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Choice = int | str | bool
Config = dict[str, Choice]
Columns = Mapping[str, np.ndarray]
"""A batch of configurations by knob: one array of n values for each knob name."""


@dataclass(frozen=True)
class Knob:
    """One decision of a schedule.

    Attributes
    ----------
    name
        The decision's name, e.g. ``"row_tile"``.
    choices
        Its values, all of one type; numbers in rising order, so that neighbours in the tuple are similar.
    before
        For knobs newer than existing logs: the implied choice of configurations without the knob.
    """

    name: str
    choices: tuple[Choice, ...]
    before: Choice | None = None

    def __post_init__(self) -> None:
        if not self.choices:
            raise ValueError(f"knob {self.name!r} has no choices")
        if len(set(self.choices)) != len(self.choices):
            raise ValueError(f"knob {self.name!r} repeats a choice: {self.choices}")

    def offers(self, choice: Choice) -> bool:
        """Whether the knob has a choice, of the same type: ``True`` is not 1."""
        return type(choice) is type(self.choices[0]) and choice in self.choices


@dataclass(frozen=True)
class Space:
    """The configurations that one schedule accepts on one target.

    `knobs`: the decisions, in a fixed order.
    `valid`: the constraint; ``None`` accepts every combination.
    """

    knobs: tuple[Knob, ...]
    valid: Callable[[Config], bool] | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """Number of combinations, before the constraint."""
        return math.prod(len(knob.choices) for knob in self.knobs)

    def decode(self, digits: Sequence[int]) -> Config:
        """Return the configuration at these positions, one for each knob."""
        return {knob.name: knob.choices[d] for knob, d in zip(self.knobs, digits, strict=True)}

    def encode(self, config: Config) -> tuple[int, ...]:
        """Return the positions of a configuration's choices; the inverse of `decode`.

        Raises `KeyError` if a knob is missing; `ValueError` if a choice is not in its knob's list.
        """
        return tuple(knob.choices.index(config[knob.name]) for knob in self.knobs)

    def completed(self, config: Mapping[str, Choice]) -> Config:
        """Add the implied choices of knobs that are newer than a logged configuration (`Knob.before`)."""
        lacking = {knob.name: knob.before for knob in self.knobs if knob.before is not None}
        return {**lacking, **config}

    def contains(self, config: Config) -> bool:
        """Whether the configuration has exactly these knobs, known choices, and is valid."""
        if set(config) != {knob.name for knob in self.knobs}:
            return False
        if not all(knob.offers(config[knob.name]) for knob in self.knobs):
            return False
        return self.valid is None or self.valid(config)

    def sample(self, rng: np.random.Generator, count: int, tries: int = 200) -> list[Config]:
        """Draw up to `count` distinct valid configurations, uniformly.

        Returns fewer only if `tries` draws for each do not suffice.
        """
        configs: dict[tuple[int, ...], Config] = {}
        sizes = [len(knob.choices) for knob in self.knobs]
        left = tries * count
        while left > 0 and len(configs) < min(count, self.size):
            drawn = min(left, 2 * (count - len(configs)))
            left -= drawn
            # Drawing single numbers would dominate the time.
            for row in rng.integers(sizes, size=(drawn, len(sizes))).tolist():
                digits = tuple(row)
                if digits in configs or len(configs) == count:
                    continue
                config = self.decode(digits)
                if self.valid is None or self.valid(config):
                    configs[digits] = config
        return list(configs.values())

    def mutate(self, config: Config, rng: np.random.Generator, tries: int = 50) -> Config:
        """Return a random valid neighbour that differs in one knob (a step of simulated annealing).

        Returns the configuration itself if `tries` draws find no valid neighbour.
        """
        movable = self._movable
        # Drawing floats is several times faster than drawing bounded integers, and chains draw by the 10,000.
        for _ in range(tries if movable else 0):
            knob = movable[int(rng.random() * len(movable))]
            here = knob.choices.index(config[knob.name])
            there = int(rng.random() * (len(knob.choices) - 1))
            step = {**config, knob.name: knob.choices[there + (there >= here)]}
            if self.valid is None or self.valid(step):
                return step
        return config

    @functools.cached_property
    def _movable(self) -> list[Knob]:
        """The knobs that have a choice."""
        return [knob for knob in self.knobs if len(knob.choices) > 1]

    def repair(self, config: Config, rng: np.random.Generator, tries: int = 50) -> Config | None:
        """Return a valid configuration near `config`, which may break the constraint.

        Takes random steps of one knob each; returns None after `tries` steps without success.
        """
        for _ in range(tries):
            if self.valid is None or self.valid(config):
                return config
            knob = self.knobs[int(rng.integers(len(self.knobs)))]
            config = {**config, knob.name: knob.choices[int(rng.integers(len(knob.choices)))]}
        return None

    def __iter__(self) -> Iterator[Config]:
        """Yield every valid configuration, in the order of the knobs."""
        for digits in np.ndindex(*(len(knob.choices) for knob in self.knobs)):
            config = self.decode(digits)
            if self.valid is None or self.valid(config):
                yield config


def columns(configs: Sequence[Config]) -> dict[str, np.ndarray]:
    """Turn configurations of one space into one array per knob (see `Columns`)."""
    return {name: np.array([config[name] for config in configs]) for name in configs[0]}
