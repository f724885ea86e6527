"""Choose a kernel for a workload without a search: the best in the logs, else a default."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hbtvm.compiler.selection.cuda import default_on_cuda
from hbtvm.logs.ranking import ranking
from hbtvm.logs.record import Record, canonical
from hbtvm.logs.targets import target_key
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.schedules.cpu import bitvector, intervals, ranked_rows
from hbtvm.schedules.cpu import perfect as perfect_cpu
from hbtvm.schedules.cpu.gathers import gathers
from hbtvm.schedules.cpu.steps import MAX_PERMUTED
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target, Workload, family_of, is_known
from hbtvm.strategies import Strategy, strategies_on
from hbtvm.strategies.trees import oblivious
from hbtvm.strategies.trees.perfect import is_full
from hbtvm.tuning.learning.transfer import distance, translate

_FAR = 4.0
"""Factors of two by which a logged workload may differ; beyond, a default is better."""

_OTHER_MACHINE = 1.0
"""Distance of another CPU with vectors of the same width: that of a factor of two in one size."""

_ORDER = ("bitvector", "perfect_tree_traversal", "tree_traversal", "ranked_traversal", "gemm")
_PERFECT_DEPTH = 10
"""Depth up to which a perfect tree's tables fit the caches, so that its shorter steps win; beyond it, they
win only if the trees are full."""

_FEW_ROWS, _FEW_COLUMNS = 16, 32
"""A call of fewer rows is small; up to this many columns, the ranks of a row fit two registers, where lookups
are fastest."""

_RANKED_TREES = 14
"""Trees for each column from which walks over ranks pay, although every column of a row then needs a rank."""

_MANY_COLUMNS = 64
"""Columns beyond which walks of a single row are faster over packed nodes than over a table per level."""

_SHALLOW = {32: 5, 64: 8}
"""By bits of the bitvector's word: depth up to which perfect tree traversal is faster than bitvector."""

_SHALLOW_WIDE = {32: 4, 64: 8}
"""The same for vectors of 512 bits, in which bitvector keeps 128 rows."""

_GATHERED, _GATHERED_DEPTH, _LEVEL = 8, 8, 5
"""On CPUs that gather fast: trees of a group from which vectors of trees pay, for few rows; depth up to which
a perfect tree's tables stay small; nodes that bitvector tests (in words of 32 bits) while a walk takes a
level. A level below is loaded lane by lane, so that a walk takes twice the time."""

_LEVEL_GATHERED = 3
"""The same for few rows of more columns than permutes look up: each test gathers its column."""

_TESTED = {256: (4, 6, 32), 512: (8, 1, 40)}
"""Few rows where gathers are slow, by bits of vectors: time of a node's test by bitvector, of each register
of columns that it looks up in, and of a test that loads lane by lane. The unit is 11 ps (Sapphire Rapids)."""

_WALKED, _WALKED_TREES = (176, 40), 32
"""Time of a tree's walk over packed nodes, and of each level of it, in the same unit; trees that fill the
vectors of such walks."""


@dataclass(frozen=True)
class Choice:
    """The kernel to build for a workload."""

    # `strategy`, `config`: name of the strategy, and its schedule configuration
    strategy: str
    config: Config
    # Measured seconds per call for this workload and target; None if not measured
    seconds: float | None
    # ``"log"`` (this workload), ``"similar"`` (the most similar workload in the logs) or ``"default"``
    origin: str


