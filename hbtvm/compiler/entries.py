"""A kernel and its tables, described for packages and runtimes."""

from __future__ import annotations

from typing import cast

from hbtvm.runtime.gpu.launch import Launch
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
    """Lay out a kernel's tables, and describe it without a time.

    `workload`: the workload that the kernel is built for.
    `library`, `launch`, `object_file`: the machine code, a GPU kernel's launch, and a CPU kernel's object.
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
    """Return how threads share work in a configuration; ``"none"`` without such a knob."""
    return cast(Parallel, config.get("parallel", "none"))
