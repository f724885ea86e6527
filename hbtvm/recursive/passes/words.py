"""What depends on a node's number alone: states of leaves, and products with the row that it picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.cell import Cell, Value
from hbtvm.recursive.passes.leaves import leaf_cell
from hbtvm.recursive.passes.rewriting import Maker, Rewritten, without_dead
from hbtvm.recursive.reference import apply
from hbtvm.recursive.validate import needed


def by_word(cell: Cell) -> dict[str, str | None]:
    """States of nodes without children that depend on one input of kind number alone.

    Returns
    -------
    By the state's name, the input's; None of a state that is the same at all of these nodes.
    """
    return _by_word(leaf_cell(cell).cell)


def leaf_table(cell: Cell, states: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The states of nodes without children for each number of an input, in float64.

    Parameters
    ----------
    states
        Which, all of one input; all of the cell's, if left out.

    Returns
    -------
    By name: shape (numbers, ...); of an optional input with a last row, that of -1. Of a state that is the
    same for all numbers, such rows, too.

    Raises
    ------
    ModelError
        If a state depends on more than that.
    """
    special = leaf_cell(cell).cell
    assert special.leaf is not None
    found = _by_word(special)
    states = list(special.states) if states is None else list(states)
    for name in states:
        if name not in found:
            raise ModelError(f"state {name!r} of leaves depends on more than one input's number")
    inputs = {one for name in states if (one := found[name]) is not None}
    if len(inputs) > 1:
        raise ModelError(f"states of leaves depend on the numbers of {' and '.join(sorted(inputs))}")
    source = special.inputs[next(iter(inputs))] if inputs else None
    rows = 1 if source is None else source.size + source.optional
    outputs = {name: special.leaf[name] for name in states}
    values: dict[int, np.ndarray] = {}
    for number in needed(special.values, outputs.values()):
        values[number] = _of_all(
            special, special.values[number], values, source is not None and source.optional
        )
    return {
        name: np.broadcast_to(values[one], (rows, *special.states[name])) for name, one in outputs.items()
    }


def products_of_inputs(cell: Cell, most_bytes: int = 1 << 24) -> Rewritten:
    """Replace products of a weight and the row that a number picks by rows of a table of products.

    Parameters
    ----------
    most_bytes
        Largest that all tables together may be; they are made in the order of values.
    """
    maker, new = Maker(cell.weights), list[int]()
    told, free = list[str](), most_bytes
    tables: set[str] = set()
    for value in cell.values:
        of = tuple(new[one] for one in value.of)
        made = replace(value, of=of)
        if value.op == "matmul" and len(value.shape) == 1:
            left, right = (maker.values[one] for one in of)
            if left.op == "weight" and right.op == "embed":
                weight, table = maker.weights[left.name], maker.weights[right.name]
                name = f"{right.name} by {left.name}"
                size = 0 if name in tables else 4 * len(table) * len(weight)
                names = f"{left.name!r} with rows of {right.name!r}"
                if size <= free:
                    products = (table.astype(np.float64) @ weight.astype(np.float64).T).astype(np.float32)
                    made = replace(right, name=maker.named(name, products), shape=value.shape)
                    free -= size
                    if name not in tables:
                        told.append(f"Products of {names} are a table of {size:,} bytes.")
                    tables.add(name)
                else:
                    told.append(f"Products of {names} stay: a table takes {size:,} bytes, {free:,} are left.")
        new.append(maker.put(made))
    if not told:
        return Rewritten(cell)
    result = replace(
        cell,
        values=tuple(maker.values),
        weights=maker.weights,
        inner={name: new[one] for name, one in cell.inner.items()},
        leaf=None if cell.leaf is None else {name: new[one] for name, one in cell.leaf.items()},
    )
    return Rewritten(without_dead(result).cell, tuple(told))


def _by_word(special: Cell) -> dict[str, str | None]:
    """As `by_word`, of a cell that has been specialised."""
    assert special.leaf is not None
    names, found = list(special.inputs), dict[str, str | None]()
    for state, output in special.leaf.items():
        used = [special.values[one] for one in needed(special.values, [output])]
        numbers = {names[one.start] for one in used if one.op == "embed"}
        if len(numbers) <= 1 and all(one.op != "input" for one in used):
            found[state] = next(iter(numbers), None)
    return found


def _of_all(cell: Cell, value: Value, values: dict[int, np.ndarray], none: bool) -> np.ndarray:
    """A value for all numbers: with an axis before its own, of size 1 where it is the same for all."""
    if value.op == "weight":
        return cell.weights[value.name].astype(np.float64)[None]
    if value.op == "embed":
        rows = cell.weights[value.name].astype(np.float64)
        return np.concatenate([rows, np.zeros((1, *value.shape))]) if none else rows
    of = [values[one] for one in value.of]
    result: np.ndarray
    if value.op == "constant":
        result = np.full((1, *value.shape), value.constant)
    elif value.op == "matmul":
        a, b = of
        if b.ndim == 2 and len(a) == 1:
            result = b @ a[0].T  # one product of matrices for all rows
        else:
            result = a @ b if b.ndim == 3 else (a @ b[:, :, None])[:, :, 0]
    elif value.op == "outer":
        result = of[0][:, :, None] * of[1][:, None, :]
    elif value.op == "slice":
        result = of[0][:, value.start : value.stop]
    elif value.op == "reshape":
        result = of[0].reshape(-1, *value.shape)
    elif value.op == "concat":
        rows_of = max(map(len, of))
        result = np.concatenate([np.broadcast_to(one, (rows_of, *one.shape[1:])) for one in of], axis=1)
    else:  # number by number, where a number goes with any shape, or softmax
        axes = max(one.ndim for one in of)
        result = apply(value, *(_widened(one, axes) for one in of))
    return result


def _widened(array: np.ndarray, axes: int) -> Any:
    return array.reshape(array.shape + (1,) * (axes - array.ndim))
