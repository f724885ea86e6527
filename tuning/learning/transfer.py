"""First guesses for a task from the log's records of similar workloads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.logs.query import best, drawn
from hbtvm.logs.record import Record, canonical
from hbtvm.logs.targets import target_key
from hbtvm.schedules.space import Choice, Config, Knob, Space
from hbtvm.tuning.task import Task

_OTHER_TARGET = 4.0  # as far as two sizes that differ by a factor of 16
_OTHER_STRATEGY = 8.0


def distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Return the sum of the factors of two between two workloads' numbers.

    Any other difference counts as a factor of two.
    """
    return sum(_distance(a.get(key), b.get(key)) for key in a.keys() | b.keys())


def _distance(a: object, b: object) -> float:
    if isinstance(a, int | float) and isinstance(b, int | float) and a > 0 and b > 0:
        ratio = a / b
        return abs(math.log2(ratio)) if 0 < ratio < math.inf else math.inf
    return float(a != b)


def nearest(groups: Iterable[Sequence[Record]], tasks: Sequence[Task], count: int) -> list[Sequence[Record]]:
    """Return the `count` groups of records most similar to any of the tasks, the most similar first.

    A group has one workload, target and strategy. Other kinds of targets and families of workloads are left
    out.
    """
    ranked: list[tuple[float, int, Sequence[Record]]] = []
    wanted = [(task, target_key(task.target)) for task in tasks]
    for place, group in enumerate(groups):
        record = group[0]
        away = [
            distance(task.workload, record.workload)
            + _OTHER_TARGET * (record.target_key != target)
            + _OTHER_STRATEGY * (record.strategy != task.strategy)
            for task, target in wanted
            if record.target.get("kind") == task.target.get("kind")
            and record.workload.get("family") == task.workload.get("family")
        ]
        if away:
            ranked.append((min(away), place, group))
    return [group for _, _, group in sorted(ranked, key=lambda entry: entry[:2])[:count]]


def seeds(task: Task, records: Iterable[Record], count: int) -> list[Config]:
    """Translate the best configurations of the most similar workloads to a task's space.

    `task`: only records of its strategy and kind of target, but of another workload or target, are used.
    `records`: a log.
    `count`: most configurations to return.
    Returns distinct configurations of the task's space, from the most similar workload first.
    """
    task_key = canonical(task.workload), target_key(task.target)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        # Most records are of other strategies; keys take longest to compute.
        if record.strategy != task.strategy or record.target.get("kind") != task.target.get("kind"):
            continue
        key = record.workload_key, record.target_key
        if key != task_key and not drawn(record):
            groups.setdefault(key, []).append(record)
    ranked: list[tuple[float, tuple[str, str], Config]] = []
    for key, group in groups.items():
        winner = best(group)
        if winner is not None:
            away = distance(task.workload, winner.workload) + _OTHER_TARGET * (key[1] != task_key[1])
            ranked.append((away, key, dict(winner.config)))
    configs: list[Config] = []
    for _, _, config in sorted(ranked, key=lambda entry: entry[:2]):
        fitted = translate(config, task.space, task.initial[0] if task.initial else None)
        if fitted is not None and fitted not in configs:
            configs.append(fitted)
        if len(configs) == count:
            break
    return configs


def completed(record: Record, space: Space) -> Record:
    """Complete a record with the implied choices of knobs that are newer than it."""
    config = space.completed(record.config)
    return record if config == record.config else replace(record, config=config)


def translate(config: Mapping[str, Choice], space: Space, default: Config | None) -> Config | None:
    """Return the configuration of a space that is nearest to a configuration of another space.

    Numbers become the nearest choice by ratio; missing knobs and unknown choices take the default's choice.
    Returns None without a default for such a knob, or if no valid configuration is near.
    """
    fitted: Config = {}
    config = space.completed(config)
    for knob in space.knobs:
        choice = _fit(config[knob.name], knob) if knob.name in config else None
        if choice is None and default is not None:
            choice = default[knob.name]
        if choice is None:
            return None
        fitted[knob.name] = choice
    # The choices may be invalid together here; the seed makes the repair deterministic.
    return space.repair(fitted, np.random.default_rng(0))


def _fit(choice: Choice, knob: Knob) -> Choice | None:
    for offered in knob.choices:
        if offered == choice and type(offered) is type(choice):
            return offered
    numbers = [offered for offered in knob.choices if type(offered) is int and offered > 0]
    if type(choice) is int and choice > 0 and numbers:
        return min(numbers, key=lambda offered: abs(math.log(offered / choice)))
    return None
