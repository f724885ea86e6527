"""Make the tuning tasks of a model: one for each batch size and strategy that supports the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from hbtvm.compiler.features.describe import describe_kernel
from hbtvm.compiler.selection.choose import choose
from hbtvm.errors import InputError
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.graph import Graph, KernelAnchor
from hbtvm.graph.networks.network import Network
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble
from hbtvm.graph.trees.prologue import Prologue, Scaled
from hbtvm.logs.query import shipped
from hbtvm.logs.record import Record
from hbtvm.runtime.gpu.names import on_gpu
from hbtvm.schedules.cpu.steps import is_wide
from hbtvm.schedules.space import Space
from hbtvm.schedules.workload import Target, Workload, family_of, is_known, prologue_of
from hbtvm.strategies import (
    Forest,
    Operand,
    Strategy,
    make_forest,
    make_linear,
    make_network,
    make_reasons,
    strategies_on,
    workload_of,
)
from hbtvm.strategies.trees.forest import DType
from hbtvm.tuning.task import Describe, Task
from hbtvm.words.names import ALL_STRATEGIES, BY_FAMILY

_HOLDS = {
    "trees": "trees",
    "linear": "linear models",
    **dict.fromkeys(("contract", "distance", "select", "pointwise"), "networks of operators"),
    "recursive": "recursive models",
    "reasons": "reasons",
}
"""Descriptions of operand families."""

_BY_NAME_ALONE = {("cuda", "gemm"): "gemm is ten times behind on GPUs, and is searched only by name"}
"""Why a strategy for a kind of target is searched only by name (``python -m benchmarks.gpu.bounds`` counts
bank conflicts)."""

_SPLITS_PER_COLUMN, _MOST_NODES = 400, 2**18
"""Splits for each column from which, and nodes up to which, rows without missing values have kernels of their
own."""

PROGRAM = "hbtvm.compiler.candidates.program:TreeProgram"


def operands_of(
    graph: Graph, dtype: DType, *, complete: bool = True, prologue: bool = True
) -> Sequence[Operand]:
    """Return the operands of a package, the tuned operand first; empty for `Columns`.

    `dtype`, `complete`: for trees as in `forests_of`. Linear models always sum in float64: with ``"float32"``
        there is an operand for each row type, with ``"float64"`` all rows are read as float64, except for
        transformers that keep the rows' type.
    `prologue`: whether kernels may compute arithmetic in front of trees, as on CPUs.
    """
    anchor = graph.anchor
    if isinstance(anchor, TreeEnsemble):
        single = graph.single if isinstance(graph.single, TreeEnsemble) else None
        scaled = graph.scaled if prologue else None
        forests = forests_of(
            anchor, dtype, complete=complete, single=single, scaled=scaled, on_gpu=not prologue
        )
        # The caller chooses the type of arrays; most frames have float64 columns.
        if (
            graph.feeds
            and anchor.compare_dtype == "float64"
            and not all(feed.encoder for feed in graph.feeds)
        ):
            forests.sort(key=lambda forest: forest.row_dtype != "float64")
        return forests
    types: tuple[DType, ...] = ("float64", "float32") if dtype == "float32" else ("float64",)
    if isinstance(anchor, TreeReasons):
        return reasons_of(anchor, dtype, graph.single)
    if isinstance(anchor, Columns):
        return []  # computed by the host
    if isinstance(anchor, Network):
        if graph.output.label_dtype == "rows" or isinstance(graph.single, Network):
            # Transformers return the rows' type, rounded as the library rounds.
            types = ("float64", "float32")
        narrow = graph.single if isinstance(graph.single, Network) else anchor

        def scores(rows: DType) -> DType:
            # CPU kernels write the final type.
            dtype = graph.output.label_dtype
            single = dtype == "float32" or (dtype == "rows" and rows == "float32")
            return "float32" if single and prologue and graph.output.kind == "transformer" else "float64"

        # Decisions of trees and classifiers must not depend on rounding, and the error's bound is one for
        # finite rows.
        narrow_sums = (
            prologue
            and dtype == "float32"
            and graph.output.kind in ("transformer", "regressor")
            and graph.reads_finite
        )
        operands = [
            make_network(narrow if rows == "float32" else anchor, rows, scores(rows), prologue, narrow_sums)
            for rows in types
        ]
        # What suits sums in float32 suits sums in float64 better than the other way round.
        return sorted(operands, key=lambda operand: not operand.narrow_sums)
    return [make_linear(anchor, dtype, anchor.sums.fills_missing) for dtype in types]


def reasons_of(reasons: TreeReasons, dtype: DType, single: Any = None) -> list[Operand]:
    """Return the operands of Shapley values, with paths in `dtype`; `single` as in `forests_of`."""
    narrow = single if isinstance(single, TreeReasons) else reasons
    operands: list[Operand] = [make_reasons(narrow, "float32", dtype)]
    if reasons.compare_dtype == "float64" or narrow is not reasons:
        operands.append(make_reasons(reasons, "float64", dtype))
    return operands


def anchor_of(graph: Graph, operand: Operand) -> KernelAnchor:
    """Return the source of an operand: `Graph.single` for float32 rows, or `Graph.anchor`."""
    anchor = graph.single if graph.single is not None and operand.row_dtype == "float32" else graph.anchor
    assert not isinstance(anchor, Columns)
    return anchor


def forests_of(
    ensemble: TreeEnsemble,
    dtype: DType,
    *,
    complete: bool = True,
    single: TreeEnsemble | None = None,
    scaled: Scaled | None = None,
    on_gpu: bool = False,
) -> list[Forest]:
    """Return the forests of a package, the tuned forest first.

    `single`: other trees for float32 rows; `ensemble` then serves float64 rows only.
    `dtype`: ``"float32"``: leaf values in float32, unless the ensemble is `precise`. Models that compare in
        float64 get a second forest for float64 rows; models of many features or splits, some with two columns
        for missing values, get a forest for rows without missing values. ``"float64"``: leaf values in
        float64, and one forest in the model's comparison type.
    `complete`: whether to include a forest for rows without missing values. Not on GPUs, where the runtime
        would have to search rows on the device and wait.
    `scaled`: replaces `ensemble` for float64 rows, beside `single`, in kernels with a prologue. It is tuned,
        because most frames are float64 and its fast configurations suit float32, too.
    `on_gpu`: whether they are for a GPU.
    """
    if on_gpu:
        cpu_forests = forests_of(ensemble, dtype, complete=False, single=single, scaled=scaled)
        return [replace(forest, on_gpu=True) for forest in cpu_forests]
    values: DType = "float64" if ensemble.precise or dtype == "float64" else "float32"
    narrow = ensemble if single is None else single
    if scaled is not None and single is not None:
        # With leaf values in float64, forests are few and simple.
        complete = complete and dtype == "float32"
        return [
            *_narrow_forests(scaled.ensemble, values, complete, scaled.prologue),
            *_narrow_forests(narrow, values, complete),
        ]
    if dtype == "float64":
        if single is not None:
            return [make_forest(ensemble, "float64", "float64"), make_forest(single, "float32", "float64")]
        return [make_forest(ensemble, ensemble.compare_dtype, "float64")]
    forests = _narrow_forests(narrow, values, complete)
    if ensemble.compare_dtype == "float64" or single is not None:
        forests.append(make_forest(ensemble, "float64", values))
    return forests


def _narrow_forests(
    ensemble: TreeEnsemble, values: DType, complete: bool, prologue: Prologue | None = None
) -> list[Forest]:
    """Return the forest over float32 columns, maybe after a forest for rows without missing values.

    Rows without missing values need fewer columns where a feature's nodes disagree about missing values.
    """
    forest = make_forest(ensemble, "float32", values, prologue=prologue)
    wide = is_wide(workload_of(forest, 1))
    if complete and not forest.columns_are_features and (wide or _is_large(forest)):
        whole = make_forest(ensemble, "float32", values, missing=False, prologue=prologue)
        fewer = whole.n_columns * 3 <= forest.n_columns * 2 and _is_large(forest)
        if whole.columns_are_features or fewer:
            return [whole, forest]
    return [forest]


def _is_large(forest: Forest) -> bool:
    """Return whether fewer columns may save more time than tables for rows without missing values cost."""
    splits = int((forest.left != LEAF).sum())
    return splits >= _SPLITS_PER_COLUMN * forest.n_columns and len(forest.left) <= _MOST_NODES


def group_name(rows: int) -> str:
    """Return the name of the tasks for one batch size."""
    return "1 row" if rows == 1 else f"{rows:,} rows"


def usable(
    forest: Operand, names: Sequence[str] | None, target: Target
) -> tuple[dict[str, Strategy], dict[str, str]]:
    """Return the strategies that can hold an operand on a target, and the reasons why the others cannot.

    Raises `InputError` if a name is unknown, or no requested strategy can hold the operand.

    `names`: the requested strategies; None for all.
    `target`: as `hbtvm.compiler.targets.target.resolve` describes it.
    """
    unknown = [name for name in names or () if name not in ALL_STRATEGIES]
    if unknown:
        raise InputError(f"there is no strategy {unknown[0]!r}; expected one of {', '.join(ALL_STRATEGIES)}")
    workload = workload_of(forest, 1)
    chosen, refused = {}, {}
    available = strategies_on(target, forest.family)
    of_family = BY_FAMILY[forest.family]
    if not available:
        raise InputError(
            f"there are no kernels of {_HOLDS[forest.family]} for the target kind {target['kind']!r} yet; "
            "compile the model for a CPU."
        )
    for name in [name for name in of_family if name in available] if names is None else names:
        if name not in of_family:
            holds = next(family for family, known in BY_FAMILY.items() if name in known)
            refused[name] = f"{name} holds {_HOLDS[holds]} only"
            continue
        if names is None and (target["kind"], name) in _BY_NAME_ALONE:
            refused[name] = _BY_NAME_ALONE[target["kind"], name]
            continue
        strategy = available.get(name)
        reason = (
            refusal(strategy, workload, target) if strategy else f"{name} has no kernels for {target['kind']}"
        )
        if strategy and reason is None:
            chosen[name] = strategy
        else:
            refused[name] = str(reason)
    if not chosen:
        raise InputError(f"no strategy can hold this model: {'; '.join(refused.values())}")
    return chosen, refused


def refusal(strategy: Strategy, workload: Workload, target: Target) -> str | None:
    """Return why a strategy cannot hold an operand on a target; None if it can."""
    reason = strategy.refuse(workload)
    if reason is not None or not on_gpu(target):
        return reason
    if prologue_of(workload) is not None:
        return f"{strategy.name} computes no arithmetic in front of trees on a GPU"
    # Defaults fit a multiprocessor's limits if any configuration does.
    if strategy.space(workload, target).contains(strategy.default(workload, target)):
        return None
    return f"{strategy.name} takes more for such a model than a multiprocessor of {target['arch']} has"


def make_tasks(
    forest: Operand,
    strategies: dict[str, Strategy],
    target: Target,
    batch_sizes: Sequence[int],
    threads: int,
    folder: Path,
    fleet: bool = False,
    device: int = 0,
    title: str = "",
) -> list[Task]:
    """Return the tuning tasks of an operand, by batch size and strategy.

    Each batch size's first task has the strategy that `hbtvm.compile` chooses without a log, and begins with
    its configuration.

    `folder`: written by `hbtvm.compiler.candidates.program.write_study`.
    `fleet`: whether candidates are measured on remote devices.
    `device`: number of the GPU that candidates run on here.
    `title`: prefix of the tasks' names.
    """
    tasks = []
    for rows in batch_sizes:
        workload = workload_of(forest, rows, threads)
        usual = choose(shipped(), strategies, workload, target)
        for name in (usual.strategy, *(name for name in strategies if name != usual.strategy)):
            strategy = strategies[name]
            default = strategy.default(workload, target)
            first = name == usual.strategy and usual.config != default
            payload = {
                "folder": str(folder),
                "strategy": name,
                "workload": workload,
                "target": target,
                "threads": threads,
                **({"fleet": True} if fleet else {}),
                **({"device": device} if device else {}),
            }
            tasks.append(
                Task(
                    name=f"{title}{group_name(rows)}, {name}",
                    workload=workload,
                    target=target,
                    strategy=name,
                    group=f"{title}{group_name(rows)}",
                    space=strategy.space(workload, target),
                    describe=partial(describe_kernel, strategy, workload, on_gpu(target)),
                    program=PROGRAM,
                    payload=payload,
                    initial=(usual.config, default) if first else (default,),
                )
            )
    return tasks


def describe(record: Record) -> tuple[Describe, Space] | None:
    """Return the description function and space of a record's workload; None if unknown to this version."""
    strategy = strategies_on(record.target, family_of(record.workload)).get(record.strategy)
    if strategy is None or not is_known(record.workload, record.target):
        return None
    workload, target = cast(Workload, dict(record.workload)), cast(Target, dict(record.target))
    try:
        if strategy.refuse(workload) is not None:
            return None
        space = strategy.space(workload, target)
        space.contains(strategy.default(workload, target))  # fails for sizes that no model has
        return partial(describe_kernel, strategy, workload, on_gpu(target)), space
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None  # the workload is not of this version's models
