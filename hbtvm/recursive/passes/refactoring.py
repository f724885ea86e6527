"""Recursive refactoring (Cortex, section 5.2): products with children's states, made where these states are.

A node then stores the product of its state as a state of its own, and its parent reads it: the last stage of
a node and the first one of its parent meet.
"""

from __future__ import annotations

from dataclasses import replace

from hbtvm.recursive.cell import Cell
from hbtvm.recursive.passes.rewriting import Maker, Rewritten, without_dead


def refactored(cell: Cell, totals: bool = True) -> Rewritten:
    """Move products of a weight and a child's state into the child, as further states.

    Parameters
    ----------
    totals
        Whether products with sums of children's states move, too: W Σh is Σ W h. They are then made once for
        each node in place of once for each node with children, and rounded otherwise.
    """
    maker, new = Maker(cell.weights), list[int]()
    states = dict(cell.states)
    moved: dict[tuple[str, str], str] = {}
    for value in cell.values:
        of = tuple(new[one] for one in value.of)
        made = replace(value, of=of)
        if value.op == "matmul" and len(value.shape) == 1 and maker.values[of[0]].op == "weight":
            weight, right = maker.values[of[0]].name, maker.values[of[1]]
            summed = right.op == "total" and totals
            source = maker.values[right.of[0]] if summed else right
            if source.op in (("children",) if summed else ("child", "children")):
                key = (weight, source.name)
                if key not in moved:
                    moved[key] = _free(f"{weight} {source.name}", states)
                    states[moved[key]] = value.shape
                made = replace(source, name=moved[key], shape=value.shape)
                if summed:
                    made = replace(right, of=(maker.put(made),), shape=value.shape)
        new.append(maker.put(made))
    if not moved:
        return Rewritten(cell)
    outputs = [{name: new[one] for name, one in (given or {}).items()} for given in (cell.inner, cell.leaf)]
    for own in outputs[: 1 if cell.leaf is None else 2]:
        for (weight, state), name in moved.items():
            constant = maker.add("weight", (), cell.weights[weight].shape, name=weight)
            own[name] = maker.add("matmul", (constant, own[state]), states[name])
    result = replace(
        cell,
        states=states,
        values=tuple(maker.values),
        inner=outputs[0],
        leaf=None if cell.leaf is None else outputs[1],
    )
    told = tuple(
        f"Products of {weight!r} with {state!r} of children are made by the children, as state {name!r}."
        for (weight, state), name in moved.items()
    )
    return Rewritten(without_dead(result).cell, told)


def _free(name: str, taken: dict[str, tuple[int, ...]]) -> str:
    while name in taken:
        name += "'"
    return name
