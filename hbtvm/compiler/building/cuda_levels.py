"""Compile the kernels of a recursive model to a GPU's machine code, and derive their arguments."""

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


def level_source(kernels: Kernels, target: Target) -> tuple[str, Kernels]:
    """Return the CUDA source of a configuration's kernels, and the kernels with their arguments.

    Raises `BuildError` if a kernel has an unknown argument.
    """
    persistent = _KERNEL.format(PERSISTENT) if PERSISTENT in kernels.functions else None
    # Steps already share common subexpressions; the pass would take most of the time.
    with tvm.transform.PassContext(disabled_pass=["tirx.CommonSubexprElim"]):
        source, _, module = split(tvm.IRModule(kernels.functions), target, persistent)
    taken = {
        str(variable.name_hint): tuple(_argument(str(parameter.name)) for parameter in function.params)
        for variable, function in module.functions_items()
    }
    return ROUNDED_ONCE + source, replace(
        kernels,
        leaf=_program(kernels.leaf, taken),
        inner=_program(kernels.inner, taken),
        first=None if kernels.first is None else _program(kernels.first, taken),
        persistent=None if kernels.persistent is None else _step(kernels.persistent, taken),
    )


def build_levels(kernels: Kernels, target: Target, portable: bool) -> tuple[bytes, Kernels]:
    """Compile a configuration's kernels; return the machine code, and the kernels with their arguments.

    Raises `BuildError` if there is no CUDA compiler, or it fails.
    """
    source, compiled = level_source(kernels, target)
    return cuda_build.code_of(source, target, portable), compiled


def write_levels(path: str, code: bytes, kernels: Kernels) -> None:
    """Write a candidate's code and its kernels' arguments to a file, atomically."""
    cuda_build.write_whole(path, pickle.dumps((code, replace(kernels, functions={}, tables=()))))


def read_levels(content: bytes, kernels: Kernels) -> tuple[bytes, Kernels]:
    """Return the code of a file of `write_levels`, and the kernels with their arguments.

    `kernels`: the same kernels, with tables.
    """
    code, compiled = pickle.loads(content)
    return code, replace(compiled, tables=kernels.tables)


def _argument(name: str) -> StepArgument:
    if name in SCALARS:
        return StepArgument(name)  # type: ignore[arg-type]
    match = _BUFFER.fullmatch(name)
    if match is None:
        raise BuildError(f"a kernel takes {name}, which packages can't tell")
    return StepArgument(match.group(1), int(match.group(2)))  # type: ignore[arg-type]


def _program(program: Program, taken: Mapping[str, tuple[StepArgument, ...]]) -> Program:
    return replace(program, main=tuple(_step(step, taken) for step in program.main))


def _step(step: Step, taken: Mapping[str, tuple[StepArgument, ...]]) -> Step:
    """Add its kernel's arguments to a step; a step within another kernel has none."""
    name = _KERNEL.format(step.function)
    return replace(step, function=name, arguments=taken.get(name, ()))
