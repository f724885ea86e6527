"""Lower lookups (see `hbtvm.strategies.intrinsics.lookup`) to machine instructions.

TVM calls `lower` for each lookup of a kernel (and `lower_exact` for values to round) in its last pass before
code generation, when loops are vectors and buffers are flat.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.tirx.op import register_intrin_lowering

from hbtvm.compiler.lowering.byte_tables import byte_of_words, bytes_at
from hbtvm.runtime.cpu import vector_bits
from hbtvm.schedules.cpu.steps import MAX_BY_BYTES
from hbtvm.strategies.intrinsics.exact import EXACT
from hbtvm.strategies.intrinsics.lookup import METHODS, OPERATOR

_PERMUTES = {
    # (dtype, lanes): of one register, of two registers
    ("float32", 16): ("llvm.x86.avx512.permvar.sf.512", "llvm.x86.avx512.vpermi2var.ps.512"),
    ("int32", 16): ("llvm.x86.avx512.permvar.si.512", "llvm.x86.avx512.vpermi2var.d.512"),
    ("float64", 8): ("llvm.x86.avx512.permvar.df.512", "llvm.x86.avx512.vpermi2var.pd.512"),
    ("int64", 8): ("llvm.x86.avx512.permvar.di.512", "llvm.x86.avx512.vpermi2var.q.512"),
    ("float32", 8): ("llvm.x86.avx2.permps", "llvm.x86.avx512.vpermi2var.ps.256"),
    ("int32", 8): ("llvm.x86.avx2.permd", "llvm.x86.avx512.vpermi2var.d.256"),
}
_GATHERS = {
    ("float32", 16): "llvm.x86.avx512.mask.gather.dps.512",
    ("int32", 16): "llvm.x86.avx512.mask.gather.dpi.512",
    ("float64", 8): "llvm.x86.avx512.mask.gather.dpd.512",
    ("int64", 8): "llvm.x86.avx512.mask.gather.dpq.512",
    ("float32", 8): "llvm.x86.avx2.gather.d.ps.256",
    ("int32", 8): "llvm.x86.avx2.gather.d.d.256",
    ("float64", 4): "llvm.x86.avx2.gather.d.pd.256",
    ("int64", 4): "llvm.x86.avx2.gather.d.q.256",
    ("float32", 4): "llvm.x86.avx2.gather.d.ps",
    ("int32", 4): "llvm.x86.avx2.gather.d.d",
}
_WIDEST = {"avx512": 64, "avx2": 32, "neon": 16, "": 0}
"""Bytes of a vector register by `_unit`'s instruction sets."""

_TABLE = 64  # bytes of the largest table of a NEON instruction: four registers


def lower(call: Any) -> Any:
    """Return the loads, the gather or the permutes that replace a lookup."""
    load, index, entries, method = call.args
    dtype, lanes = _type(call)
    if dtype == "int8" and _type(index)[0] == "int8":
        return bytes_at(load, index, _number(entries), lanes)
    if dtype == "int8" and lanes > 1:
        return byte_of_words(load.value, index, _number(entries))
    if lanes == 1:
        return _load(load.source, load.indices[0] + _as(load.indices[0], index))
    load = load.value  # the same for all lanes
    chosen = METHODS[_number(method)]
    return _vector(load.source, load.indices[0], index, _number(entries), chosen, dtype, lanes)


def _vector(buffer: Any, start: Any, index: Any, entries: int, method: str, dtype: str, lanes: int) -> Any:
    """Return a vector of ``buffer[start + index]``, split into registers of the target's width."""
    unit = _unit()
    if method != "scalar" and lanes * np.dtype(dtype).itemsize > _WIDEST[unit] > 0:
        half = lanes // 2
        return tirx.Let(
            name := tirx.Var("index", f"int32x{lanes}"),
            index,
            tirx.vectorcombine(
                f"{dtype}x{lanes}",
                *(
                    _vector(buffer, start, part(f"int32x{half}", name), entries, method, dtype, half)
                    for part in (tirx.vectorlow, tirx.vectorhigh)
                ),
            ),
        )
    if unit == "neon":
        if method == "permute" and (lanes, np.dtype(dtype).itemsize) == (4, 4) and entries <= MAX_BY_BYTES:
            return _by_bytes(buffer, start, index, entries, dtype)
    elif method == "permute" and unit and (dtype, lanes) in _PERMUTES:
        return _permute(buffer, start, index, entries, dtype, lanes, pairs=unit == "avx512")
    elif method == "gather" and unit and (dtype, lanes) in _GATHERS:
        return _gather(buffer, start, index, dtype, lanes)
    return _one_by_one(buffer, start, index, lanes)


