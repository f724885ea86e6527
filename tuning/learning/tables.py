"""Candidates as a cost model gets them: one kind of table for all programs that it learns from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hbtvm.cost_model.encode import Encoder
from hbtvm.cost_model.gaussian_process import FeatureSpace
from hbtvm.logs.record import Record
from hbtvm.schedules.space import Config, Space, columns
from hbtvm.tuning.explorers.base import Point
from hbtvm.tuning.learning.transfer import completed
from hbtvm.tuning.task import Describe

DescribeRecord = Callable[[Record], tuple[Describe, Space] | None]
"""Finds what describes programs of a record's workload, and its space; None if unknown."""

_DRAWN, _DRAWN_LOOPS = 64, 24
"""Candidates of each program whose spread gives features their units; fewer where each has to be lowered."""

_MANY = 256
"""Configurations from which on a list's features are kept."""


class Describable(Protocol):
    """What candidates are of; a `hbtvm.tuning.task.Task` is one."""

    @property
    def describe(self) -> Describe:
        """Describes the loops of a candidate."""
        ...

    @property
    def space(self) -> Space:
        """Where they come from."""
        ...

    @property
    def workload(self) -> Mapping[str, Any]:
        """The shapes that they are for."""
        ...


@dataclass(frozen=True, eq=False)
class Logged:
    """Records of one workload, target and strategy that this version understands (a `Describable`)."""

    describe: Describe
    space: Space
    records: Sequence[Record]

    @property
    def workload(self) -> Mapping[str, Any]:
        """The shapes that they are for."""
        return self.records[0].workload

    @property
    def configs(self) -> list[Config]:
        """What was measured."""
        return [dict(record.config) for record in self.records]


def understood(records: Sequence[Record], describe: DescribeRecord) -> Logged | None:
    """Those of the records, all of one program, whose configurations are in its space; None without any.

    A log may hold anything: whatever `describe` raises comes through.
    """
    found = describe(records[0]) if records else None
    if found is None:
        return None
    own, space = found
    whole = (completed(record, space) for record in records)
    known = [record for record in whole if space.contains(dict(record.config))]
    return Logged(own, space, known) if known else None


class Tables:
    """Makes tables of candidates that have the same columns for all of some programs.

    Parameters
    ----------
    kind
        Of features (see `hbtvm.cost_model.encode.Encoder`).
    programs
        Those that are to be told apart. Of another program, what it shares with them is known.
    """

    def __init__(self, kind: str, programs: Sequence[Describable]) -> None:
        self._programs = programs
        spaces = [{knob.name: knob.choices for knob in one.space.knobs} for one in programs]
        self._encode = Encoder(kind, spaces, [one.workload for one in programs])
        self._frame: FeatureSpace | None = None
        self._loops: dict[tuple[Describable, Point], np.ndarray] = {}
        self._listed: dict[Describable, tuple[Sequence[Config], np.ndarray]] = {}

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each block of features (see `hbtvm.cost_model.encode.Encoder.widths`)."""
        return self._encode.widths

    @property
    def reads_loops(self) -> bool:
        """Whether each new candidate has to be lowered."""
        return self._encode.reads_loops

    def of(self, program: Describable, configs: Sequence[Config]) -> np.ndarray:
        """Features of at least one of a program's configurations, float32, (n, D)."""
        loops = self._described(program, configs) if self.reads_loops else None
        return self._encode(columns(configs), len(configs), program.workload, loops)

    def listed(self, program: Describable, configs: Sequence[Config]) -> np.ndarray:
        """The same; of the last long list of each program it is remembered.

        An explorer that scores all of its space asks with the same list for each batch.
        """
        if len(configs) < _MANY:
            return self.of(program, configs)
        if program not in self._listed or self._listed[program][0] is not configs:
            self._listed[program] = configs, self.of(program, configs)
        return self._listed[program][1]

    def _described(self, program: Describable, configs: Sequence[Config]) -> np.ndarray:
        """Loop features of configurations, each lowered once for as long as this lives."""
        keys = [(program, program.space.encode(config)) for config in configs]
        new = {key: config for key, config in zip(keys, configs, strict=True) if key not in self._loops}
        rows = self._encode.loops([program.describe(config) for config in new.values()])
        self._loops.update(zip(new, rows, strict=True))
        return np.stack([self._loops[key] for key in keys])

    def frame(self) -> FeatureSpace:
        """In what units they are, by candidates of all programs drawn at random."""
        if self._frame is None:
            count = _DRAWN_LOOPS if self.reads_loops else _DRAWN
            drawn = [one.space.sample(np.random.default_rng(0), count) for one in self._programs]
            pairs = zip(self._programs, drawn, strict=True)
            known = [self.of(one, configs) for one, configs in pairs if configs]
            self._frame = FeatureSpace.of(np.concatenate(known), self.widths)
        return self._frame
