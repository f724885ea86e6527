"""Build the chosen kernels and assemble them into a package."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm

from hbtvm.compiler.building import cuda_toolkit
from hbtvm.compiler.building.cpu import build_kernel, executor, strip_object, text_library
from hbtvm.compiler.building.cuda import build_code
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.selection.choose import default_strategy
from hbtvm.graph.graph import Graph
from hbtvm.runtime.package import KernelEntry, Package, StageEntry, anchor_facts, pipeline_fields
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies import Operand, strategies_on, workload_of
from hbtvm.tuning.learning.transfer import translate
from hbtvm.tuning.measuring.program import OBJECT
from hbtvm.version import __version__


@dataclass(frozen=True)
class KernelChoice:
    """The kernel chosen for one batch size.

    Attributes
    ----------
    rows
        The batch size.
    strategy, config
        Name of the strategy, and its schedule configuration.
    seconds
        Measured seconds per call; None where nothing was measured.
    threads
        Most threads that a call may use.
    origin
        Origin of the choice: ``"tuned"``, or as in `hbtvm.compiler.selection.choose.Choice`.
    library
        A CPU's kernel as the tuner built and timed it, to be packaged as it is. A GPU's is built anew, since
        a package's has portable code beside what was timed.
    object
        What `library` was linked from; empty without one.
    """

    rows: int
    strategy: str
    config: Config
    seconds: float | None
    threads: int
    origin: str
    library: bytes | None = None
    object: bytes = b""


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
) -> Package:
    """Build the kernels, lay out their tables, and return the package.

    Parameters
    ----------
    graph
        The model.
    forests
        Its operands, from `hbtvm.compiler.candidates.tasks.operands_of`. The choices were made for the first;
        for the others, whose rows are of another type or have no missing values, they are translated.
    kernels
        One choice for each batch size.
    target
        The machine to build for.
    tuning
        How the choices were made, for the package's summary.
    stages
        Operands and choices of each of the graph's stages.

    Raises
    ------
    BuildError
        If a kernel cannot be built.
    """
    staged = bool(graph.stages)
    entries = _entries(forests, kernels, target, staged)
    before = [
        StageEntry(anchor_facts(stage.anchor), stage.columns, _entries(*own, target, staged))
        for stage, own in zip(graph.stages, stages, strict=True)
    ]
    front = pipeline_fields(graph)
    return Package(
        library=graph.library,
        model=graph.model,
        input=graph.input,
        output=graph.output,
        forest=anchor_facts(graph.anchor),
        target=target,
        kernels=entries,
        tuning={**tuning, "origins": [kernel.origin for kernel in kernels]},
        tvm_version=stamp()["tvm"],
        hbtvm_version=stamp()["hbtvm"],
        cuda_version=cuda_toolkit.toolkit_version() if target["kind"] == "cuda" else "",
        stages=tuple(before),
        columns=graph.columns,
        executor=executor(target) if entries and target["kind"] != "cuda" else b"",
        **front,
        text_library=text_library(target) if front["parts"].reads_texts else b"",
    )


def _entries(
    forests: Sequence[Operand], kernels: Sequence[KernelChoice], target: Target, staged: bool
) -> tuple[KernelEntry, ...]:
    return tuple(
        _entry(
            forest, kernel if forest is forests[0] else _translated(kernel, forest, target), target, staged
        )
        for forest in forests
        for kernel in kernels
    )


def _entry(forest: Operand, kernel: KernelChoice, target: Target, staged: bool) -> KernelEntry:
    strategy, config = strategies_on(target, forest.family)[kernel.strategy], kernel.config
    workload = workload_of(forest, kernel.rows, kernel.threads)
    launch, object_file = None, b""
    if target["kind"] == "cuda":
        library, launch = build_code(
            strategy.module(workload, config),
            target,
            portable=True,
            parts=strategy.signature(workload, config).parts,
            gathers=staged,
        )
    elif kernel.library is not None:
        library, object_file = kernel.library, kernel.object
    else:
        with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
            path = Path(folder, "kernel.so")
            build_kernel(strategy, workload, config, target, str(path))
            library, object_file = path.read_bytes(), Path(f"{path}{OBJECT}").read_bytes()
    if object_file:
        object_file = strip_object(object_file, target)
    entry = entry_of(forest, strategy, workload, config, library, launch, object_file)
    return replace(entry, threads=kernel.threads, seconds=kernel.seconds)


def _translated(kernel: KernelChoice, forest: Operand, target: Target) -> KernelChoice:
    """Return a choice, made for another operand, as one that fits this one; its time is unknown."""
    workload = workload_of(forest, kernel.rows, kernel.threads)
    there = strategies_on(target, forest.family)
    strategy = there[kernel.strategy]
    if strategy.refuse(workload) is not None:
        able = {name: one for name, one in there.items() if one.refuse(workload) is None}
        strategy = able[default_strategy(able, workload, target)]
    default = strategy.default(workload, target)
    fitted = None
    if strategy.name == kernel.strategy:
        fitted = translate(kernel.config, strategy.space(workload, target), default)
    return replace(
        kernel, strategy=strategy.name, config=fitted or default, seconds=None, library=None, object=b""
    )
