"""Lower lookups of bytes: entries of a table of bytes, at indices that are bytes.

AVX-512 VBMI permutes the 64 bytes of a register. AVX2 and AVX-512 BW look up 16 bytes, and give 0 where the
highest bit of an index is set. NEON looks up 16 to 64 bytes, and gives 0, or the lane's old byte, where an
index is too large.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

from hbtvm.compiler.lowering.indices import entry_at

_SHUFFLED = 16  # entries of a table of `pshufb`
_PERMUTED = 64  # entries of a table of `vpermb`
_REGISTERS = 4  # most registers of a table of `tbl`


def bytes_at(load: Any, index: Any, entries: int, lanes: int) -> Any:
    """Return the bytes at an unsigned index, which int8 holds, of the run that begins at a load.

    `load`: int8, the same for all lanes, of which there are 1, 16, 32 or 64.
    `entries`: at most 256, a multiple of 64, or of 16 for 16 lanes.
    """
    if lanes == 1:
        return entry_at(load, tirx.Cast("int32", tirx.Cast("uint8", index)))
    load, name = load.value, tirx.Var("byte", f"int8x{lanes}")
    if "neon" in _features():
        made = _looked_up(load, name, entries)
    elif lanes == _PERMUTED and "avx512vbmi" in _features():
        made = _permuted(load, name, entries)
    else:
        made = _shuffled(load, name, entries, lanes)
    return tirx.Let(name, index, made)


def _looked_up(load: Any, index: Any, entries: int) -> Any:
    kind, step = "int8x16", _REGISTERS * _SHUFFLED
    result = None
    for start in range(0, entries, step):
        table = [_run(load, at, _SHUFFLED) for at in range(start, min(start + step, entries), _SHUFFLED)]
        if result is None:
            result = tirx.call_llvm_pure_intrin(kind, f"llvm.aarch64.neon.tbl{len(table)}", *table, index)
            continue
        # Modulo 256, indices below the table's start are beyond its end.
        moved = index + tirx.const((-start + 128) % 256 - 128, kind)
        name = f"llvm.aarch64.neon.tbx{len(table)}"
        result = tirx.call_llvm_pure_intrin(kind, name, result, *table, moved)
    return result


def _permuted(load: Any, index: Any, entries: int) -> Any:
    kind = "int8x64"
    parts = [
        tirx.call_llvm_pure_intrin(kind, "llvm.x86.avx512.permvar.qi.512", _run(load, at, _PERMUTED), index)
        for at in range(0, entries, _PERMUTED)
    ]
    step = _PERMUTED
    while len(parts) > 1:
        bit = tirx.const(step if step < 128 else step - 256, kind)
        upper = (index & bit) != tirx.const(0, kind)
        parts = [tirx.Select(upper, b, a) for a, b in zip(parts[0::2], parts[1::2], strict=True)]
        step *= 2
    return parts[0]


def _shuffled(load: Any, index: Any, entries: int, lanes: int) -> Any:
    kind = f"int8x{lanes}"
    shuffle = "llvm.x86.avx2.pshuf.b" if lanes == 32 else "llvm.x86.avx512.pshuf.b.512"
    result = None
    for at in range(0, entries, _SHUFFLED):
        # The sum saturates: its highest bit is clear for this table's entries only.
        moved = index ^ tirx.const(at if at < 128 else at - 256, kind)
        place = tirx.call_llvm_pure_intrin(kind, f"llvm.uadd.sat.v{lanes}i8", moved, tirx.const(0x70, kind))
        table = _run(load, at, _SHUFFLED)
        for width in (32, 64)[: lanes // 32]:
            table = tirx.vectorcombine(f"int8x{width}", table, table)
        part = tirx.call_llvm_pure_intrin(kind, shuffle, table, place)
        result = part if result is None else result | part
    return result


def _run(load: Any, at: int, count: int) -> Any:
    start = load.indices[0]
    return tirx.BufferLoad(load.source, [tirx.Ramp(start + tirx.const(at, str(start.ty.dtype)), 1, count)])


def _features() -> set[str]:
    target = tvm.target.Target.current()
    return set() if target is None else {str(name).lstrip("+") for name in target.attrs.get("mattr", ())}
