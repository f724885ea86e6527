"""A kernel for a workload without a search: the best that the logs know, else a good default."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hbtvm.compiler.selection.cuda import default_on_cuda
from hbtvm.compiler.targets.target import Target
from hbtvm.logs.ranking import ranking
from hbtvm.logs.record import Record, canonical
from hbtvm.logs.targets import target_key
from hbtvm.schedules.space import Config
from hbtvm.strategies import Strategy, Workload
from hbtvm.strategies.perfect import is_full
from hbtvm.tuning.learning.transfer import distance, translate

_FAR = 5.0
"""Workloads that differ by more factors of two than this are better served by a default."""

_OTHER_MACHINE = 1.0
"""Another CPU with vectors of the same width counts as much as a factor of two in one size."""

_ORDER = ("bitvector", "perfect_tree_traversal", "tree_traversal", "ranked_traversal", "gemm")
_PERFECT_DEPTH = 10
"""Up to this depth a perfect tree's tables still fit the caches, and its shorter steps win; beyond, if
the trees are full."""

_FEW_ROWS, _FEW_COLUMNS = 16, 32
"""Below and up to: a row whose ranks fit two registers is fastest to look up."""

_RANKED_TREES = 16
"""Trees that walk a single row faster by ranks, for each of its columns that then needs a rank."""

_MANY_COLUMNS = 64
"""Beyond this, walks of a single row are faster over small nodes than over tables for each level."""

_SHALLOW = {32: 5, 64: 8}
"""By leaves that fit a word of the bitvector: the depth up to which walking is faster still."""


@dataclass(frozen=True)
class Choice:
    """What to build for a workload.

    Attributes
    ----------
    strategy, config
        The kernel.
    seconds
        Seconds per call, measured for this very workload and target; None where nothing was.
    origin
        ``"log"`` (this very workload), ``"similar"`` (the most similar workload in the logs) or
        ``"default"``.
    """

    strategy: str
    config: Config
    seconds: float | None
    origin: str


def choose(
    records: Iterable[Record], strategies: dict[str, Strategy], workload: Workload, target: Target
) -> Choice:
    """Choose a strategy and its configuration.

    Parameters
    ----------
    records
        What logs know.
    strategies
        Those that can hold the forest.
    """
    own = canonical(workload), target_key(target)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.strategy in strategies and _same_vectors(record.target, target):
            groups.setdefault((record.workload_key, record.target_key), []).append(record)
    away = {
        key: distance(workload, group[0].workload) + _OTHER_MACHINE * (key[1] != own[1])
        for key, group in groups.items()
    }
    for key in sorted(groups, key=lambda key: (away[key], key)):
        if away[key] > _FAR:
            break
        found = _fit(groups[key], strategies, workload, target)
        if found is not None:
            strategy, config, record = found
            if key == own:
                return Choice(strategy, config, statistics.median(record.times), "log")
            return Choice(strategy, config, None, "similar")
    name = default_strategy(strategies, workload, target)
    return Choice(name, strategies[name].default(workload, target), None, "default")


def default_strategy(strategies: dict[str, Strategy], workload: Workload, target: Target) -> str:
    """The strategy that is mostly fastest for such a forest on a target, among those that can hold it.

    On CPUs that was measured; on GPUs it is reasoned (see `hbtvm.compiler.selection.cuda`).
    """
    if target["kind"] == "cuda":
        return default_on_cuda(strategies, workload)
    perfect, depth = "perfect_tree_traversal", workload["depth"]
    shallow = next((most for leaves, most in _SHALLOW.items() if workload["leaves"] <= leaves), 0)
    if perfect in strategies and depth <= shallow:
        return perfect
    columns, few = workload["numeric"] + workload["categorical"], workload["rows"] < _FEW_ROWS
    sparse = depth > _PERFECT_DEPTH and not is_full(workload)
    # One word for a node instead of two: what counts where tables outgrow the caches, too.
    ranked = few and columns * _RANKED_TREES <= workload["trees"] * workload["groups"]
    ranked |= columns <= _FEW_COLUMNS and depth > _PERFECT_DEPTH
    if "bitvector" not in strategies:
        if ranked and not sparse and "ranked_traversal" in strategies:
            return "ranked_traversal"
        if few and columns > _MANY_COLUMNS and "tree_traversal" in strategies:
            return "tree_traversal"
    for name in _ORDER:
        if name in strategies and not (name == perfect and sparse and "tree_traversal" in strategies):
            return name
    return next(iter(strategies))


def _same_vectors(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a schedule for one target makes sense on the other."""
    return all(one.get(name) == other.get(name) for name in ("kind", "vector_bits"))


def _fit(
    records: list[Record], strategies: dict[str, Strategy], workload: Workload, target: Target
) -> tuple[str, Config, Record] | None:
    """The best record of one workload whose configuration this workload's space has too."""
    for record in ranking(record for record in records if record.strategy in strategies):
        strategy = strategies[record.strategy]
        space, default = strategy.space(workload, target), strategy.default(workload, target)
        config = translate(record.config, space, default)
        if config is not None:
            return record.strategy, config, record
    return None