def _one_by_one(buffer: Any, start: Any, index: Any, lanes: int) -> Any:
    """Load lane by lane, extracting the indices from the vector in pairs (LLVM extracts each by itself)."""
    half = lanes // 2
    name = tirx.Var("index", f"int64x{half}")
    base = tirx.Cast("int64", start)
    loads = []
    for lane in range(lanes):
        pair = tirx.Shuffle([name], [lane // 2])
        entry = pair >> tirx.const(32, "int64") if lane % 2 else pair & tirx.const(0xFFFFFFFF, "int64")
        loads.append(_load(buffer, base + entry))
    # If LLVM knows all but one bit of an index, its optimizer undoes the extraction in pairs. The fence hides
    # the index's origin from it, and costs no instruction.
    kind = f"float64x{half}"
    fenced = tirx.call_llvm_pure_intrin(kind, "llvm.arithmetic.fence", tirx.reinterpret(kind, index))
    return tirx.Let(name, tirx.reinterpret(f"int64x{half}", fenced), tirx.Shuffle(loads, list(range(lanes))))


def _permute(buffer: Any, start: Any, index: Any, entries: int, dtype: str, lanes: int, pairs: bool) -> Any:
    """Load the whole run, permute each register (or pair), and select by the index."""
    single, paired = _PERMUTES[dtype, lanes]
    name = tirx.Var("index", f"int32x{lanes}")
    # The instructions use the low bits only; the selects below use the high bits.
    low = name if np.dtype(dtype).itemsize == 4 else tirx.Cast(f"int64x{lanes}", name)
    registers = [
        _load(buffer, tirx.Ramp(start + tirx.const(at, _type(start)[0]), 1, lanes))
        for at in range(0, entries, lanes)
    ]
    kind = f"{dtype}x{lanes}"
    step = lanes
    parts = []
    if pairs and len(registers) > 1:
        step = 2 * lanes
        neighbours = zip(registers[0::2], registers[1::2], strict=False)
        parts = [tirx.call_llvm_pure_intrin(kind, paired, a, low, b) for a, b in neighbours]
        registers = registers[2 * len(parts) :]
    for register in registers:
        # AVX2's instructions take the index last, like LLVM's AVX-512 intrinsics.
        parts.append(tirx.call_llvm_pure_intrin(kind, single, register, low))
    while len(parts) > 1:
        upper = (name & tirx.const(step, f"int32x{lanes}")) != tirx.const(0, f"int32x{lanes}")
        merged = [tirx.Select(upper, b, a) for a, b in zip(parts[0::2], parts[1::2], strict=False)]
        parts = merged + parts[2 * len(merged) :]
        step *= 2
    return tirx.Let(name, index, parts[0])


def _by_bytes(buffer: Any, start: Any, index: Any, entries: int, dtype: str) -> Any:
    """Return four entries of four bytes each, by NEON's instructions for tables of up to 64 bytes.

    The instructions skip lanes with too large indices, so each table of a run fills its lanes.
    """
    kind, lanes = "int8x16", 4
    registers = [
        tirx.reinterpret(kind, _load(buffer, tirx.Ramp(start + tirx.const(at, _type(start)[0]), 1, lanes)))
        for at in range(0, entries, lanes)
    ]
    tables = [registers[at : at + 4] for at in range(0, len(registers), 4)]
    # Entry n has the bytes 4n to 4n + 3.
    numbers = index * tirx.const(0x04040404, "int32x4") + tirx.const(0x03020100, "int32x4")
    name = tirx.Var("bytes", kind)
    value = tirx.call_llvm_pure_intrin(kind, f"llvm.aarch64.neon.tbl{len(tables[0])}", *tables[0], name)
    for n, table in enumerate(tables[1:], 1):
        # Modulo 256, indices below the table's start are beyond its end.
        shifted = name + tirx.const((-n * _TABLE + 128) % 256 - 128, kind)
        value = tirx.call_llvm_pure_intrin(kind, f"llvm.aarch64.neon.tbx{len(table)}", value, *table, shifted)
    return tirx.Let(name, tirx.reinterpret(kind, numbers), tirx.reinterpret(f"{dtype}x{lanes}", value))


def _gather(buffer: Any, start: Any, index: Any, dtype: str, lanes: int) -> Any:
    kind, size = f"{dtype}x{lanes}", np.dtype(dtype).itemsize
    address = tirx.address_of(_load(buffer, start))
    zero = tirx.const(0, kind)
    name = _GATHERS[dtype, lanes]
    if "avx512" in name:
        mask = tirx.const(True, f"boolx{lanes}")
        return tirx.call_llvm_pure_intrin(kind, name, zero, address, index, mask, tirx.const(size, "int32"))
    mask = tirx.reinterpret(kind, tirx.const(-1, f"int{8 * size}x{lanes}"))
    return tirx.call_llvm_pure_intrin(kind, name, zero, address, index, mask, tirx.const(size, "int8"))


def _unit() -> str:
    """Return the current target's widest instruction set for lookups; "" for none."""
    target = tvm.target.Target.current()
    features = set() if target is None else {str(name).lstrip("+") for name in target.attrs.get("mattr", ())}
    return "neon" if "neon" in features else {512: "avx512", 256: "avx2"}.get(vector_bits(features), "")


def masks_loads() -> bool:
    """Return whether the current target has masked vector loads."""
    return _unit() in ("avx512", "avx2")


def on_arm() -> bool:
    """Return whether the current target is a 64-bit Arm CPU."""
    return _unit() == "neon"


def register_lanes(dtype: str) -> int:
    """Return the lanes of a dtype in the current target's widest register; 0 for SSE."""
    return _WIDEST[_unit()] // np.dtype(dtype).itemsize


def _type(expression: Any) -> tuple[str, int]:
    """Return an expression's element type and lanes."""
    element, _, lanes = str(expression.ty.dtype).partition("x")
    return element, int(lanes or 1)


def _number(constant: Any) -> int:
    return int(constant.value if not isinstance(constant, tirx.Broadcast) else constant.value.value)


def _as(like: Any, index: Any) -> Any:
    """Cast an index to the integer type of `like`."""
    element, lanes = _type(like)[0], _type(index)[1]
    return tirx.Cast(element if lanes == 1 else f"{element}x{lanes}", index)


def _load(buffer: Any, index: Any) -> Any:
    return tirx.BufferLoad(buffer, [index])


def lower_exact(call: Any) -> Any:
    """Return the fence that replaces `hbtvm.strategies.intrinsics.exact.exact`."""
    return tirx.call_llvm_pure_intrin(str(call.ty.dtype), "llvm.arithmetic.fence", call.args[0])


register_intrin_lowering(OPERATOR, target="llvm", f=lower)
register_intrin_lowering(EXACT, target="llvm", f=lower_exact)
