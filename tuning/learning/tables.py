"""Encode candidates for a cost model, with the same columns for all of its programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hbtvm.cost_model.encoding.encode import Encoder
from hbtvm.cost_model.models.gaussian_process import FeatureSpace
from hbtvm.logs.record import Record
from hbtvm.schedules.space import Config, Space, columns
from hbtvm.tuning.explorers.base import Point
from hbtvm.tuning.learning.transfer import completed
from hbtvm.tuning.task import Describe

DescribeRecord = Callable[[Record], tuple[Describe, Space] | None]
"""Returns the loops and the space of a record's workload; None if unknown."""

_DRAWN, _DRAWN_LOOPS = 64, 24
"""Random candidates of each program that scale the features; fewer where each must be lowered."""

_MANY = 256  # length of a list from which its features are cached


class Describable(Protocol):
    """A source of candidates, such as a `hbtvm.tuning.task.Task`."""

    @property
    def describe(self) -> Describe:
        """Describes the loops of a candidate."""
        ...

    @property
    def space(self) -> Space:
        """The space of the candidates."""
        ...

    @property
    def workload(self) -> Mapping[str, Any]:
        """The shapes."""
        ...


@dataclass(frozen=True, eq=False)
class Logged:
    """Records of one workload, target and strategy of this version's spaces (a `Describable`)."""

    describe: Describe
    space: Space
    records: Sequence[Record]

    @property
    def workload(self) -> Mapping[str, Any]:
        """The shapes."""
        return self.records[0].workload

    @property
    def configs(self) -> list[Config]:
        """The measured configurations."""
        return [dict(record.config) for record in self.records]


def understood(records: Sequence[Record], describe: DescribeRecord) -> Logged | None:
    """Return the records of one program whose configurations are in its space; None without any.

    Errors of `describe` are raised: a log may hold anything.
    """
    described = describe(records[0]) if records else None
    if described is None:
        return None
    loops, space = described
    whole = (completed(record, space) for record in records)
    known = [record for record in whole if space.contains(dict(record.config))]
    return Logged(loops, space, known) if known else None


class Tables:
    """Encodes candidates with the same columns for several programs.

    `kind`: kind of features (see `hbtvm.cost_model.encoding.encode.Encoder`).
    `programs`: the programs to tell apart. Other programs are encoded by the knobs that they share with
        these.
    """

    def __init__(self, kind: str, programs: Sequence[Describable]) -> None:
        self._programs = programs
        spaces = [{knob.name: knob.choices for knob in program.space.knobs} for program in programs]
        self._encode = Encoder(kind, spaces, [program.workload for program in programs])
        self._frame: FeatureSpace | None = None
        self._loops: dict[tuple[Describable, Point], np.ndarray] = {}
        self._listed: dict[Describable, tuple[Sequence[Config], np.ndarray]] = {}

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each block of features (see `hbtvm.cost_model.encoding.encode.Encoder.widths`)."""
        return self._encode.widths

    @property
    def reads_loops(self) -> bool:
        """Whether each new candidate must be lowered."""
        return self._encode.reads_loops

    def of(self, program: Describable, configs: Sequence[Config]) -> np.ndarray:
        """Return the features of configurations, float32, (n, D), for n ≥ 1."""
        loops = self._described(program, configs) if self.reads_loops else None
        return self._encode(columns(configs), len(configs), program.workload, loops)

    def listed(self, program: Describable, configs: Sequence[Config]) -> np.ndarray:
        """Return the features as `of`, cached for the last long list of each program.

        An explorer that scores its whole space passes the same list for each batch.
        """
        if len(configs) < _MANY:
            return self.of(program, configs)
        if program not in self._listed or self._listed[program][0] is not configs:
            self._listed[program] = configs, self.of(program, configs)
        return self._listed[program][1]

    def _described(self, program: Describable, configs: Sequence[Config]) -> np.ndarray:
        """Return loop features of configurations, lowering each once."""
        keys = [(program, program.space.encode(config)) for config in configs]
        new = {key: config for key, config in zip(keys, configs, strict=True) if key not in self._loops}
        rows = self._encode.loops([program.describe(config) for config in new.values()])
        self._loops.update(zip(new, rows, strict=True))
        return np.stack([self._loops[key] for key in keys])

    def frame(self) -> FeatureSpace:
        """Return the scales of the features, from random candidates of all programs."""
        if self._frame is None:
            count = _DRAWN_LOOPS if self.reads_loops else _DRAWN
            drawn = [program.space.sample(np.random.default_rng(0), count) for program in self._programs]
            pairs = zip(self._programs, drawn, strict=True)
            known = [self.of(program, configs) for program, configs in pairs if configs]
            self._frame = FeatureSpace.of(np.concatenate(known), self.widths)
        return self._frame
