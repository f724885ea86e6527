"""Build the kernels of a recursive model for one configuration."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import tvm

from hbtvm.compiler.building.cpu import build_module, strip_object
from hbtvm.compiler.building.cuda_levels import build_levels, read_levels
from hbtvm.recursive.cell import Cell, Readout
from hbtvm.runtime.recursive.entry import RecursionEntry, RecursionKernels, RecursiveInput, Share
from hbtvm.runtime.recursive.vocabulary import Vocabulary
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.levels import Classes, Kernels, Levels
from hbtvm.tuning.measuring.program import OBJECT


def build_library(kernels: Kernels, target: Target, path: str) -> None:
    """Compile and link all functions of a configuration into one shared library.

    Raises `BuildError` if there is no C compiler, or linking failed.

    `path`: the library to write; `link_library` writes its object beside it.
    """
    # Steps already share common subexpressions; the pass would take most of the time.
    with tvm.transform.PassContext(disabled_pass=["tirx.CommonSubexprElim"]):
        build_module(tvm.IRModule(kernels.functions), target, path)


def kernels_of(
    classes: Classes,
    workload: Mapping[str, Any],
    config: Config,
    target: Target,
    *,
    seconds: float | None = None,
    built: tuple[bytes, bytes] | None = None,
) -> RecursionKernels:
    """Build a configuration's kernels and describe them.

    `seconds`: measured time of a call.
    `built`: library and object, if built already; for a GPU, the content that `write_levels` wrote.
    """
    kernels = Levels().kernels(classes, config, target)
    if target["kind"] == "cuda":
        if built is None:
            code, kernels = build_levels(kernels, target, portable=True)
        else:
            code, kernels = read_levels(built[0], kernels)
        built = code, b""
    if built is None:
        with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
            path = Path(folder, "kernels.so")
            build_library(kernels, target, str(path))
            linked = Path(str(path) + OBJECT)
            built = path.read_bytes(), strip_object(linked.read_bytes(), target) if linked.exists() else b""
    return RecursionKernels(
        rows=int(workload["rows"]),
        threads=int(workload["threads"]),
        seconds=seconds,
        strategy=Levels.name,
        config=config,
        share=cast(Share, config.get("share", "none")),
        library=built[0],
        leaf=kernels.leaf,
        inner=kernels.inner,
        tables=kernels.tables,
        object=built[1],
        first=kernels.first,
        persistent=kernels.persistent,
        depth=int(config.get("depth", 1)),
    )


def entry_of(
    cell: Cell,
    classes: Classes,
    readout: Readout,
    kernels: tuple[RecursionKernels, ...],
    vocabulary: Vocabulary | None = None,
) -> RecursionEntry:
    """Describe a model's recursion with its kernels."""
    return RecursionEntry(
        cell=cell.name,
        children=cell.children,
        width=classes.inner.width,
        state=classes.inner.offsets[readout.state],
        shape=cell.states[readout.state],
        over=readout.over,
        inputs=tuple(
            RecursiveInput(name, input_.kind, input_.size, input_.optional)
            for name, input_ in cell.inputs.items()
        ),
        kernels=kernels,
        vocabulary=vocabulary,
    )
