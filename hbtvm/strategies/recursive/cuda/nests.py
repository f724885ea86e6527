"""Which loop nests of a cell are steps on GPUs, and what is computed again rather than stored."""

from __future__ import annotations

from hbtvm.strategies.recursive.nests import operands
from hbtvm.strategies.recursive.plan import Facts

MOVED = ("concat", "slice", "reshape")  # whole values whose numbers are those of others, at other places

PLACED = (*MOVED, "outer")
"""Whole values of which every number is computed by itself, from a number or two of its operands."""

_PARTS = 4  # vectors behind each other of which it is found out at each place which one is meant


def steps_on(facts: Facts) -> list[list[int]]:
    """Numbers of the nests of each step, in order.

    Whole values that need many numbers each, and none of each other's, are computed in one step.
    """
    inline, nests = inlined(facts), facts.nests.nests
    found: list[list[int]] = []
    at: dict[int, int] = {}
    for which, nest in enumerate(nests):
        if nest.whole is not None and is_shared_out(facts, which):
            before = {at[home] for home in _homes(facts, nest.whole, inline)}
            own = max(before, default=-1) + 1
            while own < len(found) and not is_shared_out(facts, found[own][0]):
                own += 1
        elif nest.products or nest.states or set(nest.stored) - inline:
            own = len(found)
        else:
            continue
        if own == len(found):
            found.append([])
        found[own].append(which)
        at[which] = own
    return found


def _homes(facts: Facts, number: int, inline: set[int]) -> set[int]:
    """Nests that store what a value is computed from."""
    found: set[int] = set()
    for one in operands(facts.values, number):
        home = facts.nests.home(one)
        found |= _homes(facts, one, inline) if home is None or one in inline else {home}
    return found


def is_shared_out(facts: Facts, which: int) -> bool:
    """Whether a nest is there for a value of which many numbers are computed together."""
    whole = facts.nests.nests[which].whole
    return whole is not None and facts.values[whole].op not in PLACED


def inlined(facts: Facts) -> set[int]:
    """Stored values that are computed where they are read.

    From children's states and inputs alone, or by placing a few numbers otherwise.
    """
    found: set[int] = set()
    for nest in facts.nests.nests:
        if nest.whole is None:
            if nest.depth == 0 and not nest.products:
                found.update(nest.stored)
        elif facts.values[nest.whole].op in PLACED and len(facts.values[nest.whole].of) <= _PARTS:
            found.update(nest.stored)
    return found
