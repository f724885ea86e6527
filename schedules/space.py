"""Knob spaces: the choices that a schedule leaves open, and how to walk among them.

A *configuration* assigns one choice to each knob. A space holds the knobs and a
constraint that says which combinations make sense; everything that searches
(`tuning`) sees only this, never a tensor program.
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

    `name`: what the decision is about, e.g. ``"row_tile"``.
    `choices`: the values it may take, all of one type; for numbers in rising order, so that neighbours in the
        tuple are neighbours in meaning.
    `before`: of a knob that is newer than logs: the choice that configurations without it stand for.
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
        """Whether a choice is one of the knob's, of the same type: ``True`` is not 1."""
        return type(choice) is type(self.choices[0]) and choice in self.choices


@dataclass(frozen=True)
class Space:
    """The configurations that one schedule accepts on one target.

    `knobs`: the decisions, in a fixed order.
    `valid`: tells whether a configuration makes sense; ``None`` accepts every combination.
    """

    knobs: tuple[Knob, ...]
    valid: Callable[[Config], bool] | None = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """Number of combinations, before the constraint."""
        return math.prod(len(knob.choices) for knob in self.knobs)

    def decode(self, digits: Sequence[int]) -> Config:
        """Configuration at these positions, one for each knob."""
        return {knob.name: knob.choices[d] for knob, d in zip(self.knobs, digits, strict=True)}

    def encode(self, config: Config) -> tuple[int, ...]:
        """Positions of a configuration's choices; the inverse of `decode`.

        Raises `KeyError` if a knob is missing; `ValueError` if a choice is not in its knob's list.
        """
        return tuple(knob.choices.index(config[knob.name]) for knob in self.knobs)

    def completed(self, config: Mapping[str, Choice]) -> Config:
        """The configuration with those knobs that there were not yet when it was logged (`Knob.before`)."""
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

        Fewer come back only where `tries` draws for each did not find as many.
        """
        found: dict[tuple[int, ...], Config] = {}
        sizes = [len(knob.choices) for knob in self.knobs]
        left = tries * count
        while left > 0 and len(found) < min(count, self.size):
            drawn = min(left, 2 * (count - len(found)))
            left -= drawn
            # Number by number, drawing would take longer than all else.
            for row in rng.integers(sizes, size=(drawn, len(sizes))).tolist():
                digits = tuple(row)
                if digits in found or len(found) == count:
                    continue
                config = self.decode(digits)
                if self.valid is None or self.valid(config):
                    found[digits] = config
        return list(found.values())

    def mutate(self, config: Config, rng: np.random.Generator, tries: int = 50) -> Config:
        """A valid neighbour that differs in one knob (the step of simulated annealing).

        Returns the configuration itself where no valid neighbour was found.
        """
        movable = self._movable
        # A float is drawn several times faster than an integer below a bound, and chains draw by the 10,000.
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
        """A valid configuration near one that may break the constraint.

        Random steps of one knob each lead to it; None where `tries` of them did not.
        """
        for _ in range(tries):
            if self.valid is None or self.valid(config):
                return config
            knob = self.knobs[int(rng.integers(len(self.knobs)))]
            config = {**config, knob.name: knob.choices[int(rng.integers(len(knob.choices)))]}
        return None

    def __iter__(self) -> Iterator[Config]:
        """Every valid configuration, in the order of the knobs."""
        for digits in np.ndindex(*(len(knob.choices) for knob in self.knobs)):
            config = self.decode(digits)
            if self.valid is None or self.valid(config):
                yield config


def columns(configs: Sequence[Config]) -> dict[str, np.ndarray]:
    """Turn configurations of one space into one array per knob (see `Columns`)."""
    return {name: np.array([config[name] for config in configs]) for name in configs[0]}
