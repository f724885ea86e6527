"""The loops, operations and memory accesses of a scheduled kernel, for a cost model's features.

This is independent of operators: a kernel is lowered until blocks are gone and buffers have their final
shapes, and every store becomes a `hbtvm.cost_model.encoding.nest.Statement`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from hbtvm.compiler.building import cuda_source
from hbtvm.compiler.features.expressions import Expressions, element_bytes
from hbtvm.compiler.lowering import rewrites
from hbtvm.compiler.lowering.cuda.grid_stride import grid_stride
from hbtvm.cost_model.encoding.nest import (
    PARALLEL,
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Access,
    Loop,
    Nest,
    Statement,
)
from hbtvm.schedules.cuda.gemm import TENSOR
from hbtvm.schedules.cuda.steps import GRID_STRIDED

_KINDS = {0: SERIAL, 1: PARALLEL, 2: VECTORIZED, 3: UNROLLED}  # from `tvm.tirx.ForKind`

_CLEANING = (s_tir.transform.StmtSimplify, tirx.transform.FlattenBuffer)
"""Passes that change neither loops nor addresses, but take a third of the time."""


def loop_nest(
    module: Any, sizes: Mapping[str, int], *, gpu: bool = False, calls: int = 1, shared: str = ""
) -> Nest:
    """Describe a scheduled kernel.

    `module`: a `tvm.IRModule` with the scheduled function ``main``.
    `sizes`: values of the symbolic sizes in the function's signature, by name; others count as 1.
    `gpu`: whether it is lowered for a GPU. Its blocks are `PARALLEL` loops, and a block's threads are
        innermost `VECTORIZED` loops, because accesses of neighbouring threads are coalesced like those of
    lanes. `calls`: number of parallel calls of the kernel that divide the work.
    `shared`: name of the symbolic size that they divide; `sizes` has one call's share.
    Returns a statement for each store, and for each call that returns nothing, in program order.
    """
    lowering = cuda_source.LOWERING if gpu else rewrites.LOWERING
    passes = [create() for create in lowering if create not in _CLEANING]
    function = tvm.ir.transform.Sequential(passes)(module)["main"]
    walk = _Walk(function, sizes, shared)
    walk.run(function.body)
    if calls == 1:
        return tuple(walk.statements)
    return tuple(_divided(statement, calls, walk.divided) for statement in walk.statements)


def _divided(statement: Statement, calls: int, shared: set[int]) -> Statement:
    """Put the parallel loop over calls around a statement; `shared` are the loops that it divides."""
    share = [loop.extent if loop.number in shared else 0 for loop in statement.loops]

    def moved(access: Access) -> Access:
        step = sum(n * stride for n, stride in zip(share, access.strides, strict=True))
        return replace(access, strides=(step, *access.strides))

    loops = (Loop(calls, PARALLEL), *statement.loops)
    return replace(statement, loops=loops, accesses=tuple(map(moved, statement.accesses)))


class _Walk:
    """Collects a lowered function's statements.

    `statements`: the collected statements.
    `divided`: numbers of the loops over the symbolic size that calls share.
    """

    def __init__(self, function: Any, sizes: Mapping[str, int], shared: str) -> None:
        self.statements: list[Statement] = []
        self.divided: set[int] = set()
        self._shared = shared
        self._inputs = [hash(parameter) for parameter in function.params]
        self._written: set[int] = set()
        self._expressions = Expressions(sizes)
        self._around: list[Loop] = []
        self._threads: dict[str, Loop] = {}
        self._created = 0
        tvm_ffi.structural_walk(
            function.body, (tirx.BufferStore, lambda store: self._written.add(hash(store.buffer)))
        )

    def run(self, body: Any) -> None:
        """Collect a function's body."""
        strided: list[Any] = []
        tvm_ffi.structural_walk(
            body, (tirx.For, lambda loop: strided.append(loop) if GRID_STRIDED in loop.annotations else None)
        )
        if strided:
            # A loop bound to a GPU's axis encloses the whole kernel, including statements before the loop.
            bound = grid_stride(strided[0])
            self._bound(str(bound.node.thread_tag), bound.node.var, bound.value, body)
        else:
            self.visit(body)

    def visit(self, node: Any) -> None:
        """Collect a statement and the statements within."""
        kind = type(node).__name__
        if kind == "SeqStmt":
            for part in node.seq:
                self.visit(part)
        elif kind == "For":
            self._loop(node)
        elif kind == "AttrStmt" and node.attr_key == "thread_extent":
            self._bound(str(node.node.thread_tag), node.node.var, node.value, node.body)
        elif kind == "IfThenElse":
            self.visit(node.then_case)
            if node.else_case is not None:
                self.visit(node.else_case)
        elif kind == "Bind":
            self._expressions.variables[hash(node.var)] = self._expressions.value(node.value)
        elif kind == "BufferStore":
            self._expressions.value(node.value)
            self._expressions.access(node.buffer, node.indices, store=True)
            self._finish(element_bytes(node.buffer))
        elif kind == "Evaluate":
            self._expressions.value(node.value)
            self._finish(4)
        elif getattr(node, "body", None) is not None:
            self.visit(node.body)

    def _loop(self, node: Any) -> None:
        if GRID_STRIDED in node.annotations:
            self.visit(grid_stride(node))
        elif TENSOR in node.annotations:
            with self._entered(node.loop_var, node.extent, VECTORIZED), self._together():
                self.visit(node.body)
        elif int(node.kind) == tirx.ForKind.THREAD_BINDING:
            self._bound(str(node.thread_binding.thread_tag), node.loop_var, node.extent, node.body)
        else:
            with self._entered(node.loop_var, node.extent, _KINDS[int(node.kind)], node.min):
                self.visit(node.body)

    def _bound(self, tag: str, variable: Any, extent: Any, body: Any) -> None:
        """Collect the body of a loop bound to a GPU's axis; a second loop on the axis adds no iterations."""
        if tag in self._threads:
            self._expressions.variable(variable, 0, self._threads[tag].number)
            self.visit(body)
            return
        kind = VECTORIZED if tag.startswith("threadIdx") else PARALLEL
        with self._entered(variable, extent, kind) as loop:
            self._threads[tag] = loop
            self.visit(body)
            del self._threads[tag]

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Treat a warp's threads as one in the context, in which they multiply a tile on a tensor core."""
        outer = self._around
        self._around = [loop for loop in outer if loop is not self._threads.get("threadIdx.x")]
        yield
        self._around = outer

    @contextmanager
    def _entered(self, variable: Any, extent: Any, kind: int, start: Any = None) -> Iterator[Loop]:
        expressions = self._expressions
        self._created += 1
        loop = Loop(max(expressions.value(extent).first, 1), kind, self._created)
        if self._shared and str(getattr(extent, "name", "")) == self._shared:
            self.divided.add(loop.number)
        first = expressions.value(start).first if start is not None else 0
        expressions.variable(variable, first, loop.number)
        outside = expressions.vector
        expressions.vector = outside or (kind == VECTORIZED and loop.extent > 1)
        self._around.append(loop)
        yield loop
        self._around.pop()
        expressions.vector = outside

    def _finish(self, lane_bytes: int) -> None:
        """Create a statement from the operations and accesses since the previous statement."""
        threads = {loop.number for tag, loop in self._threads.items() if tag.startswith("threadIdx")}
        loops = sorted(self._around, key=lambda loop: loop.number in threads)
        lanes = {loop.number for loop in loops if loop.kind == VECTORIZED and loop.extent > 1}
        accesses = tuple(
            Access(
                self._role(hash(buffer)),
                element_bytes(buffer),
                tuple(element.steps.get(loop.number, 0) for loop in loops),
                store=store,
                # A vector whose lanes all read the same entry is a load.
                gather=element.data is not None and (not lanes or bool(lanes & element.data)),
                span=span,
            )
            for buffer, element, span, store in self._expressions.addresses
        )
        if accesses:
            operations = self._expressions.operations
            self.statements.append(Statement(tuple(loops), operations, accesses, lane_bytes))
        self._expressions.start()

    def _role(self, buffer: int) -> str:
        if buffer not in self._inputs:
            return "scratch"
        if buffer in self._written:
            return "out"
        return "x" if buffer == self._inputs[0] else "table"
