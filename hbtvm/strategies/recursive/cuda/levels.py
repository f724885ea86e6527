"""Kernels of recursive models on GPUs: one for each step, launched for each level, or one for all levels.

The second is Cortex's persistent kernel (MLSys'21, section 5): its blocks stay, and wait for each other at a
barrier in global memory. All blocks must be resident at once, so the launch is cooperative, and the driver
refuses it if they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call

from hbtvm.runtime.recursive.entry import Program, Step
from hbtvm.schedules.statements import Scratch, const, registers, sequence
from hbtvm.strategies.recursive.cuda.kept import Kept, KeptStep
from hbtvm.strategies.recursive.cuda.nests import inlined, is_shared_out, steps_on
from hbtvm.strategies.recursive.cuda.parameters import DeviceParameters
from hbtvm.strategies.recursive.cuda.step import Blocking, DeviceStep
from hbtvm.strategies.recursive.cuda.steps import LevelStep
from hbtvm.strategies.recursive.cuda.wholes import WholesStep
from hbtvm.strategies.recursive.nests import flat
from hbtvm.strategies.recursive.parameters import Tables
from hbtvm.strategies.recursive.plan import Facts
from hbtvm.strategies.recursive.products import serial_loop

BARRIER = "hbtvm_wait_for_blocks"  # name of the device function of the barrier

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
"""The counter only grows; once it reaches `arrivals`, every block sees what the others wrote before."""

PERSISTENT = "all_levels"  # name of the kernel for all levels

Memory = dict[int, int]  # numbers of memory between steps by a value's number


@dataclass(frozen=True)
class Classes:
    """Facts of nodes by class; see `hbtvm.strategies.recursive.levels.Classes`."""

    leaf: Facts
    inner: Facts
    first: Facts | None


@dataclass(frozen=True)
class Made:
    """Functions by name, programs, and the step that replaces them if one kernel processes all levels.

    Arguments of steps are added once the kernels are compiled.
    """

    functions: dict[str, Any]
    leaf: Program
    inner: Program
    first: Program | None
    persistent: Step | None


def kernels_on_device(
    classes: Classes, blocking: Blocking, persistent: bool, tables: Tables, most_shared: int
) -> Made:
    """Return the kernels of a cell.

    `most_shared`: a block's most bytes of shared memory.
    Raises `UnsupportedModel` if constants that should stay in shared memory don't fit.
    """
    functions: dict[str, Any] = {}
    programs: dict[str, tuple[Step, ...]] = {}
    named = {"leaf": classes.leaf, "inner": classes.inner}
    if classes.first is not None:
        named["first"] = classes.first
    memory, widths = _memory(list(named.values()))
    for (name, facts), own_memory in zip(named.items(), memory, strict=True):
        steps = []
        for number, step in enumerate(_Kernel(facts, blocking, tables).steps(facts)):
            function_name = f"{name}_{number}"
            steps.append(Step(function_name, step.tile, (), step.panels, blocking.threads))
            if not persistent:
                functions[function_name] = _Kernel(facts, blocking, tables).of_step(
                    function_name, facts, number, own_memory
                )
        programs[name] = tuple(steps)
    whole = None
    if persistent:
        kernel = _Kernel(classes.inner, blocking, tables)
        functions[PERSISTENT] = kernel.of_all(named, memory, most_shared)
        panels = max(1, kernel.owned)
        whole = Step(PERSISTENT, blocking.tile, (), panels, blocking.threads, kernel.kept_bytes)
    by_class = {name: Program(steps, tuple(widths)) for name, steps in programs.items()}
    return Made(functions, by_class["leaf"], by_class["inner"], by_class.get("first"), whole)


def _memory(all_facts: Sequence[Facts]) -> tuple[list[dict[int, int]], list[int]]:
    """Return, for each class, numbers of memory between steps by stored value; and the widths of all."""
    memory: list[Memory] = []
    widths: list[int] = []
    for facts in all_facts:
        inline = inlined(facts)
        stored = [number for number in facts.nests.scratch if number not in inline]
        memory.append({number: len(widths) + i for i, number in enumerate(stored)})
        widths += [flat(facts.values[number].shape) for number in stored]
    return memory, widths


class _Kernel:
    """Makes one function."""

    def __init__(self, facts: Facts, blocking: Blocking, tables: Tables) -> None:
        self.blocking = blocking
        self.parameters = DeviceParameters(facts.width, facts.children, tables)
        self.block, self.thread = tirx.Var("blockIdx.x", "int64"), tirx.Var("threadIdx.x", "int64")
        self.kept_bytes = self.owned = 0

    def of_step(self, name: str, facts: Facts, number: int, memory: Memory) -> Any:
        """Return the kernel of one step of one level, with a block for each unit."""
        p = self.parameters
        shared = tirx.decl_buffer((self._shared([facts]),), "float32", "operands", scope="shared")
        step = self.steps(facts, shared, memory)[number]
        body = [tirx.AllocBuffer(shared), *step.statements(p.level, self.block)]
        return p.kernel(name, self._threads(sequence(body)), p.level, p.blocks, alone=True)

    def of_all(self, named: dict[str, Facts], memory: Sequence[Memory], most_shared: int) -> Any:
        """Return the kernel of all steps of all levels, whose blocks share the units."""
        p = self.parameters
        numbers = self._shared(list(named.values()))
        shared = tirx.decl_buffer((numbers,), "float32", "operands", scope="shared")
        done = registers("done", 1, "int64")
        of_class = dict(zip(named, memory, strict=True))
        level = p.count
        early = const(2 if "first" in named else 1)
        spans = [("leaf", const(0), const(1)), ("inner", early, level - early)]
        if "first" in named:
            spans.insert(1, ("first", const(1), tirx.min(level - const(1), const(1))))
        body: list[Any] = [tirx.AllocBuffer(shared), *done.allocation(), done.store(const(0), const(0))]
        owned = [step for facts in named.values() for step in self.steps(facts) if isinstance(step, KeptStep)]
        kept = Kept.of(owned, p, most_shared - 4 * numbers) if owned else None
        if kept is not None:
            self.kept_bytes, self.owned = kept.bytes, max(step.panels for step in owned)
            body += [
                tirx.AllocBuffer(kept.buffer),
                *kept.loaded(p, self.block, self.thread, self.blocking.threads),
            ]
        for name, first, count in spans:
            at = tirx.Var("level", "int64")
            steps = self.steps(named[name], shared, of_class[name], kept)
            inner = [line for step in steps for line in self._shared_out(step, first + at, done)]
            body.append(serial_loop(at, tirx.max(count, const(0)), inner))
        return p.kernel(PERSISTENT, self._threads(sequence(body)), p.count, p.blocks, alone=False)

    def _shared_out(self, step: DeviceStep, level: Any, done: Scratch) -> list[Any]:
        """Share a step's units over the blocks, then wait at the barrier."""
        p = self.parameters
        n = tirx.Var("n", "int64")
        count, unit = step.work(level, self.block, p.blocks)
        loop = serial_loop(n, count, step.statements(level, unit(n)))
        wait = cuda_func_call(
            BARRIER, p.barrier.access_ptr("rw"), done.load(const(0)) * p.blocks, source_code=_BARRIER_SOURCE
        )
        return [loop, done.store(done.load(const(0)) + const(1), const(0)), tirx.Evaluate(wait)]

    def steps(
        self, facts: Facts, shared: Any = None, memory: Memory | None = None, kept: Kept | None = None
    ) -> list[DeviceStep]:
        """Return the steps of a class of nodes; without memory, for their facts only."""
        steps: list[DeviceStep] = []
        for nests in steps_on(facts):
            kind: type[DeviceStep] = WholesStep if is_shared_out(facts, nests[0]) else LevelStep
            if kind is LevelStep and self.blocking.columns and facts.nests.nests[nests[0]].products:
                kind = KeptStep
            step = kind(facts, self.blocking, self.parameters, nests, self.thread, shared, memory or {})
            if isinstance(step, KeptStep) and kept is not None:
                step.kept = kept
            steps.append(step)
        return steps

    def _shared(self, all_facts: Sequence[Facts]) -> int:
        """Return the size of shared memory in numbers, at least 1: arrays can't be empty."""
        numbers = [step.shared_numbers() for facts in all_facts for step in self.steps(facts)]
        return max([1, *numbers])

    def _threads(self, body: Any) -> Any:
        """Bind a body to blocks and threads."""
        axes = (("threadIdx.x", self.thread, const(self.blocking.threads)),)
        for name, variable, extent in (*axes, ("blockIdx.x", self.block, self.parameters.blocks)):
            bounds = tvm.ir.Range(const(0), extent)
            axis = tirx.IterVar(bounds, variable, tirx.IterVar.ThreadIndex, name)
            body = tirx.AttrStmt(axis, "thread_extent", extent, body)
        return body
