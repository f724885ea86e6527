"""Lower lookups of bytes: entries of a table of bytes, at indices that are bytes.

AVX-512 VBMI permutes the 64 or 128 bytes of one or two registers. SSSE3, AVX2 and AVX-512 BW look up 16 bytes
by an index's low bits, and give 0 where its highest bit is set. NEON looks up 16 to 64 bytes, and gives 0, or
the lane's old byte, where an index is too large. Other CPUs load byte by byte.
"""

from __future__ import annotations

import itertools
from typing import Any

import tvm
from tvm import tirx

from hbtvm.compiler.lowering.indices import entry_at

_SHUFFLES = {
    16: "llvm.x86.ssse3.pshuf.b.128",
    32: "llvm.x86.avx2.pshuf.b",
    64: "llvm.x86.avx512.pshuf.b.512",
}
"""By lanes: the instruction that shuffles each 16 bytes."""

_SHUFFLED = 16  # entries of a table of `_SHUFFLES`
_PERMUTED = 64  # entries of a table of `vpermb`
_REGISTERS = 4  # most registers of a table of `tbl`


def bytes_at(load: Any, index: Any, entries: int, lanes: int) -> Any:
    """Return the bytes at an unsigned index, which int8 holds, of the run that begins at a load.

    `load`: int8, the same for all lanes, of which there are 1, 16, 32 or 64.
    `entries`: a multiple of 16, with room for a multiple of 64; at most 256, without AVX-512 VBMI 128.
    """
    if lanes == 1:
        return entry_at(load, tirx.Cast("int32", tirx.Cast("uint8", index)))
    load, name = load.value, tirx.Var("byte", f"int8x{lanes}")
    features = _features()
    if "neon" in features:
        made = _looked_up(load, name, entries)
    elif lanes == _PERMUTED and "avx512vbmi" in features:
        made = _permuted(load, name, entries)
    elif "sse4.2" in features:
        made = _shuffled(load, name, entries, lanes)
    else:
        places = [tirx.Cast("int32", tirx.Shuffle([name], [lane])) for lane in range(lanes)]
        made = tirx.Shuffle([entry_at(load, place) for place in places], list(range(lanes)))
    return tirx.Let(name, index, made)


def byte_of_words(load: Any, index: Any, entries: int) -> Any:
    """Return the bytes at an index of 16 int32 numbers, by permutes of AVX-512 VBMI.

    `load`, `entries`: as of `bytes_at`, with room for a multiple of 64; at most 128.
    """
    name = tirx.Var("word", "int8x64")
    # Three of four bytes of a number look up entry 0, and are cut off.
    words = tirx.reinterpret("int32x16", _permuted(load, name, max(entries, _PERMUTED)))
    return tirx.Let(name, tirx.reinterpret("int8x64", index), tirx.Cast("int8x16", words))


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
    runs = [_run(load, at, _PERMUTED) for at in range(0, entries, _PERMUTED)]
    if len(runs) == 1:
        return tirx.call_llvm_pure_intrin(kind, "llvm.x86.avx512.permvar.qi.512", runs[0], index)
    parts = [
        tirx.call_llvm_pure_intrin(kind, "llvm.x86.avx512.vpermi2var.qi.512", low, index, high)
        for low, high in zip(runs[0::2], runs[1::2], strict=True)
    ]
    return tirx.Select(index < tirx.const(0, kind), parts[1], parts[0]) if parts[1:] else parts[0]


def _shuffled(load: Any, index: Any, entries: int, lanes: int) -> Any:
    """Return the entries by a shuffle for each 16 of them.

    A shuffle ignores all bits of an index but the lowest four and the sign, so each but the first looks up
    the difference of two tables, at an index that is negative for entries before its own.
    """
    kind = f"int8x{lanes}"
    tables = []
    for at in range(0, entries, _SHUFFLED):
        table = _run(load, at, _SHUFFLED)
        for width in (32, 64)[: lanes // 32]:
            table = tirx.vectorcombine(f"int8x{width}", table, table)
        tables.append(table)
    result = tirx.call_llvm_pure_intrin(kind, _SHUFFLES[lanes], tables[0], index)
    for n, (before, table) in enumerate(itertools.pairwise(tables), 1):
        place = index - tirx.const(n * _SHUFFLED, kind)
        result = result ^ tirx.call_llvm_pure_intrin(kind, _SHUFFLES[lanes], before ^ table, place)
    return result


def _run(load: Any, at: int, count: int) -> Any:
    start = load.indices[0]
    return tirx.BufferLoad(load.source, [tirx.Ramp(start + tirx.const(at, str(start.ty.dtype)), 1, count)])


def _features() -> set[str]:
    target = tvm.target.Target.current()
    return set() if target is None else {str(name).lstrip("+") for name in target.attrs.get("mattr", ())}
