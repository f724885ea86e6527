"""Precomputed tables of leaf states that depend on a number alone.

Cortex computes equal leaves once per call (hoisting); a table computes them once for all calls.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hbtvm.recursive.cell import Input, Value
from hbtvm.recursive.reference import FUNCTIONS
from hbtvm.strategies.recursive.plan import Facts, with_values
from hbtvm.strategies.recursive.values import Values

_ROWS = 1024  # rows that are computed at a time


def number_of(facts: Facts) -> tuple[str, Input] | None:
    """Return the numeric input that determines all states, or None."""
    which = {value.start for value in facts.values if value.op == "embed"}
    inputs = [(name, input_) for name, (number, input_) in facts.inputs.items() if number in which]
    others = {"input", "child", "children", "there"} & {value.op for value in facts.values}
    vectors = all(len(facts.values[number].shape) == 1 for number in facts.states.values())
    return inputs[0] if len(inputs) == 1 and not others and vectors else None


def bytes_of(facts: Facts) -> int:
    """Return the size of the table in bytes; 0 without a table."""
    number = number_of(facts)
    return 0 if number is None else (number[1].size + 1) * facts.width * 4


def tabulated(facts: Facts) -> Facts:
    """Return facts of a cell that looks up its states."""
    number_input = number_of(facts)
    assert number_input is not None
    which, input_ = facts.inputs[number_input[0]]
    # The last row is for nodes without a number.
    rows = np.arange(input_.size + input_.optional)
    runs = np.split(rows, range(_ROWS, len(rows), _ROWS))
    parts = [_evaluated(facts, run) for run in runs]
    values = Values()
    states: dict[int, int] = {}
    for place, number in facts.states.items():
        # Repeat states that do not depend on the number.
        shape = facts.values[number].shape
        found_of = zip(runs, parts, strict=True)
        table = np.concatenate([np.broadcast_to(part[number], (len(run), *shape)) for run, part in found_of])
        states[place] = values.add(
            "embed", shape=shape, name=values.named(table), start=which, stop=input_.size
        )
    return with_values(facts, values, states)


def _evaluated(facts: Facts, rows: np.ndarray) -> list[np.ndarray]:
    """Return all values in float64, for each number: shape (n, ...)."""
    results: list[np.ndarray] = []
    for value in facts.values:
        results.append(_value_of(value, [results[operand] for operand in value.of], facts.weights, rows))
    return results


def _value_of(
    value: Value, of: list[np.ndarray], weights: Mapping[str, np.ndarray], rows: np.ndarray
) -> np.ndarray:
    if value.op == "embed":
        table = weights[value.name].astype(np.float64)
        return np.asarray(np.concatenate([table, np.zeros((1, table.shape[1]))])[rows])
    if value.op == "weight":
        return np.asarray(weights[value.name].astype(np.float64)[None])
    if value.op == "constant":
        return np.full((1,) + (1,) * 1, value.constant)
    if value.op == "matmul":
        if len(of[0]) == 1 and of[1].ndim == 2:
            return np.asarray(of[1] @ of[0][0].T)
        return np.asarray(of[0] @ of[1] if of[1].ndim > 2 else (of[0] @ of[1][:, :, None])[:, :, 0])
    if value.op == "concat":
        return np.concatenate([np.broadcast_to(array, (len(rows), *array.shape[1:])) for array in of], axis=1)
    if value.op == "reshape":
        return of[0].reshape(len(of[0]), *value.shape)
    if value.op == "slice":
        return of[0][:, value.start : value.stop]
    if value.op == "outer":
        return np.asarray(of[0][:, :, None] * of[1][:, None, :])
    return np.asarray(FUNCTIONS[value.op](*of))
