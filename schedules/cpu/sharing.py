"""Sharing of a CPU's calls between threads: the knobs, and good choices for unmeasured workloads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Workload, apart_of

WORTH_SHARING = 15_000
"""Least work, in nanoseconds, to split between threads: a hand-off to a running thread takes two thousand,
but then rows lie in another core's cache."""

_ONE_ROW = 60_000
"""The same for a single row, whose trees threads share: each thread computes all columns."""

_COLUMN_NANOSECONDS = 0.5  # estimated time for computing one column of one row
_HALVED = 1.12  # estimated slowdown of a row with half as many vectors side by side
_TREES_TOGETHER = 8  # a good tree tile if the outer loop runs over trees
_BETTER = 0.92  # largest relative time at which a smaller row tile pays
_BETTER_STILL = 0.97  # the same beside another smaller tile: each tile loads all tables again
_WIDE = 128  # number of columns from which computing them takes a large part of a call

_CACHE, _CROWDED = 1 << 20, {1: 0.4, 2: 0.2}
"""Bytes of tables that stay in a second-level cache beside a tile's columns; by vectors of a tile: how much
longer walks take if tables are larger."""

FAR_BYTES = 1 << 21
"""Bytes of tables that no second-level cache holds."""

_CONTENDED = 0.16
"""How much longer walks take if two threads read all of such tables at about the same time."""

_LOADED = 64  # rows that take as long as the loads of such tables

_WIDE_COLUMN_NANOSECONDS = 0.15  # estimated time for computing one of many columns: blocks are transposed


def thread_knobs(workload: Workload) -> tuple[Knob, ...]:
    """Return the knobs of the executor: the work that threads share, and a thread's fewest row tiles."""
    if workload["threads"] == 1:
        return ()
    rows = int(workload["rows"])
    shared = ("none", *(("rows",) if rows > 1 else ()), *(() if apart_of(workload) else ("trees",)))
    return Knob("parallel", shared), Knob("grain", (1, 4, 16) if rows > 64 else (1,))


def threads_are_valid(config: Config) -> bool:
    """Whether `thread_knobs` are consistent: the grain is a number of row tiles, so others need 1."""
    return config.get("parallel", "rows") == "rows" or config["grain"] == 1


def with_threads(
    config: Config, workload: Workload, nanoseconds: float, space: Space, tree_bytes: int = 0
) -> Config:
    """Add a good choice of `thread_knobs` for unmeasured workloads.

    `config`: a single-thread configuration. Its row tile shrinks if threads then share rows evenly.
    `nanoseconds`: estimated time of one tree for one row; decides which calls are split between threads.
    `space`: the valid configurations.
    `tree_bytes`: bytes of a tree's tables; 0 if they hardly matter.
    """
    threads, rows = int(workload["threads"]), int(workload["rows"])
    if threads == 1:
        return config
    alone: Config = {**config, "parallel": "none", "grain": 1}
    work = workload["trees"] * workload["groups"] * nanoseconds + workload["numeric"] * _COLUMN_NANOSECONDS
    if rows * work < (WORTH_SHARING if rows > 1 else _ONE_ROW):
        return alone
    by_trees: Config = {**alone, "parallel": "trees"}
    if rows == 1:
        return alone if apart_of(workload) else by_trees
    far = workload["trees"] * workload["groups"] * tree_bytes > FAR_BYTES
    by_rows = _balanced({**alone, "parallel": "rows"}, workload, space, _LOADED if far else 0)
    # Threads that share the trees each compute all columns.
    pays = _cost(by_rows, config, workload) * 1.3 <= _cost(alone, config, workload)
    wide = workload["numeric"] >= _WIDE
    if (wide or far) and _relieves(config, by_rows, workload, nanoseconds, tree_bytes):
        wide = pays = False
    return by_rows if pays or wide or not space.contains(by_trees) else by_trees


def _relieves(
    config: Config, by_rows: Config, workload: Workload, nanoseconds: float, tree_bytes: int
) -> bool:
    """Return whether threads gain by sharing trees, since tables of all outgrow a cache.

    A tile of many vectors fetches tables so rarely that threads gain little.
    """
    trees, threads = workload["trees"] * workload["groups"], int(workload["threads"])
    size = trees * tree_bytes
    crowded = _CROWDED.get(int(config.get("vectors", 1)), _CONTENDED if size > FAR_BYTES else None)
    if crowded is None or size <= _CACHE:
        return False
    columns, walks = workload["numeric"] * _WIDE_COLUMN_NANOSECONDS, trees * nanoseconds
    rows = _cost(by_rows, config, workload) * (columns + walks * (1 + crowded))
    return rows * _BETTER >= _cost({**config, "parallel": "trees"}, config, workload) * (
        columns + -(-trees // threads) * nanoseconds
    )


def row_thread_knobs(workload: Mapping[str, Any]) -> tuple[Knob, ...]:
    """Return `thread_knobs` for kernels whose threads can share rows only."""
    if workload["threads"] == 1 or workload["rows"] == 1:
        return ()
    return Knob("parallel", ("none", "rows")), Knob("grain", (1, 4, 16))


def with_row_threads(config: Config, workload: Workload, nanoseconds: float, space: Space) -> Config:
    """Add good values of `row_thread_knobs`; as `with_threads`, with the estimated time of a row."""
    if workload["threads"] == 1 or workload["rows"] == 1:
        return config
    alone: Config = {**config, "parallel": "none", "grain": 1}
    if workload["rows"] * nanoseconds < WORTH_SHARING:
        return alone
    return _balanced({**alone, "parallel": "rows"}, workload, space)


def _balanced(config: Config, workload: Workload, space: Space, loaded: int = 0) -> Config:
    """Choose the row tile, up to the configuration's, that makes threads' shares most even.

    `loaded`: rows that take as long as a tile's loads of tables.
    """
    best, least = config, _BETTER * _cost(config, config, workload, loaded)
    lanes, choices = int(config.get("lanes", 1)), next(k.choices for k in space.knobs if k.name == "row_tile")
    for row_tile in sorted((int(n) for n in choices if int(n) < int(config["row_tile"])), reverse=True):
        vectors = int(config.get("vectors", 1))
        smaller: Config = {**config, "row_tile": row_tile}
        if "vectors" in config and row_tile % lanes == 0:
            smaller["vectors"] = vectors = min(vectors, row_tile // lanes)
        if config.get("order") == "rows" and row_tile == lanes * vectors:
            # Small tree tiles pay only for several blocks of rows.
            smaller |= {"order": "trees", "tree_tile": max(int(config["tree_tile"]), _TREES_TOGETHER)}
        cost = _cost(smaller, config, workload, loaded)
        if space.contains(smaller) and cost < least:
            best, least = smaller, _BETTER_STILL * cost
    return best


def _cost(config: Config, wide: Config, workload: Workload, loaded: int = 0) -> float:
    """Estimate the busiest thread's time for its rows, padding and loads of tables, in rows.

    `wide`: the configuration that has all vectors.
    """
    row_tile, rows = int(config["row_tile"]), int(workload["rows"])
    tiles = -(-rows // row_tile)
    threads = int(workload["threads"]) if config.get("parallel") == "rows" else 1
    fewer = int(wide.get("vectors", 1)) / int(config.get("vectors", 1))
    return float(-(-tiles // threads) * (row_tile + loaded) * _HALVED ** math.log2(fewer))
