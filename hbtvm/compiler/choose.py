"""A kernel for a workload without a search: the best that the logs know, else a good default."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from hbtvm.compiler.target import Target
from hbtvm.strategies import Strategy, Workload
from logs.query import best
from logs.record import Record, canonical
from logs.targets import target_key
from schedules.space import Config
from tuning.transfer import distance, translate

_FAR = 12.0
"""Workloads that differ by more factors of two than this have nothing to tell one another."""

_ORDER = ("bitvector", "perfect_tree_traversal", "tree_traversal", "gemm")
_PERFECT_DEPTH = 10
"""Up to this depth a perfect tree's tables still fit the caches, and its shorter steps win."""

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
    machine, own = target_key(target), canonical(workload)
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.strategy in strategies and record.target_key == machine and record.times:
            groups.setdefault(record.workload_key, []).append(record)
    ranked = sorted(groups, key=lambda key: (key != own, distance(workload, groups[key][0].workload), key))
    for key in ranked:
        near = groups[key]
        if key != own and distance(workload, near[0].workload) > _FAR:
            break
        found = _fit(near, strategies, workload, target)
        if found is not None:
            strategy, config, record = found
            if key == own:
                return Choice(strategy, config, statistics.median(record.times), "log")
            return Choice(strategy, config, None, "similar")
    name = default_strategy(strategies, workload)
    return Choice(name, strategies[name].default(workload, target), None, "default")


def default_strategy(strategies: dict[str, Strategy], workload: Workload) -> str:
    """The strategy that is mostly fastest for such a forest, among those that can hold it."""
    perfect, depth = "perfect_tree_traversal", workload["depth"]
    shallow = next((most for leaves, most in _SHALLOW.items() if workload["leaves"] <= leaves), 0)
    if perfect in strategies and depth <= shallow:
        return perfect
    for name in _ORDER:
        if name in strategies and not (
            name == perfect and depth > _PERFECT_DEPTH and "tree_traversal" in strategies
        ):
            return name
    return next(iter(strategies))


def _fit(
    records: list[Record], strategies: dict[str, Strategy], workload: Workload, target: Target
) -> tuple[str, Config, Record] | None:
    """The fastest record of one workload whose configuration this workload's space has too."""
    bests = [best(records, strategy=name) for name in strategies]
    for record in sorted((r for r in bests if r is not None), key=lambda r: r.cost):
        strategy = strategies[record.strategy]
        space, default = strategy.space(workload, target), strategy.default(workload, target)
        config = translate(record.config, space, default)
        if config is not None:
            return record.strategy, config, record
    return None
