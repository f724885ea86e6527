"""Store a row tile's scores by rows, transposed inside registers.

Vectors hold several rows' values of an output, but in the scores an output's values of neighbouring rows are
a row apart, so vectors would be stored element by element. If a schedule annotates the loop over a tile's
rows (`hbtvm.schedules.cpu.steps.STORED_BY_ROW`), blocks of `lanes` rows are transposed by shuffles and stored
as whole vectors. Rows of fewer outputs than lanes share vectors; if outputs are not a multiple of lanes, the
last vector of a row overlaps the previous vector with equal values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx

_UNROLLED = 6  # most blocks of outputs that are unrolled


def store_by_row(loop: Any, lanes: int) -> Any:
    """Return the replacement of an annotated loop of a lowered function.

    The loop is ``for r: for o: scores[.., r, o] = values[.., o, r]``, with unit strides of r in loads and of
    o in stores; rows are a multiple of `lanes`.
    """
    rows, inner = int(loop.extent), loop.body
    store = inner.body
    outputs = int(inner.extent)
    loads: list[Any] = []
    tvm_ffi.structural_walk(store.value, (ir.TensorLoad, lambda node: loads.append(node)))
    (load,) = loads
    r, o = loop.loop_var, inner.loop_var
    kind = f"{store.buffer.dtype}x{lanes}"

    def at(index: Any, row: Any, output: Any) -> Any:
        values = {r: row, o: output}
        return tvm_ffi.structural_map(index, (tirx.Var, lambda variable: values.get(variable, variable)))

    def taken(row: Any, output: Any) -> Any:
        index = at(load.indices[0], row, output)
        return tirx.BufferLoad(load.source, [tirx.Ramp(index, 1, lanes)])

    def put(row: Any, output: Any, vector: Any) -> Any:
        return tirx.BufferStore(
            store.buffer, vector, [tirx.Ramp(at(store.indices[0], row, output), 1, lanes)]
        )

    def constant(value: int, like: Any) -> Any:
        return tirx.const(value, str(like.ty.dtype))

    names = _Names(kind)
    first = tirx.Var("rows_first", str(r.ty.dtype))

    if outputs < lanes:
        vectors = [names.bind(taken(first, constant(n, o))) for n in range(outputs)]
        for at_vector, packed in enumerate(_packed(vectors, lanes, names)):
            # (A vector may begin at any output of any row; only their sum matters.)
            names.steps.append(put(first, constant(at_vector * lanes, o), packed))
        body = tirx.SeqStmt(names.steps) if len(names.steps) > 1 else names.steps[0]
    else:
        body = _blocks(outputs, lanes, kind, first, o, taken, put)
    step = tirx.Var("rows_block", str(r.ty.dtype))
    whole = tirx.SeqStmt([tirx.Bind(first, step * constant(lanes, r)), body])
    return tirx.For(step, constant(0, r), constant(rows // lanes, r), tirx.ForKind.SERIAL, whole)


class _Names:
    """Binds expressions to variables, in order."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.steps: list[Any] = []

    def bind(self, value: Any, called: str = "lanes") -> Any:
        name = tirx.Var(called, self.kind)
        self.steps.append(tirx.Bind(name, value))
        return name


def _packed(vectors: Sequence[Any], lanes: int, names: _Names) -> list[Any]:
    """Interleave few outputs row by row."""
    count = len(vectors)
    packed = []
    for at in range(count):
        wanted = [divmod(at * lanes + lane, count) for lane in range(lanes)]
        result = None
        for output, vector in enumerate(vectors):
            if result is None:
                # Later selections replace lanes of other outputs.
                result = vector
                rows = [row if place == output else 0 for row, place in wanted]
                if count == 1:
                    break
                held = rows
                continue
            order = [
                lanes + row if place == output else (held[lane] if output == 1 else lane)
                for lane, (row, place) in enumerate(wanted)
            ]
            result = names.bind(tirx.Shuffle([result, vector], order))
        packed.append(result)
    return packed


def _blocks(
    outputs: int,
    lanes: int,
    kind: str,
    first: Any,
    o: Any,
    taken: Callable[[Any, Any], Any],
    put: Callable[[Any, Any, Any], Any],
) -> Any:
    """Return the stores of square blocks of rows and outputs."""
    dtype = str(o.ty.dtype)

    def block(start: Any) -> Any:
        names = _Names(kind)
        vectors = [names.bind(taken(first, start + tirx.const(n, dtype))) for n in range(lanes)]
        for row, vector in enumerate(transposed(vectors, names.bind)):
            names.steps.append(put(first + tirx.const(row, str(first.ty.dtype)), start, vector))
        return tirx.SeqStmt(names.steps)

    starts = list(range(0, outputs - lanes + 1, lanes))
    if starts[-1] != outputs - lanes:
        starts.append(outputs - lanes)
    if len(starts) <= _UNROLLED:
        steps = [block(tirx.const(start, dtype)) for start in starts]
        return steps[0] if len(steps) == 1 else tirx.SeqStmt(steps)
    step = tirx.Var("outputs_block", dtype)
    many = outputs // lanes
    loop = tirx.For(
        step,
        tirx.const(0, dtype),
        tirx.const(many, dtype),
        tirx.ForKind.SERIAL,
        block(step * tirx.const(lanes, dtype)),
    )
    if outputs % lanes == 0:
        return loop
    return tirx.SeqStmt([loop, block(tirx.const(outputs - lanes, dtype))])


def transposed(vectors: Sequence[Any], bind: Callable[[Any, str], Any]) -> list[Any]:
    """Return the transpose of a square block of vectors, by log2 n steps of n shuffles of two vectors each.

    `bind`: binds an expression to a named variable, and returns the variable.
    """
    size, names = len(vectors), list(vectors)
    half = size // 2
    while half:
        exchanged = list(names)
        for n in range(size):
            if n & half:
                continue
            lower, upper = names[n], names[n + half]
            low = [lane if not lane & half else size + lane - half for lane in range(size)]
            high = [lane + half if not lane & half else size + lane for lane in range(size)]
            for place, lanes in ((n, low), (n + half, high)):
                exchanged[place] = bind(tirx.Shuffle([lower, upper], lanes), f"exchanged_{half}_{place}")
        names, half = exchanged, half // 2
    return names
