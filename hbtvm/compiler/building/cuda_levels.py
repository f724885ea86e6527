"""Compile the kernels of a recursive model to a GPU's machine code, and find out what each takes."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from dataclasses import replace

import tvm

from hbtvm.compiler.building import cuda as cuda_build
from hbtvm.compiler.building.cuda_source import ROUNDED_ONCE, split
from hbtvm.errors import BuildError
from hbtvm.runtime.recursive.entry import Program, Step, StepArgument
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.cuda.levels import PERSISTENT
from hbtvm.strategies.recursive.cuda.parameters import SCALARS
from hbtvm.strategies.recursive.levels import Kernels

_KERNEL = "{}_kernel"  # what TVM names a function's kernel

_BUFFER = re.compile(r"(state|child|number|vector|scratch|table|levels|barrier)(\d+)(_ptr)?")


def level_source(made: Kernels, target: Target) -> tuple[str, Kernels]:
    """Return the CUDA source of a configuration's kernels, and the kernels with what each takes.

    Raises `BuildError` if a kernel takes something else than there is.
    """
    persistent = _KERNEL.format(PERSISTENT) if PERSISTENT in made.functions else None
    # Steps share what is equal as they are written; looking for more takes most of the time.
    with tvm.transform.PassContext(disabled_pass=["tirx.CommonSubexprElim"]):
        source, _, kernels = split(tvm.IRModule(made.functions), target, persistent)
    taken = {
        str(variable.name_hint): tuple(_argument(str(one.name)) for one in function.params)
        for variable, function in kernels.functions_items()
    }
    return ROUNDED_ONCE + source, replace(
        made,
        leaf=_program(made.leaf, taken),
        inner=_program(made.inner, taken),
        first=None if made.first is None else _program(made.first, taken),
        persistent=None if made.persistent is None else _step(made.persistent, taken),
    )


def build_levels(made: Kernels, target: Target, portable: bool) -> tuple[bytes, Kernels]:
    """Compile a configuration's kernels to machine code; the kernels with what each takes.

    Raises `BuildError` if there is no CUDA compiler, or it fails.
    """
    source, found = level_source(made, target)
    return cuda_build.code_of(source, target, portable), found


def write_levels(path: str, code: bytes, made: Kernels) -> None:
    """Write a candidate's code and what its kernels take into one file, which appears whole or not at all."""
    cuda_build.write_whole(path, pickle.dumps((code, replace(made, functions={}, tables=()))))


def read_levels(content: bytes, made: Kernels) -> tuple[bytes, Kernels]:
    """Return the code of a file of `write_levels`, and the kernels with what each takes.

    `made`: the same kernels, of which tables are taken.
    """
    code, found = pickle.loads(content)
    return code, replace(found, tables=made.tables)


def _argument(name: str) -> StepArgument:
    if name in SCALARS:
        return StepArgument(name)  # type: ignore[arg-type]
    match = _BUFFER.fullmatch(name)
    if match is None:
        raise BuildError(f"a kernel takes {name}, which packages can't tell")
    return StepArgument(match.group(1), int(match.group(2)))  # type: ignore[arg-type]


def _program(program: Program, taken: Mapping[str, tuple[StepArgument, ...]]) -> Program:
    return replace(program, main=tuple(_step(one, taken) for one in program.main))


def _step(step: Step, taken: Mapping[str, tuple[StepArgument, ...]]) -> Step:
    """A step with what its kernel takes; one that is part of another kernel takes nothing by itself."""
    name = _KERNEL.format(step.function)
    return replace(step, function=name, arguments=taken.get(name, ()))
