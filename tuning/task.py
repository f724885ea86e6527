"""What is tuned: one strategy for one workload on one target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hbtvm.cost_model.nest import Nest
from hbtvm.schedules.space import Config, Space

Describe = Callable[[Config], Nest]
"""Lowers the program of one configuration, and describes its loops: milliseconds."""


@dataclass(frozen=True, eq=False)
class Task:
    """One tensor program with its open choices.

    Attributes
    ----------
    name
        For people; unique within a run.
    workload
        The shapes that decide how fast a configuration is. JSON-able; part of the log's key.
    target
        The machine that it is compiled for. JSON-able; part of the log's key.
    strategy
        The way the program goes about its work; part of the log's key.
    group
        Tasks of one group are alternative ways to the same end (e.g. one batch size), of
        which only the fastest is wanted.
    space
        The choices left open.
    describe
        Describes a configuration's program, for a cost model that learns on loops; others never ask.
    program
        The factory that workers call, ``"package.module:attribute"`` (see `hbtvm.tuning.measuring.program`).
    payload
        What the factory gets. JSON-able, as it travels to other processes.
    initial
        Configurations to measure first, e.g. a good guess.
    """

    name: str
    workload: Mapping[str, Any]
    target: Mapping[str, Any]
    strategy: str
    group: str
    space: Space
    describe: Describe
    program: str
    payload: dict[str, Any]
    initial: tuple[Config, ...] = ()
