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
from hbtvm.tuning.task import Describe

DescribeRecord = Callable[[Record], tuple[Describe, Space] | None]
"""Finds the space of a record's workload and what describes its loops; None if unknown."""

_DRAWN = 256
"""Candidates of each program whose spread gives features their units."""


class Describable(Protocol):
    """What candidates are of; a `hbtvm.tuning.task.Task` is one."""

    @property
    def loops(self) -> Describe:
        """Describes the loops of candidates."""
        ...

    @property
    def space(self) -> Space:
        """Where they come from."""
        ...

    @property
    def workload(self) -> Mapping[str, Any]:
        """The shapes that they are for."""
        ...


@dataclass(frozen=True)
class Logged:
    """Records of one workload, target and strategy that this version understands (a `Describable`)."""

    loops: Describe
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
    loops, space = found
    known = [record for record in records if space.contains(dict(record.config))]
    return Logged(loops, space, known) if known else None


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

    @property
    def widths(self) -> tuple[int, ...]:
        """Columns of each block of features (see `hbtvm.cost_model.encode.Encoder.widths`)."""
        return self._encode.widths

    def of(self, program: Describable, configs: Sequence[Config]) -> np.ndarray:
        """Features of at least one of a program's configurations, float32, (n, D)."""
        return self._encode(program.loops, columns(configs), len(configs), program.workload)

    def frame(self) -> FeatureSpace:
        """In what units they are, by candidates of all programs drawn at random."""
        if self._frame is None:
            drawn = [one.space.sample(np.random.default_rng(0), _DRAWN) for one in self._programs]
            pairs = zip(self._programs, drawn, strict=True)
            known = [self.of(one, configs) for one, configs in pairs if configs]
            self._frame = FeatureSpace.of(np.concatenate(known), self.widths)
        return self._frame
