"""What has to hold of a `RecursionEntry`: the executor relies on it without checking.

Whether functions take what they are described to take is compared when a package is loaded, by the functions
themselves; whether structures fit is checked in every call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from hbtvm.runtime.recursive.binding import OVERS
from hbtvm.runtime.recursive.entry import (
    LANES,
    Program,
    RecursionEntry,
    RecursionKernels,
    RecursiveInput,
    Role,
    Share,
    Step,
)

_MOST_NUMBERS = 2**24
"""No row, state, vector or scratch memory has as many numbers."""

_MOST_TILE, _MOST_THREADS, _MOST_STEPS, _MOST_DEPTH, _MOST = 2**14, 2**16, 64, 2**10, 2**31
"""Tiles are smaller than what the executor leaves free of the range of numbers of nodes (2^16); the number
of a step is told in 10 bits."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


def check_entry(entry: RecursionEntry) -> None:
    """Check a recursive model by itself.

    Raises
    ------
    ValueError
        If something is wrong.
    """
    _text(entry.cell, "cell")
    if entry.children is not None:
        _whole(entry.children, "children", most=_MOST_TILE)
    _whole(entry.width, "width", most=_MOST_NUMBERS)
    _whole(entry.state, "state", 0, _MOST_NUMBERS)
    if entry.width % LANES or entry.state % LANES:
        raise ValueError(
            f"a state begins at {entry.state} of {entry.width} numbers, not at a multiple of {LANES}"
        )
    if len(entry.shape) > 2:
        raise ValueError(f"a state's shape is {entry.shape!r:.100}")
    for extent in entry.shape:
        _whole(extent, "a state's shape", most=_MOST_NUMBERS)
    if entry.state + padded(entry.shape) > entry.width:
        raise ValueError(f"a state of shape {entry.shape} begins at {entry.state} of {entry.width} numbers")
    _one_of(entry.over, OVERS, "over")
    for one in entry.inputs:
        _check_input(one)
    names = [one.name for one in entry.inputs]
    if len(set(names)) != len(names):
        raise ValueError(f"inputs are {names!r:.200}")
    if not 0 < len(entry.kernels) <= _MOST_THREADS:
        raise ValueError(f"there are {len(entry.kernels)} kernels of the recursive model")
    for kernels in entry.kernels:
        _check_kernels(entry, kernels)


def padded(shape: Sequence[int]) -> int:
    """Numbers of a state in memory: each row of a matrix, or the vector, to a multiple of `LANES`."""
    columns = shape[-1] if shape else 1
    return math.prod(shape[:-1]) * -(-columns // LANES) * LANES


def _check_input(given: RecursiveInput) -> None:
    _text(given.name, "an input's name")
    _one_of(given.kind, ("number", "vector"), "an input's kind")
    _whole(given.size, "an input's size", most=_MOST - 1 if given.kind == "number" else _MOST_NUMBERS)
    if type(given.optional) is not bool or (given.optional and given.kind == "vector"):
        raise ValueError(f"an input's optional is {given.optional!r:.100}")


def _check_kernels(entry: RecursionEntry, kernels: RecursionKernels) -> None:
    _whole(kernels.rows, "structures of a call", most=_MOST)
    _whole(kernels.threads, "threads", most=_MOST_THREADS)
    seconds = kernels.seconds
    if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds < math.inf):
        raise ValueError(f"seconds is {seconds!r:.100}")
    _text(kernels.strategy, "strategy")
    if not isinstance(kernels.config, Mapping):
        raise ValueError(f"config is {kernels.config!r:.100}")
    _one_of(kernels.share, get_args(Share), "share")
    _whole(kernels.depth, "depth", most=_MOST_DEPTH)
    if kernels.depth > 1 and kernels.share == "panels":
        raise ValueError(f"threads share panels of {kernels.depth} levels at a time")
    for program in kernels.programs:
        _check_program(entry, kernels, program)


def _check_program(entry: RecursionEntry, kernels: RecursionKernels, program: Program) -> None:
    for width in program.scratch:
        _whole(width, "a scratch memory's width", most=_MOST_NUMBERS)
    if not program.main:
        raise ValueError("a program has no steps")
    for steps in (program.main, program.tail):
        if len(steps) > _MOST_STEPS:
            raise ValueError(f"a program has {len(steps)} steps")
        for step in steps:
            _check_step(entry, kernels, program, step)
        if len({step.tile for step in steps}) > 1:
            raise ValueError(f"steps have tiles of {sorted({step.tile for step in steps})} nodes")
        if steps and all(one.role != "out" for step in steps for one in step.arguments):
            raise ValueError("no step of a program writes states")
    _whole(program.tail_most, "tail_most", 1 if program.tail else 0, program.main[0].tile + 1)
    if program.tail_most and not program.tail:
        raise ValueError(f"tail_most is {program.tail_most} without a tail")


def _check_step(entry: RecursionEntry, kernels: RecursionKernels, program: Program, step: Step) -> None:
    if not isinstance(step.function, str) or not _NAME.fullmatch(step.function):
        raise ValueError(f"a step's function is {step.function!r:.100}")
    _whole(step.tile, "a step's tile", most=_MOST_TILE)
    _whole(step.panels, "a step's panels", 0, _MOST_NUMBERS)
    kinds = [one.kind for one in entry.inputs]
    for argument in step.arguments:
        _one_of(argument.role, get_args(Role), "an argument's role")
    for argument in sorted(step.arguments, key=lambda one: one.role != "table"):
        role, number = argument.role, argument.number
        there = {"scratch": len(program.scratch), "table": len(kernels.tables)}.get(role, 1)
        if role in ("number", "vector"):
            there = len(kinds)
        _whole(number, f"the number of a {role}", 0, there)
        if role in ("number", "vector") and kinds[number] != role:
            raise ValueError(f"input {number} is no {role}")
        if role == "number":
            _check_vocabulary(entry.inputs[number].size, kernels, step)
    roles = [one.role for one in step.arguments]
    for role in ("state", "child", "span", "out"):
        if roles.count(role) > 1:
            raise ValueError(f"a step takes {role!r} twice")
    if ("span" in roles) != (step.panels > 0):
        raise ValueError(f"a step of {step.panels} panels takes {roles!r:.200}")


def _check_vocabulary(size: int, kernels: RecursionKernels, step: Step) -> None:
    """Check that a step which takes numbers has a table in which there are so many of something.

    What its axes are its function alone knows, so this is no more than that the two can go together.
    """
    tables = [kernels.tables[one.number] for one in step.arguments if one.role == "table"]
    if not any(extent >= size for table in tables for extent in table.shape):
        raise ValueError(f"a step takes numbers below {size}, but no table of as many rows")


def _whole(value: Any, name: str, least: int = 1, most: int = _MOST) -> None:
    if type(value) is not int or not least <= value < most:
        raise ValueError(f"{name} is {value!r:.100}")


def _text(value: Any, name: str) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r:.100}")


def _one_of(value: Any, known: Sequence[str], name: str) -> None:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} is {value!r:.100}")
