"""Stages of a network that are loops over a row's own values, such as imputation in rounds.

A tensor expression can't say them: each step reads what the steps before have written, or the row decides how
many steps there are. `hbtvm.compiler.lowering.row_loops` makes statements of them, for a vector of rows or a
single one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hbtvm.schedules.network.plan import Plan

LOOP_ROWS = "hbtvm.loop_rows"  # annotation of the loop over the rows that are computed together
KINDS = ("imputation", "coupling")  # kinds of nodes that are such loops


def loops(nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a network has such a node."""
    return any(node["kind"] in KINDS for node in nodes)


def schedule(sch: Any, plan: Plan, name: str, block: Any, lanes: int) -> bool:
    """Schedule a stage if it is such a loop, for vectors of so many rows; return whether it is."""
    number = name.removeprefix("s")
    if not number.isdigit() or plan.stages[int(number)].form["kind"] not in KINDS:
        return False
    width, row = sch.get_loops(block)[-2:]
    around, row = sch.split(row, [None, lanes])
    sch.reorder(around, row, width)
    sch.annotate(row, LOOP_ROWS, 1)
    return True