def choose(
    records: Iterable[Record], strategies: dict[str, Strategy], workload: Workload, target: Target
) -> Choice:
    """Return a strategy and its configuration for a workload.

    `records`: records of logs.
    `strategies`: strategies that can hold the operand, by name; records of others are ignored.
    """
    target_keys = canonical(workload), target_key(target)
    default = default_strategy(strategies, workload, target)
    config = strategies[default].default(workload, target)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.strategy in strategies and _suits(record.target, target):
            groups.setdefault((record.workload_key, record.target_key), []).append(record)
    distances = {
        key: distance(workload, group[0].workload) + _OTHER_MACHINE * (key[1] != target_keys[1])
        for key, group in groups.items()
    }
    for key in sorted(groups, key=lambda key: (distances[key], key)):
        if distances[key] > _FAR:
            break
        # Another workload's measurements say nothing about defaults that are newer.
        others = key[0] != target_keys[0]
        if others and all(_program(one) != (default, config.get("axis")) for one in groups[key]):
            continue
        if others and not _beats_default(groups[key], strategies):
            continue
        choice = _fit(groups[key], strategies, workload, target)
        if choice is not None:
            strategy, logged, record = choice
            if key == target_keys:
                return Choice(strategy, logged, statistics.median(record.times), "log")
            if "parallel" in logged:
                # The benefit of threads depends on this model's call times and rows.
                logged = strategies[strategy].with_sharing(logged, workload, target)
            return Choice(strategy, logged, None, "similar")
    return Choice(default, config, None, "default")


def default_strategy(strategies: dict[str, Strategy], workload: Workload, target: Target) -> str:
    """Return the strategy that is usually fastest for a model on a target, among those that can hold it.

    The rules for CPUs come from measurements; those for GPUs from a model of memory accesses (see
    `hbtvm.compiler.selection.cuda`).
    """
    if family_of(workload) != "trees":
        if "product" in strategies and workload.get("narrow_sums") and workload["rows"] >= _FEW_ROWS:
            return "product"
        return next(iter(strategies))
    if on_gpu(target):
        return default_on_cuda(strategies, workload)
    perfect, depth = "perfect_tree_traversal", workload["depth"]
    columns = workload["numeric"] + workload["categorical"]
    if len(strategies) > 1 and not bitvector.pays(workload, target):
        strategies = {name: strategy for name, strategy in strategies.items() if name != "bitvector"}
    if "oblivious" in strategies and oblivious.pays(workload):
        return "oblivious"
    bytewise = "leaf_intervals" in strategies and intervals.pays(workload, target)
    if bytewise and workload["leaves"] <= 32:
        return "leaf_intervals"
    if "ranked_traversal" in strategies and ranked_rows.pays(workload, target):
        return "ranked_traversal"
    if perfect in strategies and perfect_cpu.words_pay(workload, target):
        return perfect
    if bytewise:
        return "leaf_intervals"
    few, fast = workload["rows"] < _FEW_ROWS, gathers(target)
    if few and fast:
        return _by_gathers(strategies, workload)
    limits = _SHALLOW_WIDE if target["vector_bits"] == 512 else _SHALLOW
    shallow = next((most for leaves, most in limits.items() if workload["leaves"] <= leaves), 0)
    if fast:
        shallow = _GATHERED_DEPTH + 1 if _walks_pay(workload, 1) or _is_whole(workload) else 0
    if perfect in strategies and depth <= shallow:
        return perfect
    if {"bitvector", "tree_traversal"} <= strategies.keys() and _walks_beat_tests(workload, target):
        return "tree_traversal"
    sparse = depth > _PERFECT_DEPTH and not is_full(workload)
    # A ranked node takes one word instead of two, which also pays if tables outgrow the caches.
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


def _by_gathers(strategies: Mapping[str, Strategy], workload: Workload) -> str:
    """Return the usual strategy for calls of few rows on a CPU that gathers fast."""
    perfect, depth = "perfect_tree_traversal", workload["depth"]
    order = list(_ORDER)
    if workload["trees"] < _GATHERED:
        order.insert(0, "tree_traversal")
    elif _walks_pay(workload, 0):
        order.insert(0, perfect)
    sparse = depth > _PERFECT_DEPTH and not is_full(workload)
    able = [name for name in (*order, *strategies) if name in strategies]
    return next((name for name in able if not (name == perfect and sparse)), able[0])


