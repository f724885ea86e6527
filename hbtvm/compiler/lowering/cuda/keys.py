"""Keys in place of the float64 numbers that OpenCL kernels of trees compare.

A key is an int64 number in the order of float64 numbers (`hbtvm.runtime.opencl.keys`). Where the driver
compiles a kernel's source for a device without float64, comparisons are those of keys, and exact. Elsewhere
the int64 numbers are the float64 numbers' bits, and the comparisons are those of float64. A kernel's sums
stay float64 numbers, or pairs (`hbtvm.compiler.lowering.cuda.pairs`).

The values that a comparison or a conversion to integers reads are keys, and so are all numbers that they are
copied from: tables of thresholds, columns in local memory, and rows. A kernel makes keys of rows as it loads
them, so rows need no conversion on the host; tables of keys are converted there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from hbtvm.compiler.lowering.cuda.pairs import IF, REINTERPRET, dtype_of, is_call
from hbtvm.runtime.opencl.keys import KEYS, ROWS, to_keys

_NAMES = {
    tirx.LT: ("less", False),
    tirx.LE: ("less_equal", False),
    tirx.GT: ("less", True),
    tirx.GE: ("less_equal", True),
}
"""Comparisons: the operation's name, and whether its operands are swapped."""


class _UnsupportedError(Exception):
    """A kernel computes with numbers that it compares."""


def with_keys(kernels: Any) -> tuple[Any, str]:
    """Return kernels that compare keys, and a line of source that names their arrays of keys.

    The kernels are unchanged, and the line is empty, if none compares float64 numbers, or one also computes
    with them.

    `kernels`: a module for the generator.
    """
    try:
        changed = {name: _Keys(function) for name, function in kernels.functions.items()}
        module = ir.IRModule({name: keys.function() for name, keys in changed.items()})
    except _UnsupportedError:
        return kernels, ""
    arrays = sorted({name for keys in changed.values() for name in keys.arrays})
    return (module, f"{KEYS} {' '.join(arrays)}\n") if arrays else (kernels, "")


