"""Checks of a recursive model's kernels on a GPU, on which launches rely."""

from __future__ import annotations

import re
from typing import get_args

from hbtvm.runtime.recursive.entry import DeviceRole, Program, RecursionEntry, RecursionKernels, Role, Step

ROLES = (*(role for role in get_args(Role) if role not in ("span", "out")), *get_args(DeviceRole))
"""Roles of GPU kernels' arguments."""

_MOST_STEPS = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)

_EACH, _ALL = {"level", "blocks"}, {"barrier", "count", "blocks"}
"""Roles that only kernels of one level take, and only those of all levels."""


def check_device_kernels(entry: RecursionEntry, kernels: RecursionKernels) -> None:
    """Check the kernels of a batch size.

    Raises `ValueError` for inconsistent fields.
    """
    if kernels.depth != 1:
        raise ValueError(f"kernels go through {kernels.depth} levels at a time on a GPU")
    if kernels.share != "none" or kernels.object:
        raise ValueError(f"threads share {kernels.share!r:.100} on a GPU")
    for program in kernels.programs:
        _check_program(entry, kernels, program)
    if kernels.persistent is not None:
        _check_step(entry, kernels, kernels.persistent, _ALL)
        steps = [step for program in kernels.programs for step in program.main]
        if {step.threads for step in steps} != {kernels.persistent.threads} or any(s.shared for s in steps):
            raise ValueError("steps of a kernel for all levels have other blocks than it has")


def _check_program(entry: RecursionEntry, kernels: RecursionKernels, program: Program) -> None:
    if program.tail or program.tail_most or not 0 < len(program.main) <= _MOST_STEPS:
        raise ValueError(f"a program on a GPU has {len(program.main)} steps, and {len(program.tail)} more")
    if program.scratch != kernels.inner.scratch:
        raise ValueError(f"programs have scratch memory of {program.scratch} and {kernels.inner.scratch}")
    for step in program.main:
        if kernels.persistent is None:
            _check_step(entry, kernels, step, _EACH)
        else:
            _check_blocks(step)
            if step.arguments:
                raise ValueError("a step that is part of a kernel for all levels takes arguments")


def _check_step(entry: RecursionEntry, kernels: RecursionKernels, step: Step, required: set[str]) -> None:
    _check_blocks(step)
    kinds = [input_.kind for input_ in entry.inputs]
    for argument in step.arguments:
        role, number = argument.role, argument.number
        if role not in ROLES or (role in _EACH | _ALL and role not in required):
            raise ValueError(f"a kernel takes {role!r:.100}")
        count = {"scratch": len(kernels.inner.scratch), "table": len(kernels.tables)}.get(role, 1)
        if role in ("number", "vector"):
            count = len(kinds)
        if number >= count:
            raise ValueError(f"a kernel takes {role} {number} of {count}")
        if role in ("number", "vector") and kinds[number] != role:
            raise ValueError(f"input {number} is not a {role}")
    roles = [argument.role for argument in step.arguments]
    if "state" not in roles and required is _ALL:
        raise ValueError("a kernel for all levels writes no states")
    if not required - {"blocks"} <= set(roles):
        raise ValueError(f"a kernel takes {roles!r:.200}")


def _check_blocks(step: Step) -> None:
    if not _NAME.fullmatch(step.function) or not step.panels or not step.threads:
        raise ValueError(f"{step.function!r:.100} has {step.panels} panels, {step.threads} threads")