def _walks_pay(workload: Workload, more: int) -> bool:
    """Return whether a walk is faster than bitvector's tests; `more`: levels that may be loaded by lane."""
    depth, leaves = workload["depth"], workload["leaves"]
    tests = leaves * (1 + (leaves > 32))
    level = _LEVEL * (1 + (depth > _GATHERED_DEPTH))
    if workload["rows"] < _FEW_ROWS and workload["numeric"] + workload["categorical"] > MAX_PERMUTED:
        level = _LEVEL_GATHERED
    return tests > level * depth and depth <= _GATHERED_DEPTH + more


def _walks_beat_tests(workload: Workload, target: Target) -> bool:
    """Return whether a walk over packed nodes is faster than bitvector's tests, for fewer rows than lanes."""
    bits, leaves = int(target["vector_bits"]), workload["leaves"]
    few = workload["rows"] < bits // 32 and workload["dtype"] == "float32"
    if bits not in _TESTED or not few or workload["trees"] * workload["groups"] < _WALKED_TREES:
        return False
    columns = workload["numeric"] + workload["categorical"]
    test, register, loads = _TESTED[bits]
    looked_up = columns <= MAX_PERMUTED * bits // 512
    took = test + register * -(-32 * columns // bits) if looked_up else loads
    start, level = _WALKED
    return (leaves - 1) * took > start + level * workload["depth"]


def _is_whole(workload: Workload) -> bool:
    """Return whether the largest tree is shallow and lacks few leaves of a perfect tree."""
    return 5 * workload["leaves"] >= 4 * 2 ** workload["depth"] and workload["depth"] <= _SHALLOW_WIDE[32]


def default_record(records: Sequence[Record], names: Collection[str] | None = None) -> Record | None:
    """Return the best measurement of the schedule that a workload has without a search or logs.

    `records`: a workload's, on one machine.
    `names`: strategies to choose the default from; None for those tried.
    Returns None if the default was not measured, or this version does not know the workload.
    """
    kind, shape = records[0].target, records[0].workload
    if not is_known(shape, kind):
        return None
    workload, target = cast(Workload, dict(shape)), cast(Target, dict(kind))
    tried = {record.strategy for record in records} if names is None else names
    try:
        able = {
            name: strategy
            for name, strategy in strategies_on(target, family_of(workload)).items()
            if name in tried and strategy.refuse(workload) is None
        }
        name = default_strategy(able, workload, target)
        config = able[name].default(workload, target)
    except (ArithmeticError, LookupError, StopIteration, TypeError, ValueError):
        return None  # the workload is not of this version's models
    same = (record for record in records if record.strategy == name and dict(record.config) == dict(config))
    return next(iter(ranking(same)), None)


def _beats_default(records: Sequence[Record], strategies: Collection[str]) -> bool:
    """Return whether a workload's records hold its default by today's rules, and a faster schedule."""
    default = default_record(records, strategies)
    return default is not None and ranking(records)[0] is not default


def _program(record: Record) -> tuple[str, Any]:
    """Return a record's strategy, and which of its programs it measured."""
    return record.strategy, record.config.get("axis")


def _suits(one: Mapping[str, Any], other: Target) -> bool:
    """Return whether a schedule for one target may suit the other.

    The rules for CPUs that gather fast are better than measurements of CPUs that do not.
    """
    alike = all(one.get(name) == other.get(name) for name in ("kind", "vector_bits"))
    return alike and (gathers(one) or not gathers(other))


def _fit(
    records: list[Record], strategies: dict[str, Strategy], workload: Workload, target: Target
) -> tuple[str, Config, Record] | None:
    """Return the best record of a workload whose configuration is in this workload's space."""
    for record in ranking(record for record in records if record.strategy in strategies):
        strategy = strategies[record.strategy]
        space, default = strategy.space(workload, target), strategy.default(workload, target)
        config = translate(record.config, space, default)
        if config is not None:
            return record.strategy, config, record
    return None
