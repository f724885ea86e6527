"""A kernel and its tables, described as packages and runtimes take them."""

from __future__ import annotations

from typing import cast

from hbtvm.runtime.cuda.launch import Launch
from hbtvm.runtime.package.file import KernelEntry
from hbtvm.runtime.parallelism import Parallel
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import Operand, Strategy


def entry_of(
    forest: Operand,
    strategy: Strategy,
    workload: Workload,
    config: Config,
    library: bytes = b"",
    launch: Launch | None = None,
    object_file: bytes = b"",
) -> KernelEntry:
    """Lay out a kernel's tables, and describe it as one that nobody timed.

    `workload`: what the kernel was, or will be, built for.
    `library`, `launch`, `object_file`: what was built, how a GPU's kernel is started, and what a CPU's was
        linked from.
    """
    signature = strategy.signature(workload, config)
    tables = (*strategy.shared(forest).values(), *strategy.tables(forest, config).values())
    signature.check_tables(tables)
    return KernelEntry(
        strategy=strategy.name,
        config=config,
        rows=int(workload["rows"]),
        threads=1,
        seconds=None,
        value_dtype=forest.value_dtype,
        library=library,
        signature=signature,
        tables=tables,
        parallel=parallel_of(config),
        grain=int(config.get("grain", 1)),
        missing=forest.missing,
        launch=launch,
        object=object_file,
    )


def parallel_of(config: Config) -> Parallel:
    """Return what threads share with a configuration; nothing, if it has no such knob."""
    return cast(Parallel, config.get("parallel", "none"))
