"""Stages of a network that are loops over a row's values, such as imputation in rounds.

Tensor expressions can't express them: a step reads the results of earlier steps, or the row decides the
number of steps. `hbtvm.compiler.lowering.row_loops` lowers them to statements, for a vector of rows or a
single row.
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
    """Schedule a stage for vectors of `lanes` rows if it is such a loop; return whether it is."""
    number = name.removeprefix("s")
    if not number.isdigit() or plan.stages[int(number)].form["kind"] not in KINDS:
        return False
    width, row = sch.get_loops(block)[-2:]
    around, row = sch.split(row, [None, lanes])
    sch.reorder(around, row, width)
    sch.annotate(row, LOOP_ROWS, 1)
    return True
