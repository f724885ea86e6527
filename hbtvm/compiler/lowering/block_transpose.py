"""Transpose square blocks of a row tile inside registers.

The elements of a row tile's column are a row apart, so reading a column takes a load for each row. If a
schedule annotates the two loops over a square block (`hbtvm.schedules.cpu.steps.TRANSPOSED`), the block is
loaded by rows, transposed by shuffles (log2 n steps of n shuffles for a block of n times n), and stored
by columns.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from hbtvm.compiler.lowering.block_stores import transposed
from hbtvm.compiler.lowering.lookups import masks_loads


def transpose_block(loop: Any) -> Any:
    """Return the transpose that replaces an annotated loop nest of a lowered function.

    The nest is ``for f: for r: store[.., f, r] = load[.., r, f]`` (or 0 for f outside), with unit strides of
    f in loads and of r in stores.
    """
    size, inner = int(loop.extent), loop.body
    store = inner.body
    value = store.value
    loads: list[Any] = []
    tvm_ffi.structural_walk(value, (ir.TensorLoad, lambda node: loads.append(node)))
    load = loads[0]
    f, r = loop.loop_var, inner.loop_var
    kind = f"{store.buffer.dtype}x{size}"

    def at(index: Any, f_value: int, r_value: int) -> Any:
        values = {f: tirx.const(f_value, _type(f)), r: tirx.const(r_value, _type(r))}
        return tvm_ffi.structural_map(index, (tirx.Var, lambda variable: values.get(variable, variable)))

    mask, whole = tirx.const(True, f"boolx{size}"), None
    if not isinstance(value, ir.TensorLoad):
        inside = value.args[0]
        if masks_loads():
            mask = tirx.Shuffle([at(inside, n, 0) for n in range(size)], list(range(size)))
        else:
            # LLVM would split each load, so only the last block uses scalar loads.
            whole = at(inside, size - 1, 0)
    names = [tirx.Var(f"row_{n}", kind) for n in range(size)]
    steps = []
    for n, name in enumerate(names):
        pointer = tirx.address_of(tirx.BufferLoad(load.source, [at(load.indices[0], 0, n)]))
        # A caller's rows may begin at any address, so the load must not assume alignment.
        row = tirx.call_llvm_pure_intrin(kind, "llvm.masked.load", pointer, mask, tirx.const(0, kind))
        steps.append(tirx.Bind(name, row))

    def bind(value: Any, called: str) -> Any:
        name = tirx.Var(called, kind)
        steps.append(tirx.Bind(name, value))
        return name

    names = transposed(names, bind)
    for n, name in enumerate(names):
        index = tirx.Ramp(at(store.indices[0], n, 0), 1, size)
        steps.append(tirx.BufferStore(store.buffer, name, [index]))
    transposes = tirx.SeqStmt(steps)
    if whole is None:
        return transposes
    plain = tirx.For(f, loop.min, loop.extent, tirx.ForKind.SERIAL, inner)
    return tirx.IfThenElse(whole, transposes, plain)


def _type(variable: Any) -> str:
    return str(variable.ty.dtype)
