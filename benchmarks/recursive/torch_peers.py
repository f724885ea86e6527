"""torch node by node, level by level, the same through its compiler, and by its layers for sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.recursive.jobs import Job, Ready
from benchmarks.recursive.torch_cells import CELLS, State, TorchCell

Step = Callable[[list[torch.Tensor], list[torch.Tensor], torch.Tensor | None], State]


def _cell(job: Job) -> TorchCell:
    torch.set_num_threads(job.threads)
    return CELLS[job.model]({name: torch.from_numpy(one) for name, one in job.weights.items()})


def node(job: Job) -> Ready:
    """A call of the cell for each node, as most code that is published does it."""
    cell, linear = _cell(job), job.linear
    words = linear.words.tolist()
    children = [[one for one in own if one >= 0] for own in linear.child.tolist()]
    fed = torch.from_numpy(linear.words if cell.everywhere else linear.words[linear.leaf])

    def run() -> list[State]:
        x, states = cell.inputs(fed), list[State]()
        for at, own in enumerate(children):
            if own:
                states.append(cell.inner([states[one] for one in own], x[at] if cell.everywhere else None))
            else:
                states.append(cell.leaf(x[at], words[at]))
        return states

    return _ready(lambda: [one[0] for one in run()], linear.roots.tolist(), torch.stack)


def _ready(run: Callable[[], Any], roots: Any, take: Callable[[Any], Any]) -> Ready:
    def call() -> Any:
        with torch.inference_mode():
            found = run()
            return take([found[one] for one in roots]) if isinstance(found, list) else found[roots]

    def states() -> Any:
        with torch.inference_mode():
            found = run()
            return take(found) if isinstance(found, list) else found

    return Ready(call, states)


def level(job: Job) -> Ready:
    """The cell once for each level of all structures, written by hand; structures are linearised before."""
    return _levels(job, lambda step: step)


def compiled(job: Job) -> Ready:
    """As `level`, where a level's step goes through ``torch.compile`` with dynamic shapes."""
    return _levels(job, lambda step: torch.compile(step, dynamic=True))


def _levels(job: Job, through: Callable[[Step], Step]) -> Ready:
    cell, linear = _cell(job), job.linear
    h, count = cell.hidden, linear.nodes
    # Children that are not there read a row of zeros behind the last node's.
    lacking = bool((linear.child[~linear.leaf] < 0).any())
    places = torch.from_numpy(linear.child).T
    places = torch.where(places >= 0, places, count)
    parts = [(a, b, [one[a:b].contiguous() for one in places]) for a, b in linear.levels[1:]]
    first = linear.levels[0][1]
    words = torch.from_numpy(linear.words)
    fed = words if cell.everywhere else words[:first]
    shapes = {"mvrnn": [(h,), (h, h)], "treelstm": [(h,)] * 2, "lstm": [(h,)] * 2}.get(job.model, [(h,)])

    def step(states: list[torch.Tensor], children: list[torch.Tensor], x: torch.Tensor | None) -> State:
        return cell.inner([tuple(one[rows] for one in states) for rows in children], x)

    taken = through(step)

    def run() -> torch.Tensor:
        states = [torch.empty((count + lacking, *shape)) for shape in shapes]
        if lacking:
            for one in states:
                one[count] = 0
        x = cell.inputs(fed)
        for one, value in zip(states, cell.leaf(x[:first], words[:first]), strict=True):
            one[:first] = value
        for a, b, children in parts:
            made = taken(states, children, x[a:b] if cell.everywhere else None)
            for one, value in zip(states, made, strict=True):
                one[a:b] = value
        return states[0][:count]

    return _ready(run, torch.from_numpy(linear.roots), torch.stack)


def layer(job: Job) -> Ready:
    """``torch.nn.RNN``, ``LSTM`` or ``GRU``, from words to states; sequences are of one length."""
    kinds = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
    torch.set_num_threads(job.threads)
    w = {name: torch.from_numpy(one) for name, one in job.weights.items()}
    made = kinds[job.model](job.hidden, job.hidden)
    made.load_state_dict({f"{name}_l0": one for name, one in w.items() if name != "words"})
    words = torch.from_numpy(job.linear.words).view(-1, job.size)

    def run() -> torch.Tensor:
        out: torch.Tensor = made(w["words"][words])[0]
        return out.view(-1, job.hidden)

    return _ready(run, torch.from_numpy(job.linear.roots), torch.stack)
