"""Which loop nests of a cell are steps on GPUs, and what is computed again rather than stored."""

from __future__ import annotations

from hbtvm.errors import UnsupportedModel
from hbtvm.strategies.recursive.plan import Facts


def steps_on(facts: Facts) -> list[int]:
    """Numbers of the nests that are steps.

    Raises
    ------
    UnsupportedModel
        If no kernel for GPUs computes one of them.
    """
    inline, found = inlined(facts), []
    for which, nest in enumerate(facts.nests.nests):
        if nest.whole is not None:
            op = facts.values[nest.whole].op
            what = _WHOLE.get(op, op)
            raise UnsupportedModel(
                f"no CUDA kernel computes {what} of a node yet; compile the model for a CPU"
            )
        if nest.products or nest.states or set(nest.stored) - inline:
            found.append(which)
    return found


_WHOLE = {
    "matmul": "products of states",
    "concat": "what is put together",
    "slice": "what is cut out",
    "outer": "outer products",
}


def inlined(facts: Facts) -> set[int]:
    """Stored values that are computed where they are read, from children's states and inputs alone."""
    elsewhere = {one for value in facts.values if value.op == "slice" for one in value.of}
    first = [nest for nest in facts.nests.nests if nest.depth == 0 and not nest.products]
    return {one for nest in first if nest.whole is None for one in nest.stored} - elsewhere
