"""Cells in normal form, evaluated node by node in float64: what kernels are made from, without kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.recursive import reference
from hbtvm.recursive.cell import Cell, Value
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.values import THERE


def states(
    structures: Structures, inner: Facts, leaf: Facts, first: Facts | None = None
) -> dict[str, np.ndarray]:
    """States of all nodes by name, products among them: shape (N, ...).

    Parameters
    ----------
    first
        Of nodes whose children are leaves; `inner`, if left out.
    """
    names = {at: name for name, at in leaf.offsets.items()}
    shapes = {names[at]: leaf.values[number].shape for at, number in leaf.states.items()}
    found = {name: np.zeros((len(structures.first) - 1, *shape)) for name, shape in shapes.items()}
    levels = np.zeros(len(structures.first) - 1, int)
    for node in reference.order(structures):
        places = structures.child[structures.first[node] : structures.first[node + 1]].tolist()
        levels[node] = max((1 + levels[child] for child in places if child >= 0), default=0)
        facts = leaf if not levels[node] else first if first and levels[node] == 1 else inner
        values = evaluated(facts, found, structures.inputs, node, places)
        for name in found:
            # What a class of nodes does not make, no other may read.
            number = facts.states.get(facts.offsets[name])
            found[name][node] = np.nan if number is None else values[number]
    return found


def evaluated(
    facts: Facts,
    found: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    node: int,
    places: list[int],
) -> dict[int, Any]:
    """All values at a node, by number.

    Parameters
    ----------
    found
        States of all nodes, by name.
    places
        The node's children; -1 for none.
    """
    there = [place < len(places) and places[place] >= 0 for place in range(facts.children or 0)]
    values = [
        Value("constant", constant=float(there[one.start])) if one.op == THERE else one
        for one in facts.values
    ]
    own = {name: one for name, (_, one) in facts.inputs.items()}
    cell = Cell("", facts.children, {}, own, facts.weights, tuple(values), {})
    return reference.values_of(cell, found, _rows(facts, inputs), node, places)


def _rows(facts: Facts, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs, where the last row of tables that have one is that of nodes without a number."""
    given = dict(inputs)
    for name, (which, own) in facts.inputs.items():
        tables = [facts.weights[one.name] for one in facts.values if one.op == "embed" and one.start == which]
        if any(len(table) > own.size for table in tables):
            given[name] = np.where(inputs[name] < 0, own.size, inputs[name])
    return given


def compare(cell: Cell, structures: Structures, *classes: Facts | None, tolerance: float = 1e-5) -> None:
    """A cell's states are those that its classes of nodes (`inner`, `leaf`, `first`) give."""
    inputs = {name: structures.inputs[name] for name in cell.inputs}
    structures = replace(structures, inputs=inputs)
    expected, result = reference.states(cell, structures), states(structures, *classes)  # type: ignore[arg-type]
    for name, right in expected.items():
        scale = max(1.0, float(np.abs(right).max()))
        np.testing.assert_allclose(result[name], right, rtol=0, atol=tolerance * scale)