class _Keys:
    """A kernel, and its variables and buffers of keys."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._new: list[tuple[Any, Any]] = []  # buffers, pointers and variables, and those of keys
        self._rows: list[Any] = []
        self.arrays: set[str] = set()
        self._find()

    def _find(self) -> None:
        """Find what comparisons and conversions read, back to the arrays."""
        read: list[Any] = []
        written: list[tuple[Any, Any]] = []
        declared: list[Any] = []

        def compared(node: Any) -> None:
            if _is_number(node.a):
                read.extend((node.a, node.b))

        def cast(node: Any) -> None:
            if _is_number(node.value) and not dtype_of(node).startswith("float"):
                read.append(node.value)

        tvm_ffi.structural_walk(
            self._function.body,
            [
                *((kind, compared) for kind in _NAMES),
                (tirx.Cast, cast),
                (tirx.BufferStore, lambda store: written.append((store.buffer, store.value))),
                ((tirx.Bind, tirx.Let), lambda bind: written.append((bind.var, bind.value))),
                (tirx.DeclBuffer, declared.append),
            ],
        )
        pointers = {declaration.buffer: declaration.data for declaration in declared}
        found: dict[Any, None] = {}
        while read:
            for variable in _sources(read.pop()):
                if variable not in found:
                    found[variable] = None
                    read += [value for into, value in written if into.same_as(variable)]
        # Buffers that share memory may be views of the same numbers.
        shared = {_memory(variable, pointers) for variable in found}
        for into, value in written:
            if _is_number(value) and into not in found and _memory(into, pointers) in shared:
                raise _UnsupportedError
        for variable in found:
            self._replace(variable, pointers.get(variable))

    def _replace(self, variable: Any, pointer: Any) -> None:
        """Replace a variable, or a buffer and its pointer, by those of keys.

        `pointer`: the parameter that points to a buffer, or another buffer's memory; None for buffers that
            the kernel allocates.
        """
        if not isinstance(variable.ty, tirx.BufferType):
            if any(variable.same_as(parameter) for parameter in self._function.params):
                raise _UnsupportedError
            self._new.append((variable, tirx.Var(str(variable.name), _keyed(dtype_of(variable)))))
            return
        kind, data = variable.ty, None
        if isinstance(pointer, tirx.Var):
            if not any(pointer.same_as(parameter) for parameter in self._function.params):
                raise _UnsupportedError
            data = tirx.Var(str(pointer.name), ir.PointerType(ir.PrimType("int64"), kind.storage_scope))
            self._new.append((pointer, data))
            self.arrays.add(str(variable.name))
            if str(variable.name) == ROWS:
                self._rows.append(variable)
        buffer = tirx.decl_buffer(
            kind.shape, _keyed(str(kind.dtype.dtype)), str(variable.name), data, kind.strides,
            kind.elem_offset, kind.storage_scope, kind.data_alignment, kind.offset_factor,
        )  # fmt: skip
        self._new.append((variable, buffer))

    def _keyed(self, variable: Any) -> Any | None:
        return next((new for old, new in self._new if old.same_as(variable)), None)

    def function(self) -> Any:
        """Return the kernel with keys."""

        def compared(node: Any) -> Any:
            if not _is_number(node.a):
                return node
            name, swapped = _NAMES[type(node)]
            a, b = (node.b, node.a) if swapped else (node.a, node.b)
            return self._operation(name, "bool", a, b)

        def equal(node: Any) -> Any:
            if not _is_number(node.a) or not any(map(self._is_keyed, _sources(node.a) + _sources(node.b))):
                return node
            test = self._operation("equal", "bool", node.a, node.b)
            return test if isinstance(node, tirx.EQ) else tirx.Not(test)

        def cast(node: Any) -> Any:
            if not _is_number(node.value) or dtype_of(node).startswith("float"):
                return node
            return self._operation("truncated", "int64", node.value).astype(dtype_of(node))

        def store(node: Any) -> Any:
            buffer = self._keyed(node.buffer)
            return node if buffer is None else tirx.BufferStore(buffer, self._key(node.value), node.indices)

        def bind(node: Any) -> Any:
            variable = self._keyed(node.var)
            if variable is None:
                return node
            value = self._key(node.value)
            return (
                tirx.Bind(variable, value)
                if isinstance(node, tirx.Bind)
                else tirx.Let(variable, value, node.body)
            )

        def load(node: Any) -> Any:
            if self._is_keyed(node.source):
                raise _UnsupportedError  # not within a comparison
            return node

        def variable(node: Any) -> Any:
            new = self._keyed(node)
            return node if new is None else new

        unsupported: list[Any] = []

        def caught(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
            """Return a callback that raises nothing, as exceptions lose their types on the way."""

            def changed(node: Any) -> Any:
                try:
                    return change(node)
                except _UnsupportedError:
                    unsupported.append(node)
                    return node

            return changed

        changes: list[tuple[Any, Callable[[Any], Any]]] = [
            *((kind, compared) for kind in _NAMES),
            ((tirx.EQ, tirx.NE), equal),
            (tirx.Cast, cast),
            (tirx.BufferStore, store),
            ((tirx.Bind, tirx.Let), bind),
            (ir.TensorLoad, load),
            (tirx.Var, variable),
        ]
        callbacks = [(kind, caught(change)) for kind, change in changes]
        body = tvm_ffi.structural_map(self._function.body, callbacks, order="pre")
        if unsupported:
            raise _UnsupportedError
        parameters = list(map(variable, self._function.params))
        return tirx.PrimFunc(parameters, body, attrs=self._function.attrs)

    def _is_keyed(self, variable: Any) -> bool:
        return self._keyed(variable) is not None

    def _operation(self, name: str, dtype: str, *numbers: Any) -> Any:
        if any("x" in dtype_of(number) for number in numbers):
            raise _UnsupportedError
        return _called(name, dtype, *map(self._key, numbers))

    def _key(self, number: Any) -> Any:
        """Return the key of a number, whose conditions and indices are still to be mapped."""
        dtype = _keyed(dtype_of(number))
        if isinstance(number, tirx.FloatImm):
            value = np.array(float(number.value) + 0.0)  # no -0.0: C has no literal of its bits
            bits = tirx.const(int(value.view(np.int64)), "int64")
            return _called("constant", dtype, bits, tirx.const(int(to_keys(value)), "int64"))
        if isinstance(number, ir.TensorLoad):
            buffer = self._keyed(number.source)
            if buffer is None:
                raise _UnsupportedError
            loaded = tirx.BufferLoad(buffer, number.indices)
            lanes = dtype.removeprefix("int64").removeprefix("x")
            is_row = any(number.source.same_as(rows) for rows in self._rows)
            return _called(f"of{lanes}", dtype, loaded) if is_row else loaded
        if isinstance(number, tirx.Var):
            return self._keyed(number)
        if isinstance(number, tirx.Select):
            return tirx.Select(number.condition, self._key(number.true_value), self._key(number.false_value))
        if isinstance(number, tirx.Let):
            return tirx.Let(number.var, number.value, self._key(number.body))
        if is_call(number, IF):
            condition, yes, no = number.args
            return tirx.if_then_else(condition, self._key(yes), self._key(no))
        if is_call(number, REINTERPRET):
            return _called("of", dtype, number.args[0])
        if isinstance(number, tirx.Sub) and _is_zero(number.a):
            return self._operation("negated", dtype, number.b)
        if isinstance(number, tirx.Cast) and not dtype_of(number.value).startswith("float"):
            return _called("whole", dtype, number.value.astype("int64"))
        raise _UnsupportedError


def _sources(number: Any) -> list[Any]:
    """Return the variables and buffers that a number is copied from."""
    if isinstance(number, ir.TensorLoad):
        return [number.source]
    if isinstance(number, tirx.Var):
        return [number]
    parts: Iterable[Any] = ()
    if isinstance(number, tirx.Select):
        parts = number.true_value, number.false_value
    elif isinstance(number, tirx.Let):
        parts = (number.body,)
    elif is_call(number, IF):
        parts = number.args[1:]
    elif isinstance(number, tirx.Sub):
        parts = number.a, number.b
    return [source for part in parts for source in _sources(part)]


def _memory(variable: Any, pointers: dict[Any, Any]) -> Any:
    """Return the buffer, or the parameter, whose memory a buffer is in; the variable itself for others."""
    pointer = pointers.get(variable)
    if pointer is None:
        return variable
    return _memory(pointer.args[0], pointers) if isinstance(pointer, ir.Call) else pointer


def _is_number(value: Any) -> bool:
    return dtype_of(value).startswith("float64")


def _keyed(dtype: str) -> str:
    return dtype.replace("float64", "int64")


def _is_zero(number: Any) -> bool:
    return isinstance(number, tirx.FloatImm) and float(number.value) == 0


def _called(name: str, dtype: str, *values: Any) -> Any:
    return tirx.call_pure_extern(dtype, f"hbtvm_key_{name}", *values)
