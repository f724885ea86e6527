"""The tables of a network's kernel and their layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.network.nodes import expands
from hbtvm.schedules.network.plan import Plan, Stage
from hbtvm.strategies.network import nearest

_INTEGERS = ("indices", "feature", "code_feature", "code_first", "column", "first", "last", "factors")
"""Tables of int32; others are float64, or float32 for constants and points of float32 nodes."""

_COLUMNS = ("indices", "feature", "code_feature", "column")
"""Tables of column numbers, whose bounds are checked: a damaged table must not index beyond the input."""


def arguments_of(plan: Plan) -> tuple[Argument, ...]:
    """Return the tables of all nodes, in argument order."""
    arguments: list[Argument] = []
    for at, stage in enumerate(plan.stages):
        if at in plan.nearest.values():
            arguments += nearest.arguments(plan, at)
            continue
        for name in stage.form["tables"]:
            if not _left_out(stage, name):
                arguments.append(_argument(plan, at, stage, name))
        if plan.expanded and expands(stage.form):
            kind = "float32" if stage.form.get("single") else "float64"
            arguments.append(table(f"t{at}_norms", kind, (stage.room,)))
    return tuple(arguments)


def _left_out(stage: Stage, name: str) -> bool:
    form = stage.form
    if form["kind"] != "linear_sum":
        return False
    return bool(
        (name == "feature" and form["in_order"])
        or (name == "shift" and not form["shifts"])
        or (name == "missing" and not form["fills_missing"])
    )


def _argument(plan: Plan, at: int, stage: Stage, name: str) -> Argument:
    shape = _shape(plan, at, stage, name)
    dtype = "int32" if name in _INTEGERS else "float64"
    if stage.form["kind"] in ("constant", "distance") and stage.form.get("single"):
        dtype = "float32"
    if name in _COLUMNS:
        width = int(plan.stages[stage.form["inputs"][0]].form["width"])
        return table(f"t{at}_{name}", dtype, shape, "index", below=width)
    if name == "factors":
        # The number after the last column stands for the factor 1.
        width = int(plan.stages[stage.form["inputs"][0]].form["width"])
        return table(f"t{at}_{name}", dtype, shape, "index", below=width + 1)
    return table(f"t{at}_{name}", dtype, shape)


def _shape(plan: Plan, at: int, stage: Stage, name: str) -> tuple[int, ...]:
    form = stage.form
    shape: tuple[int, ...] = tuple(int(extent) for extent in form["tables"][name])
    match form["kind"], name:
        case "contract", "weight":
            source = plan.stages[form["inputs"][0]]
            terms = source.room if source.inside == at else shape[0]
            if stage.split:
                return shape[1], -(-terms // plan.lanes) * plan.lanes
            return terms, stage.room
        case "linear_sum", "weight" | "missing" | "entries":
            return shape[0], stage.room
        case "distance", "points" | "scale":
            return shape[1], stage.room
        case "constant", _:
            return (_room_of_readers(plan, at),)
    return shape


def _room_of_readers(plan: Plan, at: int) -> int:
    """Return the number of entries that a constant's readers may load."""
    width = int(plan.stages[at].form["width"])
    if width == 1:
        return 1
    return max(
        [
            width,
            *(
                reader.room
                for reader in plan.stages
                if at in reader.form["inputs"] and reader.form["kind"] == "elementwise"
            ),
        ]
    )


def laid_out(
    plan: Plan, tables: Sequence[Mapping[str, np.ndarray]], arguments: Sequence[Argument]
) -> dict[str, np.ndarray]:
    """Return the arrays of `arguments` by name.

    `tables`: each node's tables by name (`hbtvm.operators.base.Node.tables`).
    """
    result: dict[str, np.ndarray] = {}
    factors = {
        distance: float(tables[plan.stages[product].form["inputs"][1]]["values"][0])
        for product, distance in plan.scaled.items()
    }
    for at in plan.nearest.values():
        result |= nearest.tables(plan, at, np.asarray(tables[at]["points"], np.float64))
    for argument in arguments:
        if argument.name in result:
            continue
        number, name = argument.name[1:].split("_", 1)
        at = int(number)
        stage = plan.stages[at]
        array = (tables[at]["points"] ** 2).sum(axis=1) if name == "norms" else np.asarray(tables[at][name])
        if at in factors and name in ("points", "norms"):
            array = array * (factors[at] if name == "norms" else -2 * factors[at])
        if (stage.form["kind"], name) in (("distance", "points"), ("distance", "scale")) or stage.split:
            array = array.T
        shape = tuple(int(extent) for extent in argument.shape)
        # Pad constants by 1, which may be divisors, and weights by 0.
        fill: Any = 1 if stage.form["kind"] == "constant" else 0
        wide = np.full(shape, fill, argument.dtype)
        wide[tuple(slice(0, size) for size in array.shape)] = array
        result[argument.name] = wide
    return {argument.name: result[argument.name] for argument in arguments}
