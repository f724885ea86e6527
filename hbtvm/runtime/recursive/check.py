"""Checks of a `RecursionEntry`, on which the executor relies.

The functions themselves check their arguments' description when a package is loaded; every call checks its
structures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import get_args

from hbtvm.runtime.recursive.check_device import check_device_kernels
from hbtvm.runtime.recursive.entry import (
    LANES,
    Program,
    RecursionEntry,
    RecursionKernels,
    RecursiveInput,
    Role,
    Step,
)

_MOST_NUMBERS = 2**24  # exclusive limit of numbers of a row, state, vector or scratch memory

_MOST_KERNELS, _MOST_STEPS = 2**16, 64

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


def check_entry(entry: RecursionEntry, device: bool = False) -> None:
    """Check a recursive model.

    `device`: whether its kernels are for a GPU.
    Raises `ValueError` for inconsistent fields.
    """
    if not entry.cell:
        raise ValueError("the cell has no name")
    if entry.width % LANES or entry.state % LANES:
        raise ValueError(
            f"a state begins at {entry.state} of {entry.width} numbers, not at a multiple of {LANES}"
        )
    if len(entry.shape) > 2:
        raise ValueError(f"a state's shape is {entry.shape!r:.100}")
    if entry.state + padded(entry.shape) > entry.width:
        raise ValueError(f"a state of shape {entry.shape} begins at {entry.state} of {entry.width} numbers")
    for input_ in entry.inputs:
        _check_input(input_)
    names = [input_.name for input_ in entry.inputs]
    if len(set(names)) != len(names):
        raise ValueError(f"inputs are {names!r:.200}")
    if not 0 < len(entry.kernels) <= _MOST_KERNELS:
        raise ValueError(f"there are {len(entry.kernels)} kernels of the recursive model")
    for kernels in entry.kernels:
        _check_kernels(entry, kernels, device)
        if device:
            check_device_kernels(entry, kernels)
            continue
        for program in kernels.programs:
            _check_program(entry, kernels, program)


def padded(shape: Sequence[int]) -> int:
    """Return a state's numbers in memory: rows of a matrix, or the vector, are padded to `LANES`."""
    columns = shape[-1] if shape else 1
    return math.prod(shape[:-1]) * -(-columns // LANES) * LANES


def _check_input(data: RecursiveInput) -> None:
    vector = data.kind == "vector"
    if not data.name or (data.optional and vector) or (vector and data.size >= _MOST_NUMBERS):
        raise ValueError(f"an input is {data!r:.200}")


def _check_kernels(entry: RecursionEntry, kernels: RecursionKernels, device: bool) -> None:
    if not kernels.strategy:
        raise ValueError("kernels have no strategy")
    if kernels.depth > 1 and kernels.share == "panels":
        raise ValueError(f"threads share panels of {kernels.depth} levels at a time")
    if not device and kernels.persistent is not None:
        raise ValueError("a kernel for all levels is not a GPU's")


def _check_program(entry: RecursionEntry, kernels: RecursionKernels, program: Program) -> None:
    if not program.main:
        raise ValueError("a program has no steps")
    for steps in (program.main, program.tail):
        if len(steps) > _MOST_STEPS:
            raise ValueError(f"a program has {len(steps)} steps")
        for step in steps:
            _check_step(entry, kernels, program, step)
        if len({step.tile for step in steps}) > 1:
            raise ValueError(f"steps have tiles of {sorted({step.tile for step in steps})} nodes")
        if steps and all(argument.role != "out" for step in steps for argument in step.arguments):
            raise ValueError("no step of a program writes states")
    if bool(program.tail) != bool(program.tail_most) or program.tail_most > program.main[0].tile:
        raise ValueError(f"tail_most is {program.tail_most} of tiles of {program.main[0].tile}")


def _check_step(entry: RecursionEntry, kernels: RecursionKernels, program: Program, step: Step) -> None:
    if not _NAME.fullmatch(step.function) or step.threads or step.shared:
        raise ValueError(f"a step's function is {step.function!r:.100}, with {step.threads} threads")
    kinds = [input_.kind for input_ in entry.inputs]
    for argument in step.arguments:
        if argument.role not in get_args(Role):
            raise ValueError(f"a CPU's step takes {argument.role!r}")
    for argument in sorted(step.arguments, key=lambda argument: argument.role != "table"):
        role, number = argument.role, argument.number
        count = {"scratch": len(program.scratch), "table": len(kernels.tables)}.get(role, 1)
        if role in ("number", "vector"):
            count = len(kinds)
        if number >= count:
            raise ValueError(f"a step takes {role} {number} of {count}")
        if role in ("number", "vector") and kinds[number] != role:
            raise ValueError(f"input {number} is not a {role}")
        if role == "number":
            _check_vocabulary(entry.inputs[number].size, kernels, step)
    roles = [argument.role for argument in step.arguments]
    for role in ("state", "child", "span", "out"):
        if roles.count(role) > 1:
            raise ValueError(f"a step takes {role!r} twice")
    if ("span" in roles) != (step.panels > 0):
        raise ValueError(f"a step of {step.panels} panels takes {roles!r:.200}")


def _check_vocabulary(size: int, kernels: RecursionKernels, step: Step) -> None:
    """Check that a step that takes numbers below `size` has a table with an extent of `size`.

    Only the function knows the meaning of axes, so this is a necessary condition.
    """
    tables = [kernels.tables[argument.number] for argument in step.arguments if argument.role == "table"]
    if not any(extent >= size for table in tables for extent in table.shape):
        raise ValueError(f"a step takes numbers below {size}, but no table of as many rows")
