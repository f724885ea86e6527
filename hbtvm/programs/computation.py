"""A tensor program as the default spaces see it: its main reduction, axes and operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx

from hbtvm.errors import InputError

ENTRY = "main"


@dataclass(frozen=True)
class Axis:
    """A loop of the main block.

    `number`: its position among the block's axes.
    `extent`: its iterations.
    `reduces`: whether it is a reduction.
    """

    name: str
    number: int
    extent: int
    reduces: bool


@dataclass(frozen=True)
class Operand:
    """A buffer that the main block reads.

    `number`: its position among the buffers that the block reads.
    `shape`: its shape.
    `argument`: its position among the function's parameters; None for a buffer that another block computes.
    `dims`: for each dimension, the numbers of the axes that index it.
    `pure`: for each dimension, the axis that alone is the index; None for other indices.
    `strides`: the change of the last dimension's index along each axis, by number.
    `fixed`: whether its layout can't change.
    """

    name: str
    number: int
    shape: tuple[int, ...]
    argument: int | None
    dims: tuple[frozenset[int], ...]
    pure: tuple[int | None, ...]
    strides: tuple[int, ...]
    fixed: bool = False


@dataclass(frozen=True)
class Main:
    """The block that takes most of a program's operations.

    `block`: its name.
    `written`: for each dimension of its output, the axis that is the index; None for other indices.
    """

    block: str
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    written: tuple[int | None, ...]

    @property
    def spatial(self) -> list[Axis]:
        """The axes that are not reductions."""
        return [axis for axis in self.axes if not axis.reduces]

    @property
    def reduced(self) -> list[Axis]:
        """The reductions."""
        return [axis for axis in self.axes if axis.reduces]


def module_of(program: Any, args: Sequence[Any] = ()) -> Any:
    """Return the `tvm.IRModule` of a program: one function named ``main``.

    `program`: a module with one function, a function, or a Python function that returns a list of `te`
        tensors (inputs, then outputs) or one of these.
    `args`: arguments of the Python function.
    Raises `InputError` if it is none of these, or a shape is not constant.
    """
    if callable(program) and not isinstance(program, tirx.PrimFunc | tvm.IRModule):
        program = program(*args)
    elif args:
        raise InputError("args are the arguments of a Python function, and the program is not one")
    if isinstance(program, list | tuple) and program and all(isinstance(t, te.Tensor) for t in program):
        program = te.create_prim_func(list(program))
    if isinstance(program, tvm.IRModule):
        functions = list(program.functions.values())
        if len(functions) != 1:
            raise InputError(f"the module has {len(functions)} functions; expected one")
        program = functions[0]
    if not isinstance(program, tirx.PrimFunc):
        raise InputError(
            "the program must be a list of te tensors (inputs, then outputs), a PrimFunc, an IRModule, or a "
            f"Python function that returns one of these, not {type(program).__name__}"
        )
    for shape, _ in arguments(program):
        if any(extent < 1 for extent in shape):
            raise InputError("the program has a parameter of symbolic shape; every size must be a number")
    return tvm.IRModule({ENTRY: program.with_attr("global_symbol", ENTRY)})


def arguments(function: Any) -> list[tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of each parameter; symbolic sizes are 0.

    Raises `InputError` if a parameter is not a buffer.
    """
    known = []
    for parameter in function.params:
        if not isinstance(parameter.ty, tirx.BufferType):
            raise InputError(f"parameter {parameter.name} of the program is not a buffer")
        shape = tuple(int(extent) if isinstance(extent, tirx.IntImm) else 0 for extent in parameter.shape)
        known.append((shape, str(parameter.dtype)))
    return known


def outputs_of(module: Any) -> list[int]:
    """Return the positions of the parameters that the program writes."""
    schedule = s_tir.Schedule(module)
    written = [region.source for block in blocks(schedule) for region in schedule.get(block).writes]
    return [
        number
        for number, parameter in enumerate(module[ENTRY].params)
        if any(parameter.same_as(buffer) for buffer in written)
    ]


