"""Kernels of recursive models on GPUs: one a step, started for each level, or one for all levels.

The second is Cortex's persistent kernel (MLSys'21, section 5): its blocks stay, and wait for each other at a
barrier in global memory. That takes that all of them are on the device at once, so it is started as a
cooperative launch, which the driver refuses where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from hbtvm.runtime.recursive.entry import Program, Step
from hbtvm.schedules.statements import Scratch, scratch, sequence
from hbtvm.strategies.recursive.cuda_nests import inlined, is_shared_out, steps_on
from hbtvm.strategies.recursive.cuda_parameters import DeviceParameters
from hbtvm.strategies.recursive.cuda_step import Blocking, DeviceStep, const
from hbtvm.strategies.recursive.cuda_steps import LevelStep
from hbtvm.strategies.recursive.cuda_wholes import WholesStep
from hbtvm.strategies.recursive.nests import flat
from hbtvm.strategies.recursive.parameters import Tables
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.products import serial_loop

BARRIER = "hbtvm_wait_for_blocks"
"""The function by which blocks wait for each other."""

_BARRIER_SOURCE = f"""
__forceinline__ __device__ void {BARRIER}(int64_t* barrier, int64_t arrivals) {{
  __syncthreads();
  if (threadIdx.x == 0) {{
    __threadfence();
    atomicAdd((unsigned long long*)barrier, 1ull);
    while (*(volatile int64_t*)barrier < arrivals) __nanosleep(32);
    __threadfence();
  }}
  __syncthreads();
}}
"""
"""All blocks have come when the counter, which only grows, says so; all then see what each wrote before."""

PERSISTENT = "all_levels"
"""Name of the kernel that goes through all levels."""


Memory = dict[int, int]
"""Numbers of memory between steps by a value's number."""


@dataclass(frozen=True)
class Classes:
    """Facts of nodes by class; see `hbtvm.strategies.recursive.levels.Classes`."""

    leaf: Facts
    inner: Facts
    first: Facts | None


@dataclass(frozen=True)
class Made:
    """Functions by name, programs, and the step that replaces them where there is one kernel for all levels.

    Arguments of steps are those that the compiled kernels take, known once they are compiled.
    """

    functions: dict[str, Any]
    leaf: Program
    inner: Program
    first: Program | None
    persistent: Step | None


def kernels_on_device(classes: Classes, blocking: Blocking, persistent: bool, tables: Tables) -> Made:
    """Return the kernels of a cell."""
    functions: dict[str, Any] = {}
    programs: dict[str, tuple[Step, ...]] = {}
    named = {"leaf": classes.leaf, "inner": classes.inner}
    if classes.first is not None:
        named["first"] = classes.first
    memory, widths = _memory(list(named.values()))
    for (name, facts), own_memory in zip(named.items(), memory, strict=True):
        steps = []
        for number in range(len(steps_on(facts))):
            own = f"{name}_{number}"
            function, made = _Kernel(facts, blocking, tables).of_step(own, facts, number, own_memory)
            if not persistent:
                functions[own] = function
            steps.append(Step(own, made.tile, (), made.panels, blocking.threads))
        programs[name] = tuple(steps)
    whole = None
    if persistent:
        functions[PERSISTENT] = _Kernel(classes.inner, blocking, tables).of_all(named, memory)
        # As many blocks as the step of most units for a node has work for.
        most = max((step for steps in programs.values() for step in steps), key=lambda s: s.panels / s.tile)
        whole = replace(most, function=PERSISTENT)
    found = {name: Program(steps, tuple(widths)) for name, steps in programs.items()}
    return Made(functions, found["leaf"], found["inner"], found.get("first"), whole)


def _memory(all_facts: Sequence[Facts]) -> tuple[list[dict[int, int]], list[int]]:
    """Numbers of memory between steps by stored value, of each class its own, and the widths of all."""
    made: list[Memory] = []
    widths: list[int] = []
    for facts in all_facts:
        inline = inlined(facts)
        stored = [number for number in facts.nests.scratch if number not in inline]
        made.append({number: len(widths) + i for i, number in enumerate(stored)})
        widths += [flat(facts.values[number].shape) for number in stored]
    return made, widths


