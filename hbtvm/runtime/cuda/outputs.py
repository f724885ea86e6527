"""Outputs of raw scores by one kernel of a package, in place of several operations of an array library."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hbtvm.graph.outputs.output import Output, OutputSpec
from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.memory import Memory
from hbtvm.runtime.gpu.launch import MOST_OUTPUTS, MOST_STEPS, OUTPUT_STEPS, OUTPUT_THREADS, pointers
from hbtvm.runtime.native.epilogues.epilogue import STEPS, Epilogue, Rule, Type
from hbtvm.runtime.native.epilogues.select import epilogue_of

_COMPARISONS = frozenset(STEPS[name] for name in ("greater", "greater_equal", "less", "likelier"))
_KNOWN = frozenset(STEPS[name] for name in OUTPUT_STEPS)


class Program(ctypes.Structure):
    """The struct of `hbtvm.compiler.lowering.cuda.output_kernel`: an `Epilogue` for that kernel."""

    _fields_ = [
        ("table", ctypes.c_uint64),
        ("constants", ctypes.c_double * MOST_STEPS),
        *((name, ctypes.c_int32) for name in ("stride", "first", "width", "columns", "type", "single")),
        *((name, ctypes.c_int32) for name in ("rule", "item", "steps")),
        ("step", ctypes.c_int32 * MOST_STEPS),
    ]


class DeviceOutput:
    """An output of raw scores, float64, shape (n, `width`), on a device.

    `dtype`, `is_raw`: the results' type; and whether they are the raw scores, so that no kernel runs.
    """

    def __init__(self, gpu: Gpu, epilogue: Epilogue, width: int, function: int) -> None:
        self._epilogue, self._gpu, self._function = epilogue, gpu, function
        self._spare: list[Any] = []  # laid out arguments
        self.dtype = epilogue.dtype
        self.is_raw = epilogue.plain and epilogue.type == Type.F64 and epilogue.columns == width
        # The table stays allocated as long as this object.
        self._table = Memory.of(gpu, np.ascontiguousarray(epilogue.table)) if epilogue.table.size else None
        self._program = Program(
            table=0 if self._table is None else self._table.handle,
            stride=width,
            first=epilogue.first,
            width=epilogue.last - epilogue.first,
            columns=epilogue.columns,
            type=int(epilogue.type),
            single=int(epilogue.single),
            rule=int(epilogue.rule),
            item=epilogue.item,
            steps=len(epilogue.step),
        )
        for at, step in enumerate(epilogue.step.tolist()):
            self._program.step[at] = step
            self._program.constants[at] = float(epilogue.constants[at][0])

    def shape(self, count: int) -> tuple[int, ...]:
        """Return the shape of `count` rows' results."""
        return (count,) if self._epilogue.flat else (count, self._epilogue.columns)

    def queue(self, stream: int | None, raw: int, count: int, out: int) -> None:
        """Queue the results of `count` rows; the device must be current.

        `raw`, `out`: addresses of raw scores, which the kernel may overwrite, and of the results.
        """
        # A list's pop and append are atomic, so threads never share arguments.
        try:
            given = self._spare.pop()
        except IndexError:
            given = pointers((ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int64(), self._program))
        at, into, number, _ = given.values
        at.value, into.value, number.value = raw, out, count
        sizes = (-(-count // OUTPUT_THREADS), 1, 1, OUTPUT_THREADS, 1, 1, 0)
        self._gpu.driver.call("cuLaunchKernel", self._function, *sizes, stream, given, None)
        self._spare.append(given)

    def finished(self, results: Any) -> Any:
        """Return results in the form of the library's method."""
        return self._epilogue.output(results)


def device_output(gpu: Gpu, spec: OutputSpec, output: Output | None, function: int) -> DeviceOutput | None:
    """Return an output that the kernel computes as numpy does; None for others.

    `output`: as of `OutputSpec.compute`.
    `function`: the package's kernel of outputs; 0 if it has none.
    """
    if not spec.by_any_library(output):
        return None
    epilogue = epilogue_of(spec, output, n_outputs=spec.n_outputs)
    if epilogue is None or not _fits(epilogue, spec):
        return None
    made = DeviceOutput(gpu, epilogue, spec.n_outputs, function)
    return made if made.is_raw or function else None


def _fits(epilogue: Epilogue, spec: OutputSpec) -> bool:
    """Return whether the kernel computes an epilogue, and reads no label outside of its table."""
    steps, width = epilogue.step.tolist(), epilogue.last - epilogue.first
    if epilogue.plain:
        return True
    if epilogue.rule == Rule.COUPLED or epilogue.targets != 1 or epilogue.lookups:
        return False
    if len(steps) > MOST_STEPS or width > MOST_OUTPUTS or not _KNOWN.issuperset(steps):
        return False
    if any(len(set(constants.tolist())) > 1 for constants in epilogue.constants):
        return False
    if epilogue.type != Type.BYTES:
        return epilogue.type in (Type.F32, Type.F64, Type.I64, Type.I32)
    positions = width if epilogue.rule == Rule.LARGEST else 2 if _COMPARISONS & {*steps[-1:]} else None
    return positions is not None and positions <= len(spec.classes[0])
