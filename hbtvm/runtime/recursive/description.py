"""The executor's description of a recursive model: the structures of ``recursive.h``, filled in."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence

import numpy as np

from hbtvm.runtime.memory import aligned
from hbtvm.runtime.native.description import Kept
from hbtvm.runtime.native.library import Function
from hbtvm.runtime.native.structures import Table
from hbtvm.runtime.recursive import binding as c
from hbtvm.runtime.recursive.entry import Program, RecursionEntry, RecursionKernels, Step

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLPack's codes of types
Functions = Mapping[str, Function]  # a library's functions by name


def names_of(kernels: RecursionKernels) -> list[str]:
    """Return the names of the functions that steps call, each once."""
    steps = [step for program in kernels.programs for step in (*program.main, *program.tail)]
    return list(dict.fromkeys(step.function for step in steps))


def model_of(kept: Kept, entry: RecursionEntry, functions: Sequence[Functions]) -> c.Model:
    """Return a model's description, which points to objects in `kept`.

    `functions`: functions of each of the entry's kernels.
    """
    inputs = [c.Input(input_.kind == "vector", input_.size, input_.optional) for input_ in entry.inputs]
    kernels = [_kernels(kept, *both) for both in zip(entry.kernels, functions, strict=True)]
    return c.Model(
        version=c.VERSION,
        children=-1 if entry.children is None else entry.children,
        width=entry.width,
        state=entry.state,
        rows=math.prod(entry.shape[:-1]),
        columns=entry.shape[-1] if entry.shape else 1,
        over=c.OVERS.index(entry.over),
        inputs=kept.array(c.Input, inputs),
        input_count=len(inputs),
        kernels=kept.array(c.Kernels, kernels),
        count=len(kernels),
    )


def _kernels(kept: Kept, kernels: RecursionKernels, functions: Functions) -> c.Kernels:
    kept.objects.extend(functions.values())
    tables = [_table(kept, table) for table in kernels.tables]
    programs = (_program(kept, program, functions) for program in kernels.programs)
    return c.Kernels(
        structures=kernels.rows,
        threads=kernels.threads,
        seconds=-1.0 if kernels.seconds is None else kernels.seconds,
        share=c.SHARES.index(kernels.share),
        # Executors of older packages know of no depth, and read both fields as one number.
        depth=kernels.depth if kernels.depth > 1 else 0,
        program=(c.Program * 3)(*programs),
        tables=kept.array(Table, tables),
        count=len(tables),
    )


def _table(kept: Kept, array: np.ndarray) -> Table:
    table = aligned(array)
    return Table(
        data=kept.numpy(table),
        shape=kept.array(ctypes.c_int64, list(table.shape)),
        axes=table.ndim,
        code=_CODES[table.dtype.kind],
        bits=8 * table.dtype.itemsize,
        splits=False,
    )


def _program(kept: Kept, program: Program, functions: Functions) -> c.Program:
    return c.Program(
        main=_steps(kept, program.main, functions),
        tail=_steps(kept, program.tail, functions),
        tail_most=program.tail_most if program.tail else 0,
        scratch=kept.array(ctypes.c_int64, list(program.scratch)),
        scratches=len(program.scratch),
    )


def _steps(kept: Kept, steps: Sequence[Step], functions: Functions) -> c.Steps:
    structures = []
    for step in steps:
        arguments = [c.Argument(c.ROLES.index(argument.role), argument.number) for argument in step.arguments]
        function = functions[step.function]
        structures.append(
            c.Step(
                function=function.address,
                self=function.handle or None,
                arguments=kept.array(c.Argument, arguments),
                count=len(arguments),
                panels=step.panels,
            )
        )
    return c.Steps(kept.array(c.Step, structures), len(structures), steps[0].tile if steps else 1)
