"""Chosen kernels become a package: built, laid out, described."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm

import hbtvm
from hbtvm.compiler.build import build_kernel
from hbtvm.compiler.choose import default_strategy
from hbtvm.compiler.cuda_build import build_code
from hbtvm.compiler.program import parallel_of, parts_of
from hbtvm.compiler.target import Target
from hbtvm.pipeline.pipeline import Pipeline
from hbtvm.runtime.launch import Launch
from hbtvm.runtime.package import KernelEntry, Package, forest_facts
from hbtvm.strategies import Forest, Strategy, strategies_on, workload_of
from schedules.space import Config
from tuning.transfer import translate


@dataclass(frozen=True)
class Kernel:
    """A choice for one batch size.

    Attributes
    ----------
    rows
        The batch size.
    strategy, config
        What to build.
    seconds
        Measured seconds per call; None where nothing was measured.
    threads
        Threads that a call may use.
    origin
        Where the choice comes from: ``"tuned"``, or as in `hbtvm.compiler.choose.Choice`.
    """

    rows: int
    strategy: str
    config: Config
    seconds: float | None
    threads: int
    origin: str


def stamp() -> dict[str, str]:
    """Versions that go with records and packages."""
    return {"tvm": str(tvm.__version__), "hbtvm": hbtvm.__version__}


def assemble(
    pipeline: Pipeline,
    forests: Sequence[Forest],
    kernels: Sequence[Kernel],
    target: Target,
    tuning: dict[str, Any],
) -> Package:
    """Build the kernels and lay out their tables.

    Parameters
    ----------
    forests
        As `hbtvm.compiler.tasks.forests_of` gives them; the choices were made for the first. For
        the others, which take other rows, they are translated.
    kernels
        One choice for each batch size.
    tuning
        Where the choices come from.

    Raises
    ------
    BuildError
        If a kernel cannot be built.
    """
    entries = [
        _entry(forest, kernel if forest is forests[0] else _translated(kernel, forest, target), target)
        for forest in forests
        for kernel in kernels
    ]
    return Package(
        library=pipeline.library,
        model=pipeline.model,
        input=pipeline.input,
        output=pipeline.output,
        forest=forest_facts(pipeline.ensemble),
        target=target,
        kernels=tuple(entries),
        tuning={**tuning, "origins": [kernel.origin for kernel in kernels]},
        tvm_version=stamp()["tvm"],
        hbtvm_version=stamp()["hbtvm"],
    )


def _entry(forest: Forest, kernel: Kernel, target: Target) -> KernelEntry:
    strategy, config = strategies_on(target)[kernel.strategy], kernel.config
    workload = workload_of(forest, kernel.rows, kernel.threads)
    launch = None
    if target["kind"] == "cuda":
        library, launch = build_code(
            strategy.module(workload, config), target, portable=True, parts=parts_of(config)
        )
    else:
        with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
            path = Path(folder, "kernel.so")
            build_kernel(strategy, workload, config, target, str(path))
            library = path.read_bytes()
    entry = entry_of(forest, strategy, config, library, launch)
    return replace(entry, rows=kernel.rows, threads=kernel.threads, seconds=kernel.seconds)


def entry_of(
    forest: Forest, strategy: Strategy, config: Config, library: bytes, launch: Launch | None
) -> KernelEntry:
    """Lay out the tables for a kernel that was built, as one for a row on one thread that nobody timed."""
    return KernelEntry(
        strategy=strategy.name,
        config=config,
        rows=1,
        threads=1,
        seconds=None,
        dtype=forest.dtype,
        value_dtype=forest.value_dtype,
        library=library,
        shared_tables=tuple(strategy.shared(forest).values()),
        tables=tuple(strategy.tables(forest, config).values()),
        groups=len(forest.group_trees),
        width=forest.value.shape[1],
        row_tile=int(config["row_tile"]),
        parallel=parallel_of(config),
        grain=int(config.get("grain", 1)),
        missing=forest.missing,
        launch=launch,
        parts=parts_of(config),
    )


def _translated(kernel: Kernel, forest: Forest, target: Target) -> Kernel:
    """A choice for one kind of rows, made fit for another; its time is then unknown."""
    workload = workload_of(forest, kernel.rows, kernel.threads)
    there = strategies_on(target)
    strategy = there[kernel.strategy]
    if strategy.refuse(workload) is not None:
        able = {name: one for name, one in there.items() if one.refuse(workload) is None}
        strategy = able[default_strategy(able, workload, target)]
    default = strategy.default(workload, target)
    fitted = None
    if strategy.name == kernel.strategy:
        fitted = translate(kernel.config, strategy.space(workload, target), default)
    return replace(kernel, strategy=strategy.name, config=fitted or default, seconds=None)
