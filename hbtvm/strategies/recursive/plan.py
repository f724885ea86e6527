"""Facts of a cell from which steps are made: values, layout of states, inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm.recursive.cell import Cell, Input, Value
from hbtvm.strategies.recursive.nests import Nests, flat, nests_of
from hbtvm.strategies.recursive.normalise import normalised
from hbtvm.strategies.recursive.values import Values


@dataclass(frozen=True)
class Facts:
    """A cell for one class of nodes."""

    # `values`, `weights`: in normal form
    values: Sequence[Value]
    weights: Mapping[str, np.ndarray]
    states: Mapping[int, int]  # by place in a row of states: the number of the value stored there
    nests: Nests  # of these values
    # `offsets`, `width`: where each state starts in a row, and the row's numbers, S
    offsets: Mapping[str, int]
    width: int
    children: int | None  # number of places; None for any number
    inputs: Mapping[str, tuple[int, Input]]  # by name: number and facts


def offsets_of(cell: Cell) -> tuple[dict[str, int], int]:
    """Return each state's start in a row of states, and the row's width."""
    offsets, at = {}, 0
    for name, shape in cell.states.items():
        offsets[name] = at
        at += flat(shape)
    return offsets, at


def facts_of(cell: Cell, childless: bool = False) -> Facts:
    """Return the facts of a cell's nodes with or without children."""
    outputs = cell.leaf if childless and cell.leaf is not None else cell.inner
    values, numbers = normalised(cell, outputs, childless)
    offsets, width = offsets_of(cell)
    states = {offsets[name]: number for name, number in numbers.items()}
    inputs = {name: (number, input_) for number, (name, input_) in enumerate(cell.inputs.items())}
    return Facts(
        values.list,
        values.weights,
        states,
        nests_of(values.list, states),
        offsets,
        width,
        cell.children,
        inputs,
    )


def with_values(facts: Facts, values: Values, states: Mapping[int, int], **more: Any) -> Facts:
    """Return facts with other values and states; `more` replaces further fields."""
    return replace(
        facts,
        values=values.list,
        weights=values.weights,
        states=dict(states),
        nests=nests_of(values.list, states),
        **more,
    )
