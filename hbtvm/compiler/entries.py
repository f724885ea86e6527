"""A kernel that was built, described as packages and runtimes take it."""

from __future__ import annotations

from typing import cast

from hbtvm.runtime.cuda.launch import Launch
from hbtvm.runtime.executor import Parallel
from hbtvm.runtime.package import KernelEntry
from hbtvm.schedules.space import Config
from hbtvm.strategies import Forest, Strategy


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


def parallel_of(config: Config) -> Parallel:
    """What threads share with a configuration; nothing, if it has no such knob."""
    return cast(Parallel, config.get("parallel", "none"))


def parts_of(config: Config) -> int:
    """Sums that a GPU's kernel leaves of each score: as many as blocks share the trees; else 1."""
    return int(config.get("tree_blocks", 1))