def blocks(schedule: Any) -> list[Any]:
    """Return the blocks of a module that is not scheduled yet, in order."""
    root = schedule.get_sblock("root", func_name=ENTRY)
    return list(schedule.get_child_blocks(root))


def main_of(module: Any) -> Main:
    """Find the main block and describe it.

    Raises `InputError` if the program has no block, as after lowering.
    """
    schedule = s_tir.Schedule(module)
    try:
        known = [schedule.get(block) for block in blocks(schedule)]
    except (RuntimeError, ValueError, IndexError):
        known = []
    if not known:
        raise InputError("the program has no blocks to schedule; pass the function before it is lowered")

    def work(block: Any) -> float:
        reductions = any(axis.iter_type != tirx.IterVar.DataPar for axis in block.iter_vars)
        return math.prod(int(axis.dom.extent) for axis in block.iter_vars) * (2.0 if reductions else 1.0)

    block = max(known, key=work)
    variables = [axis.var for axis in block.iter_vars]
    axes = tuple(
        Axis(
            axis.var.name.removeprefix("v_"),
            number,
            int(axis.dom.extent),
            axis.iter_type != tirx.IterVar.DataPar,
        )
        for number, axis in enumerate(block.iter_vars)
    )
    parameters = list(module[ENTRY].params)
    operands = [_operand(n, region, variables, parameters) for n, region in enumerate(block.reads)]
    target = block.writes[0].source
    known_names = [str(region.source.name) for region in block.reads]
    kept = tuple(
        operand
        for operand, region in zip(operands, block.reads, strict=True)
        if operand is not None and not region.source.same_as(target) and known_names.count(operand.name) == 1
    )
    written = tuple(_pure(part.min, variables) for part in block.writes[0].region)
    return Main(str(block.name_hint), axes, kept, written)


def _operand(number: int, region: Any, variables: list[Any], parameters: list[Any]) -> Operand | None:
    """Describe a buffer that is read at one place; None if the block reads several."""
    if any(not isinstance(part.extent, tirx.IntImm) or int(part.extent) != 1 for part in region.region):
        return None
    indices = [part.min for part in region.region]
    argument = next((n for n, known in enumerate(parameters) if known.same_as(region.source)), None)
    return Operand(
        name=str(region.source.name),
        number=number,
        shape=tuple(int(extent) for extent in region.source.shape),
        argument=argument,
        dims=tuple(_axes_in(index, variables) for index in indices),
        pure=tuple(_pure(index, variables) for index in indices),
        strides=tuple(_stride(indices[-1], variable) for variable in variables) if indices else (),
    )


def _axes_in(index: Any, variables: list[Any]) -> frozenset[int]:
    found: set[int] = set()

    def look(node: Any) -> None:
        found.update(n for n, variable in enumerate(variables) if variable.same_as(node))

    tvm_ffi.structural_walk(index, (tirx.Var, look))
    return frozenset(found)


def _pure(index: Any, variables: list[Any]) -> int | None:
    return next((n for n, variable in enumerate(variables) if variable.same_as(index)), None)


def _stride(index: Any, variable: Any) -> int:
    """Return the change of a linear index along an axis; 0 if it is not constant."""
    kind = type(index).__name__
    if kind == "Add":
        return _stride(index.a, variable) + _stride(index.b, variable)
    if kind == "Sub":
        return _stride(index.a, variable) - _stride(index.b, variable)
    if kind == "Mul" and isinstance(index.b, tirx.IntImm):
        return _stride(index.a, variable) * int(index.b)
    return int(variable.same_as(index))


def samples(module: Any, seed: int = 0) -> list[np.ndarray]:
    """Return random values for each parameter of a program.

    Numbers are normal; integers are from 0 to 7. Outputs are zeros.
    """
    rng = np.random.default_rng(seed)
    written = outputs_of(module)
    values: list[np.ndarray] = []
    for number, (shape, dtype) in enumerate(arguments(module[ENTRY])):
        if number in written:
            values.append(np.zeros(shape, dtype))
        elif dtype.startswith("float"):
            values.append(cast(np.ndarray, rng.standard_normal(shape)).astype(dtype))
        else:
            values.append(rng.integers(0, 8, shape).astype(dtype))
    return values
