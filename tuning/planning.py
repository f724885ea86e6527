"""Choose all candidates of a search before any is measured, for another machine to measure.

Nothing is learned meanwhile, so the candidates cover more of the space. With a log of these tasks the cost
model chooses, and a second round equals a search's next batches; without, candidates are first guesses and
random ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import Point
from hbtvm.tuning.state import TaskState

_NEAR = 1 / 3  # largest share of candidates that differ from the task's best in one knob

_BEHIND, _LESS = 2.0, 0.25
"""Slowdown against the group's fastest task beyond which a task gets fewer candidates, and its share then."""


def spread(
    states: Sequence[TaskState], first: Sequence[tuple[TaskState, Config]], count: int
) -> list[tuple[TaskState, Config]]:
    """Choose candidates, best first, each task in turn.

    `states`: the tasks and their results.
    `first`: first guesses, in order.
    `count`: candidates in all; fewer if the spaces are exhausted.
    """
    chosen: dict[int, dict[Point, Config]] = {state.index: {} for state in states}
    for state, config in first[:count]:
        chosen[state.index][state.task.space.encode(config)] = config
    left = count - sum(map(len, chosen.values()))
    open_ = list(states)
    while left > 0 and open_:
        weights = [_weight(state, states) for state in open_]
        for state, weight in zip(list(open_), weights, strict=True):
            share = min(max(1, round(left * weight / sum(weights))), count - _total(chosen))
            new = _more(state, chosen[state.index], share) if share > 0 else {}
            chosen[state.index].update(new)
            if len(new) < share:
                open_.remove(state)
        left = count - _total(chosen)
    queues = [list(chosen[state.index].values()) for state in states]
    longest = max(map(len, queues), default=0)
    return [
        (state, queue[at])
        for at in range(longest)
        for state, queue in zip(states, queues, strict=True)
        if at < len(queue)
    ]


def _total(chosen: Mapping[int, Mapping[Point, Config]]) -> int:
    return sum(map(len, chosen.values()))


def _weight(state: TaskState, states: Sequence[TaskState]) -> float:
    """Return a task's share of candidates, relative to the others."""
    fastest = min(rival.best for rival in states if rival.task.group == state.task.group)
    behind = math.isfinite(fastest) and math.isfinite(state.best) and state.best > _BEHIND * fastest
    return _LESS if behind else 1.0


def _more(state: TaskState, known: Mapping[Point, Config], count: int) -> dict[Point, Config]:
    """Return up to `count` new candidates: neighbours of the task's best, then its explorer's proposals."""
    space = state.task.space
    taken: dict[Point, float] = {**state.measured, **dict.fromkeys(known, math.inf)}
    new: dict[Point, Config] = {}
    best: Point | None = min(state.measured, key=lambda point: state.measured[point], default=None)
    base: Config | None = next(iter(known.values()), None)
    if best is not None and math.isfinite(state.measured[best]):
        base = space.decode(best)
    if base is not None:
        for config in neighbours(space, base):
            point = space.encode(config)
            if point not in taken and len(new) < _NEAR * count:
                new[point] = config
    taken |= dict.fromkeys(new, math.inf)
    if len(new) < count:
        for config in state.explorer.propose(count - len(new), taken):
            new[space.encode(config)] = config
    return new


def neighbours(space: Space, config: Config) -> list[Config]:
    """Return the valid configurations that differ in one knob, nearest choices of each knob first."""
    steps: list[tuple[int, int, Config]] = []
    for number, knob in enumerate(space.knobs):
        here = knob.choices.index(config[knob.name])
        for there, choice in enumerate(knob.choices):
            step = {**config, knob.name: choice}
            if there != here and (space.valid is None or space.valid(step)):
                steps.append((abs(there - here), number, step))
    return [step for _, _, step in sorted(steps, key=lambda entry: entry[:2])]
