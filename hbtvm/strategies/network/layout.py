"""The tables of a network's kernel: which there are, and how a plan lays them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.network.nodes import expands
from hbtvm.schedules.network.plan import Plan, Stage
from hbtvm.strategies.network import nearest

_INTEGERS = ("indices", "feature", "code_feature", "code_first", "column", "first", "last", "factors")
"""Tables of int32; all others are float64, but constants and points of what is computed in float32."""

_COLUMNS = ("indices", "feature", "code_feature", "column")
"""Tables of columns of the node's input, which a damaged one must not leave."""


def arguments_of(plan: Plan) -> tuple[Argument, ...]:
    """The tables of all nodes, in argument order."""
    told: list[Argument] = []
    for at, stage in enumerate(plan.stages):
        if at in plan.nearest.values():
            told += nearest.arguments(plan, at)
            continue
        for name in stage.form["tables"]:
            if not _left_out(stage, name):
                told.append(_argument(plan, at, stage, name))
        if plan.expanded and expands(stage.form):
            kind = "float32" if stage.form.get("single") else "float64"
            told.append(table(f"t{at}_norms", kind, (stage.room,)))
    return tuple(told)


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
        # One more than the columns stands for 1.
        width = int(plan.stages[stage.form["inputs"][0]].form["width"])
        return table(f"t{at}_{name}", dtype, shape, "index", below=width + 1)
    return table(f"t{at}_{name}", dtype, shape)


def _shape(plan: Plan, at: int, stage: Stage, name: str) -> tuple[int, ...]:
    form = stage.form
    own: tuple[int, ...] = tuple(int(one) for one in form["tables"][name])
    match form["kind"], name:
        case "contract", "weight":
            source = plan.stages[form["inputs"][0]]
            terms = source.room if source.inside == at else own[0]
            if stage.split:
                return own[1], -(-terms // plan.lanes) * plan.lanes
            return terms, stage.room
        case "linear_sum", "weight" | "missing" | "entries":
            return own[0], stage.room
        case "distance", "points" | "scale":
            return own[1], stage.room
        case "constant", _:
            return (_room_of_readers(plan, at),)
    return own


def _room_of_readers(plan: Plan, at: int) -> int:
    """Entries that the readers of a constant may look at."""
    width = int(plan.stages[at].form["width"])
    if width == 1:
        return 1
    return max(
        [
            width,
            *(
                one.room
                for one in plan.stages
                if at in one.form["inputs"] and one.form["kind"] == "elementwise"
            ),
        ]
    )


def laid_out(
    plan: Plan, tables: Sequence[Mapping[str, np.ndarray]], arguments: Sequence[Argument]
) -> dict[str, np.ndarray]:
    """Return the arrays of `arguments` by name.

    `tables`: by node: its tables by name, as `hbtvm.operators.base.Node.tables` gives them.
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
        own = (tables[at]["points"] ** 2).sum(axis=1) if name == "norms" else np.asarray(tables[at][name])
        if at in factors and name in ("points", "norms"):
            own = own * (factors[at] if name == "norms" else -2 * factors[at])
        if (stage.form["kind"], name) in (("distance", "points"), ("distance", "scale")) or stage.split:
            own = own.T
        shape = tuple(int(one) for one in argument.shape)
        # What pads a constant must not divide by 0; what pads weights must add nothing.
        fill: Any = 1 if stage.form["kind"] == "constant" else 0
        wide = np.full(shape, fill, argument.dtype)
        wide[tuple(slice(0, size) for size in own.shape)] = own
        result[argument.name] = wide
    return {argument.name: result[argument.name] for argument in arguments}
