"""A tuning task: one strategy for one workload on one target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hbtvm.cost_model.encoding.nest import Nest
from hbtvm.schedules.space import Config, Space

Describe = Callable[[Config], Nest]
"""Lowers a configuration's program and describes its loops; takes milliseconds."""


@dataclass(frozen=True, eq=False)
class Task:
    """A tensor program and the space of its configurations."""

    name: str  # shown to users; unique within a run
    # The shapes that determine a configuration's speed. JSON; part of the log's key.
    workload: Mapping[str, Any]
    target: Mapping[str, Any]  # the machine to compile for. JSON; part of the log's key.
    strategy: str  # the algorithm; part of the log's key
    group: str  # tasks of a group compete: only the fastest of, say, a batch size is used
    space: Space
    describe: Describe  # describes a configuration's program, for cost models that learn on loops
    # The factory that workers call, ``"package.module:attribute"`` (see `hbtvm.tuning.measuring.program`)
    program: str
    payload: dict[str, Any]  # the factory's argument. JSON, because it travels to other processes.
    initial: tuple[Config, ...] = ()  # configurations to measure first
