"""Build the chosen kernels and assemble them into a package."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from hbtvm.compiler.building import cuda_toolkit
from hbtvm.compiler.building.cpu import build_kernel, executor, host_executor, strip_object, text_library
from hbtvm.compiler.building.cuda import build_code
from hbtvm.compiler.building.limited import results
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.selection.choose import default_strategy
from hbtvm.graph.graph import Graph
from hbtvm.graph.parts import Parts
from hbtvm.runtime.gpu.launch import Launch
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.runtime.package.file import KernelEntry, Package, StageEntry, anchor_facts, pipeline_fields
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target, Workload, family_of
from hbtvm.strategies import Operand, strategies_on, workload_of
from hbtvm.tuning.learning.transfer import translate
from hbtvm.tuning.measuring.program import OBJECT
from hbtvm.version import __version__
from hbtvm.words.quantities import count


@dataclass(frozen=True)
class KernelChoice:
    """The kernel chosen for one batch size."""

    rows: int  # the batch size
    # `strategy`, `config`: name of the strategy, and its schedule configuration
    strategy: str
    config: Config
    seconds: float | None  # measured seconds per call; None if not measured
    threads: int  # most threads that a call may use
    origin: str  # origin of the choice: ``"tuned"``, or as in `hbtvm.compiler.selection.choose.Choice`
    # A CPU's kernel as the tuner built and timed it. A GPU's kernel is built again, since packages also hold
    # portable code.
    library: bytes | None = None
    object: bytes = b""  # the object that `library` was linked from; empty without a library


def stamp() -> dict[str, str]:
    """Return the versions of TVM and hbtvm that records and packages state, by name."""
    return {"tvm": str(tvm.__version__), "hbtvm": __version__}


def assemble(
    graph: Graph,
    forests: Sequence[Operand],
    kernels: Sequence[KernelChoice],
    target: Target,
    tuning: dict[str, Any],
    stages: Sequence[tuple[Sequence[Operand], Sequence[KernelChoice]]] = (),
    limited: bool = False,
) -> Package:
    """Build the kernels, lay out their tables, and return the package.

    `forests`: its operands, from `hbtvm.compiler.candidates.tasks.operands_of`. The choices were made for the
        first operand; for the others, of another row type or without missing values, they are translated.
    `kernels`: one choice for each batch size.
    `target`: the machine to build for.
    `tuning`: how the choices were made, for the package's summary.
    `stages`: operands and choices of each of the graph's stages.
    `limited`: whether the log's choices are built within a time limit (see
        `hbtvm.compiler.building.limited`).
    Raises `BuildError` if a kernel cannot be built.
    """
    staged = bool(graph.stages)
    groups = [_fitted(*group, target) for group in (*stages, (forests, kernels))]
    built = iter(_built([pair for group in groups for pair in group], target, staged, limited))
    *before, last = [
        tuple(_entry(forest, kernel, target, next(built)) for forest, kernel in group) for group in groups
    ]
    front = pipeline_fields(graph)
    return Package(
        library=graph.library,
        model=graph.model,
        input=graph.input,
        output=graph.output,
        forest=anchor_facts(graph.anchor),
        target=target,
        kernels=last,
        tuning={**tuning, "origins": [kernel.origin for kernel in kernels]},
        tvm_version=stamp()["tvm"],
        hbtvm_version=stamp()["hbtvm"],
        cuda_version=cuda_toolkit.toolkit_version() if target["kind"] == "cuda" else "",
        stages=tuple(
            StageEntry(anchor_facts(stage.anchor), stage.columns, entries)
            for stage, entries in zip(graph.stages, before, strict=True)
        ),
        columns=graph.columns,
        executor=_executor(front["parts"], target) if last else b"",
        **front,
        text_library=text_library(target) if front["parts"].reads_texts else b"",
    )


def _executor(parts: Parts, target: Target) -> bytes:
    """Return the executor of kernels on a CPU; on a GPU, only counters of categories need its code."""
    if not on_gpu(target):
        return executor(target)
    return host_executor() if parts.reads_counters else b""


def _fitted(
    forests: Sequence[Operand], kernels: Sequence[KernelChoice], target: Target
) -> list[tuple[Operand, KernelChoice]]:
    """Pair every operand with each choice, translated to it."""
    return [
        (forest, kernel if forest is forests[0] else _translated(kernel, forest, target))
        for forest in forests
        for kernel in kernels
    ]


_Code = tuple[bytes, Launch | None, bytes]  # a kernel's library, its launch on a GPU, and its object on a CPU


def _built(
    pairs: Sequence[tuple[Operand, KernelChoice]], target: Target, staged: bool, limited: bool
) -> list[_Code]:
    """Build the kernels that are not built yet."""
    calls: list[Callable[[], _Code]] = []
    logged: dict[int, tuple[str, Callable[[], _Code]]] = {}
    for number, (forest, kernel) in enumerate(pairs):
        call: Callable[[], _Code]
        if kernel.library is not None and not on_gpu(target):
            call = partial(_kept, kernel.library, kernel.object)
        else:
            workload = workload_of(forest, kernel.rows, kernel.threads)
            call = partial(build_packaged, kernel.strategy, workload, kernel.config, target, staged)
            if target["kind"] == "cuda":
                call = partial(call, outputs=not number)  # one kernel of outputs for the package
            if limited and kernel.origin in ("log", "similar"):
                logged[len(calls)] = f"{kernel.strategy}, {count(kernel.rows, 'row')}", call
        calls.append(call)
    built = dict(zip(logged, results(list(logged.values())), strict=True))
    return [built[number] if number in built else call() for number, call in enumerate(calls)]


def _kept(library: bytes, object_file: bytes) -> _Code:
    return library, None, object_file


def build_packaged(
    strategy: str, workload: Workload, config: Config, target: Target, staged: bool, outputs: bool = False
) -> _Code:
    """Build a kernel for a package.

    `strategy`: the strategy's name.
    `staged`, `outputs`: whether a GPU's kernel is one of several stages, and whether the kernel of outputs is
        beside it.
    Raises `BuildError` if it cannot be built.
    """
    chosen = strategies_on(target, family_of(workload))[strategy]
    if on_gpu(target):
        parts = chosen.signature(workload, config).parts
        module = chosen.module(workload, config)
        return *build_code(module, target, portable=True, parts=parts, gathers=staged, outputs=outputs), b""
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
        path = Path(folder, "kernel.so")
        build_kernel(chosen, workload, config, target, str(path))
        return path.read_bytes(), None, Path(f"{path}{OBJECT}").read_bytes()


def _entry(forest: Operand, kernel: KernelChoice, target: Target, code: _Code) -> KernelEntry:
    library, launch, object_file = code
    strategy = strategies_on(target, forest.family)[kernel.strategy]
    workload = workload_of(forest, kernel.rows, kernel.threads)
    if object_file:
        object_file = strip_object(object_file, target)
    entry = entry_of(forest, strategy, workload, kernel.config, library, launch, object_file)
    return replace(entry, threads=kernel.threads, seconds=kernel.seconds)


def _translated(kernel: KernelChoice, forest: Operand, target: Target) -> KernelChoice:
    """Translate another operand's choice to this operand; its time is unknown."""
    workload = workload_of(forest, kernel.rows, kernel.threads)
    strategies = strategies_on(target, forest.family)
    strategy = strategies[kernel.strategy]
    if strategy.refuse(workload) is not None:
        usable = {
            name: strategy for name, strategy in strategies.items() if strategy.refuse(workload) is None
        }
        strategy = usable[default_strategy(usable, workload, target)]
    default = strategy.default(workload, target)
    fitted = None
    if strategy.name == kernel.strategy:
        fitted = translate(kernel.config, strategy.space(workload, target), default)
    return replace(
        kernel, strategy=strategy.name, config=fitted or default, seconds=None, library=None, object=b""
    )
