"""Reference of recursive models, node by node in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.operators import pointwise
from hbtvm.recursive.cell import Cell, Layer, Readout, RecursiveModel, Value
from hbtvm.recursive.validate import needed
from hbtvm.runtime.recursive.structures import Structures


def states(cell: Cell, structures: Structures) -> dict[str, np.ndarray]:
    """Return the states of all nodes by name: float64, shape (N, ...).

    Raises `InputError` if there is a cycle.
    """
    weights = {name: array.astype(np.float64) for name, array in cell.weights.items()}
    count = len(structures.first) - 1
    rows = {name: np.zeros((count, *shape)) for name, shape in cell.states.items()}
    for node in order(structures):
        places = structures.child[structures.first[node] : structures.first[node + 1]].tolist()
        for name, value in _node(cell, weights, rows, structures.inputs, node, places).items():
            rows[name][node] = value
    return rows


def order(structures: Structures) -> Iterator[int]:
    """Yield nodes, children before parents."""
    count = len(structures.first) - 1
    done = np.zeros(count, bool)
    for start in range(count):
        stack = [] if done[start] else [start]
        waits: set[int] = set()
        while stack:
            node = stack[-1]
            children = structures.child[structures.first[node] : structures.first[node + 1]]
            open_ones = [int(child) for child in children if child >= 0 and not done[child]]
            if not open_ones:
                stack.pop()
                if not done[node]:
                    done[node] = True
                    yield node
            elif node in waits:
                structure = int(np.searchsorted(structures.starts, node, "right")) - 1
                number = node - int(structures.starts[structure])
                raise InputError(f"structure {structure}, node {number}: it depends on itself")
            else:
                waits.add(node)
                stack += open_ones


def _node(
    cell: Cell,
    weights: Mapping[str, np.ndarray],
    computed: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    node: int,
    places: list[int],
) -> dict[str, np.ndarray]:
    has_children = any(child >= 0 for child in places)
    outputs = cell.leaf if cell.leaf is not None and not has_children else cell.inner
    numbers = needed(cell.values, outputs.values())
    values = values_of(cell, computed, inputs, node, places, numbers, weights)
    return {name: values[number] for name, number in outputs.items()}


def values_of(
    cell: Cell,
    computed: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    node: int,
    places: list[int],
    numbers: Iterable[int] | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
) -> dict[int, Any]:
    """Return the values of a cell at a node, by number: float64; a list for per-child values.

    `computed`: states of all nodes, by name.
    `places`: the node's children; -1 for none.
    `numbers`: numbers of the values to compute, in order, operands included; by default all.
    `weights`: the cell's weights, in float64.
    """
    if weights is None:
        weights = {name: array.astype(np.float64) for name, array in cell.weights.items()}
    existing = [child for child in places if child >= 0]
    values: dict[int, Any] = {}
    names = list(cell.inputs)
    for number in range(len(cell.values)) if numbers is None else numbers:
        value = cell.values[number]
        if value.op == "child":
            child = places[value.start] if value.start < len(places) else -1
            values[number] = computed[value.name][child] if child >= 0 else np.zeros(value.shape)
        elif value.op == "children":
            values[number] = [computed[value.name][child] for child in existing]
        elif value.op == "weight":
            values[number] = weights[value.name]
        elif value.op == "embed":
            row = int(inputs[names[value.start]][node])
            values[number] = weights[value.name][row] if row >= 0 else np.zeros(value.shape)
        elif value.op == "input":
            values[number] = inputs[value.name][node].astype(np.float64)
        elif value.op in ("total", "most"):
            terms = values[value.of[0]]
            reduced = np.sum if value.op == "total" else np.max
            values[number] = reduced(terms, axis=0) if existing else np.zeros(value.shape)
        else:
            values[number] = _computed(cell, value, values, len(existing))
    return values


def _computed(cell: Cell, value: Value, values: Mapping[int, Any], children: int) -> Any:
    if not value.per_child:
        return apply(value, *(values[operand] for operand in value.of))
    columns = [
        values[operand] if cell.values[operand].per_child else [values[operand]] * children
        for operand in value.of
    ]
    return [apply(value, *row) for row in zip(*columns, strict=True)]


def apply(value: Value, *of: Any) -> Any:
    """Apply an operator to float64 arrays."""
    if value.op == "constant":
        return np.full(value.shape, value.constant)
    if value.op == "slice":
        return of[0][value.start : value.stop]
    if value.op == "reshape":
        return of[0].reshape(value.shape)
    if value.op == "concat":
        return np.concatenate(of)
    return FUNCTIONS[value.op](*of)


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    result: np.ndarray = powers / powers.sum(axis=-1, keepdims=True)
    return result


_POINTWISE = {
    **{name: name for name in ("exp", "relu", "sigmoid", "tanh")},
    "neg": "negative",
    "abs": "absolute",
    "max": "maximum",
    "min": "minimum",
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
}
"""Names in `hbtvm.operators.pointwise.FUNCTIONS` by pointwise operator."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{op: pointwise.FUNCTIONS[name] for op, name in _POINTWISE.items()},
    "matmul": np.matmul,
    "softmax": _softmax,
    "outer": np.multiply.outer,
}
"""Functions of one node's arrays, by operator."""


def readout(
    cell: Cell, how: Readout, structures: Structures, computed: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Return the readout of states: float64, shape (results, numbers of the state)."""
    values = computed[how.state].reshape(len(structures.first) - 1, -1)
    if how.over == "nodes":
        return values
    if how.over == "roots":
        chosen: np.ndarray = values[roots(structures)]
        return chosen
    spans = zip(structures.starts[:-1], structures.starts[1:], strict=True)
    reductions: dict[str, Callable[..., Any]] = {"total": np.sum, "mean": np.mean, "most": np.max}
    reduced = reductions[how.over]
    # A structure without nodes gives zeros.
    results = [reduced(values[a:b] if b > a else np.zeros((1, values.shape[1])), axis=0) for a, b in spans]
    return np.array(results).reshape(-1, values.shape[1])


def roots(structures: Structures) -> np.ndarray:
    """Return the nodes without parents, in order."""
    count = len(structures.first) - 1
    free = np.ones(count, bool)
    free[structures.child[structures.child >= 0]] = False
    return np.flatnonzero(free)


def layered(layers: tuple[Layer, ...], x: np.ndarray) -> np.ndarray:
    """Apply the layers after a readout."""
    for layer in layers:
        if layer.op == "linear":
            assert layer.weight is not None
            x = x @ layer.weight.astype(np.float64).T + (0 if layer.bias is None else layer.bias)
        else:
            x = FUNCTIONS[layer.op](x)
    return x


def scores(model: RecursiveModel, structures: Structures) -> np.ndarray:
    """Return a model's outputs for structures: float64, shape (results, outputs)."""
    computed = states(model.cell, structures)
    return layered(model.layers, readout(model.cell, model.readout, structures, computed))
