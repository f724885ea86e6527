"""Steps on GPUs: their loop nests, and the values that are recomputed rather than stored."""

from __future__ import annotations

from hbtvm.strategies.recursive.nests import operands
from hbtvm.strategies.recursive.plan import Facts

MOVED = ("concat", "slice", "reshape")  # whole values that only rearrange numbers

PLACED = (*MOVED, "outer")
"""Whole values each of whose numbers depends on one or two numbers of the operands."""

_PARTS = 4  # most parts of an inlined concatenation: each place tests which part it belongs to


def steps_on(facts: Facts) -> list[list[int]]:
    """Return the numbers of each step's nests, in order.

    Independent whole values that are computed cooperatively share a step.
    """
    inline, nests = inlined(facts), facts.nests.nests
    steps: list[list[int]] = []
    step_of: dict[int, int] = {}
    for which, nest in enumerate(nests):
        if nest.whole is not None and is_shared_out(facts, which):
            before = {step_of[home] for home in _homes(facts, nest.whole, inline)}
            step = max(before, default=-1) + 1
            while step < len(steps) and not is_shared_out(facts, steps[step][0]):
                step += 1
        elif nest.products or nest.states or set(nest.stored) - inline:
            step = len(steps)
        else:
            continue
        if step == len(steps):
            steps.append([])
        steps[step].append(which)
        step_of[which] = step
    return steps


def _homes(facts: Facts, number: int, inline: set[int]) -> set[int]:
    """Return the nests that store a value's operands, through inlined values."""
    homes: set[int] = set()
    for operand in operands(facts.values, number):
        home = facts.nests.home(operand)
        homes |= _homes(facts, operand, inline) if home is None or operand in inline else {home}
    return homes


def is_shared_out(facts: Facts, which: int) -> bool:
    """Whether the nest's whole value is computed cooperatively."""
    whole = facts.nests.nests[which].whole
    return whole is not None and facts.values[whole].op not in PLACED


def inlined(facts: Facts) -> set[int]:
    """Return the stored values that readers recompute instead.

    These depend on children's states and inputs alone, or rearrange a few numbers.
    """
    numbers: set[int] = set()
    for nest in facts.nests.nests:
        if nest.whole is None:
            if nest.depth == 0 and not nest.products:
                numbers.update(nest.stored)
        elif facts.values[nest.whole].op in PLACED and len(facts.values[nest.whole].of) <= _PARTS:
            numbers.update(nest.stored)
    return numbers