class _Kernel:
    """Makes one function."""

    def __init__(self, facts: Facts, blocking: Blocking, tables: Tables) -> None:
        self.blocking = blocking
        self.parameters = DeviceParameters(facts.width, facts.children, tables)
        self.block, self.thread = tirx.Var("blockIdx.x", "int64"), tirx.Var("threadIdx.x", "int64")

    def of_step(self, name: str, facts: Facts, number: int, memory: Memory) -> tuple[Any, DeviceStep]:
        """One step of one level, a block for each unit of it; the function, and the step."""
        p = self.parameters
        shared = tirx.decl_buffer((self._shared([facts]),), "float32", "operands", scope="shared")
        step = self._steps(facts, shared, memory)[number]
        body = [tirx.AllocBuffer(shared), *step.statements(p.level, self.block)]
        return p.kernel(name, self._threads(sequence(body)), p.level, p.blocks, alone=True), step

    def of_all(self, named: dict[str, Facts], memory: Sequence[Memory]) -> Any:
        """All steps of all levels, units shared over the blocks."""
        p = self.parameters
        shared = tirx.decl_buffer(
            (self._shared(list(named.values())),), "float32", "operands", scope="shared"
        )
        done = scratch("done", 1, "int64")
        of_class = dict(zip(named, memory, strict=True))
        level = p.count
        early = const(2 if "first" in named else 1)
        spans = [("leaf", const(0), const(1)), ("inner", early, level - early)]
        if "first" in named:
            spans.insert(1, ("first", const(1), tirx.min(level - const(1), const(1))))
        body: list[Any] = [tirx.AllocBuffer(shared), *done.made(), done.store(const(0), const(0))]
        for name, first, count in spans:
            at = tirx.Var("level", "int64")
            steps = self._steps(named[name], shared, of_class[name])
            inner = [one for step in steps for one in self._shared_out(step, first + at, done)]
            body.append(serial_loop(at, tirx.max(count, const(0)), inner))
        return p.kernel(PERSISTENT, self._threads(sequence(body)), p.count, p.blocks, alone=False)

    def _shared_out(self, step: DeviceStep, level: Any, done: Scratch) -> list[Any]:
        """A step whose units are shared over the blocks, and the barrier behind it."""
        p = self.parameters
        n = tirx.Var("n", "int64")
        # The dividend is never negative: blocks are numbered below their count.
        own = tirx.truncdiv(step.units(level) + p.blocks - const(1) - self.block, p.blocks)
        loop = serial_loop(n, own, step.statements(level, n * p.blocks + self.block))
        wait = cuda_func_call(
            BARRIER, p.barrier.access_ptr("rw"), done.load(const(0)) * p.blocks, source_code=_BARRIER_SOURCE
        )
        return [loop, done.store(done.load(const(0)) + const(1), const(0)), tirx.Evaluate(wait)]

    def _steps(self, facts: Facts, shared: Any, memory: Memory) -> list[DeviceStep]:
        made: list[DeviceStep] = []
        for nests in steps_on(facts):
            kind = WholesStep if is_shared_out(facts, nests[0]) else LevelStep
            made.append(kind(facts, self.blocking, self.parameters, nests, self.thread, shared, memory))
        return made

    def _shared(self, all_facts: Sequence[Facts]) -> int:
        """Numbers of shared memory; at least one, as there is no array of none."""
        found = [step.shared_numbers() for one in all_facts for step in self._steps(one, None, {})]
        return max([1, *found])

    def _threads(self, body: Any) -> Any:
        """A body within its blocks and threads."""
        axes = (("threadIdx.x", self.thread, const(self.blocking.threads)),)
        for name, variable, extent in (*axes, ("blockIdx.x", self.block, self.parameters.blocks)):
            bounds = tvm.ir.Range(const(0), extent)
            axis = tirx.IterVar(bounds, variable, tirx.IterVar.ThreadIndex, name)
            body = tirx.AttrStmt(axis, "thread_extent", extent, body)
        return body
