"""The Python interface: `tune`, `compile` and `load`, on models or model files."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hbtvm import checks
from hbtvm.compiler.assemble import KernelChoice, assemble, stamp
from hbtvm.compiler.building.compilers import is_cross
from hbtvm.compiler.building.cpu import require_compilers
from hbtvm.compiler.candidates import fleet as remote
from hbtvm.compiler.candidates import tasks
from hbtvm.compiler.candidates.prepared import prepare
from hbtvm.compiler.pieces import Piece, pieces_of
from hbtvm.compiler.recursion.compile import RECURSIVE_SIZES, compiled, searched, work_of
from hbtvm.compiler.recursion.tree_gru import make_scorer
from hbtvm.compiler.selection.choose import choose
from hbtvm.compiler.targets.cuda import measured_here
from hbtvm.errors import BuildError, DeviceError, InputError, InputTypeError, TargetError
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.graph import Graph
from hbtvm.logs.query import shipped
from hbtvm.logs.record import Record, utc_now
from hbtvm.logs.store import Log
from hbtvm.options import (
    BATCH_SIZES,
    common_options,
    search_choices,
    search_limits,
    strategy_names,
    tuning_log,
)
from hbtvm.reading import Dtype, graph_for, read_model, recursive_model, refuse_columns, refuse_sample
from hbtvm.runtime.cpu import missing_features
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.timing import Copies, time_copies
from hbtvm.runtime.model import Model
from hbtvm.runtime.package import Package
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.workload import Target
from hbtvm.strategies import workload_of
from hbtvm.tuning import session
from hbtvm.tuning.measuring.artifacts import Artifacts
from hbtvm.tuning.measuring.scratch import Scratch
from hbtvm.tuning.progress import Progress
from hbtvm.tuning.result import Result


@dataclass(frozen=True)
class Search:
    """A tuned model, and how it was found.

    Attributes
    ----------
    copies
        For a GPU of this machine, by batch size: what copies take that the result's times leave out, there
        and back.
    sample
        Of a recursive model, what structures it was measured on, in words; else empty.
    """

    model: Model
    result: Result
    copies: Mapping[int, Copies] = field(default_factory=dict)
    sample: str = ""


def tune(model: Any, **options: Any) -> Model:
    """Search for a model's fastest code; see `search` for the options.

    Examples
    --------
    >>> tuned = hbtvm.tune("model.pkl", batch_sizes=(1, 1000), log="tuning.jsonl")  # doctest: +SKIP
    >>> tuned.save("model.tar")  # doctest: +SKIP
    """
    return search(model, **options).model


def search(
    model: Any,
    *,
    target: str | dict[str, Any] = "cpu",
    batch_sizes: int | Sequence[int] = BATCH_SIZES,
    threads: int | None = None,
    trials: int | None = None,
    time_budget: float | None = None,
    log: Log | str | os.PathLike[str] | None = None,
    transfer: bool = True,
    seed: int = 0,
    dtype: Dtype = "float32",
    strategies: str | Sequence[str] | None = None,
    max_bytes: int | None = None,
    trust: bool | None = None,
    progress: Progress | None = None,
    rpc_tracker: str | None = None,
    rpc_key: str | None = None,
    preset: str = "default",
    explorer: str | None = None,
    cost_model: str | None = None,
    features: str | None = None,
    acquisition: str | None = None,
    diversity: int | None = None,
    epsilon: float | None = None,
    device: str | int | None = None,
    sample: Structures | None = None,
) -> Search:
    """Search for a model's fastest code, on this machine or on a fleet of devices.

    Parameters
    ----------
    model
        A trained model, or the path of a file that holds one (see `hbtvm.frontends`); or a recursive model
        or its ``.rec`` file (see `hbtvm.recursive`), for which rows are structures.
    target
        ``"cpu"``, ``"cuda"`` for this machine's GPU, or a TVM target that this machine can run.
    batch_sizes
        Numbers of rows per call to tune for, or one such number; the package takes any number of rows.
    threads
        Threads that one call may use; by default, all CPUs that this process may use.
    trials, time_budget
        Candidates to try (those in the log count), and seconds to search; by default, 240
        candidates in at most 100 seconds. With one of them given, the other has no limit.
    log
        Tuning log to carry on from and to add to; without one nothing is kept.
    transfer
        Whether to learn from other models' measurements.
    seed
        With the same seed, log and measured times the same candidates are tried.
    dtype
        Type of leaf values, and of radial kernels for float32 rows: ``"float32"`` is within 1e-5 of the
        library, ``"float64"`` within 1e-12. Rows end in the very same leaves either way.
    strategies
        Names of the strategies to try, or one such name; by default, all that can hold the model.
    max_bytes
        Bytes to which a compressed pickle file may expand, 4 GiB if not given; see
        `hbtvm.frontends.load_model`.
    trust
        No longer needed, as no pickle is run any more; given, it is ignored with a warning.
    progress
        Called after each trial.
    rpc_tracker, rpc_key
        ``"HOST:PORT"`` of a TVM RPC tracker, and the key of the devices to measure on, all at once.
        What is built here must run there: give `target` where they are of another kind. Kernels are
        measured on one thread.
    preset
        How to search, by name: one of `hbtvm.tuning.choices.PRESETS`, such as ``"autotvm"`` or ``"random"``.
    explorer, cost_model, features, acquisition, diversity, epsilon
        Single parts in place of the preset's, see `hbtvm.tuning.choices.Choices`; seldom worth changing.
    device
        Which of this machine's GPUs, such as ``"cuda:1"``, for a target that is a GPU: candidates run
        there, and so does the model. By default the first.
    sample
        For a recursive model, structures such as it will be called with: candidates are measured on some of
        them. By default random ones: binary trees, or chains where a node has one child.

    Returns
    -------
    The model, and the search's result. If it was interrupted, batch sizes that had no measurement yet
    get the kernels that `compile` would choose.

    Raises
    ------
    ModelError, InputError, TargetError
        If the model, the options or the target are not fit for it; before any work is done. For an option of
        a wrong type it is an `InputTypeError`, which is also a `TypeError`.
    DeviceError
        If the tracker or the devices cannot be had, and nothing was measured yet.
    BuildError
        If no candidate could be built and run.
    LogError
        If the log cannot be read, or could not be written and there is nothing to return.
    KeyboardInterrupt
        If it was interrupted before anything was measured.
    """
    trials, time_budget, seed = search_limits(trials, time_budget, seed)
    checks.flag("transfer", transfer)
    if progress is not None and not callable(progress):
        raise InputTypeError(f"progress is {checks.kind(progress)}; expected a function of one trial")
    kept = tuning_log(log)
    place = remote.place(rpc_tracker, rpc_key, threads)
    if place and device is not None:
        raise InputError(f"a fleet measures on its own devices, so none of this machine's, not {device!r}")
    machine, sizes, threads, index = common_options(
        target, device, batch_sizes, 1 if place else threads, dtype
    )
    names = strategy_names(strategies)
    on_gpu = machine["kind"] == "cuda"
    lacking = [] if on_gpu else missing_features(machine)
    if on_gpu and place is None:
        machine = measured_here(machine, index)
    if lacking and place is None:
        if is_cross(machine):
            raise TargetError(
                f"tuning runs its candidates, but this machine is no {lacking[0]}, which target "
                f"{machine['mcpu']} is; tune on such a machine or on a fleet of them (with a tracker), or "
                "compile without a search"
            )
        raise TargetError(
            f"tuning runs its candidates, but this machine lacks {', '.join(lacking)}, which target "
            f"{machine['mcpu']} has; tune on such a machine, or compile without a search"
        )
    choices = search_choices(
        preset,
        explorer=explorer,
        cost_model=cost_model,
        features=features,
        acquisition=acquisition,
        diversity=diversity,
        epsilon=epsilon,
    )
    recursive = recursive_model(model, dtype, names)
    if recursive is not None:
        if place is not None:
            raise InputError("recursive models are tuned on this machine, not on a fleet")
        sizes = RECURSIVE_SIZES if batch_sizes is BATCH_SIZES else sizes
        work = work_of(recursive, machine, sizes, threads, sample)
        limits = {"trials": trials, "time_budget": time_budget, "seed": seed, "transfer": transfer}
        package, result = searched(work, kept, _head, index, choices=choices, progress=progress, **limits)
        if package is None:
            raise _nothing(result)
        made_of = Model.from_package(package, threads, f"cuda:{index}" if on_gpu else None)
        return Search(made_of, result, sample=work.sample)
    refuse_sample(sample)
    graph = graph_for(machine, read_model(model, max_bytes, trust), dtype, names)
    refuse_columns(graph)
    require_compilers(machine, linked=not on_gpu or place is not None)
    pieces = pieces_of(graph, dtype, names, machine)
    started = utc_now()
    # What this machine can't run it can't rehearse for a fleet, either.
    fleet = None if place is None else remote.fleet(place, rehearse=not (on_gpu or lacking))
    named = {} if place is None else {"session": f"rpc:{place[2]}"}
    artifacts = Artifacts()
    with Scratch("hbtvm-") as folder:
        ready = prepare(pieces, machine, sizes, threads, folder, fleet=place is not None, device=index)
        result = session.tune(
            ready.tasks,
            trials=trials,
            time_budget=time_budget,
            log=kept,
            seed=seed,
            transfer=transfer,
            choices=choices,
            progress=progress,
            describe=tasks.describe,
            options=session.Options(artifacts=artifacts, stamp=stamp() | named, make_scorer=make_scorer),
            batch=4 if fleet is None else max(4, 2 * fleet.devices),
            machine=fleet,
        )
    found = [group.best for group in result.groups.values()]
    count = len(sizes)
    first = [sorted(set(ready.same)).index(one) * count for one in ready.same]
    found = [best for at in first for best in found[at : at + count]]
    if not any(found):
        raise _nothing(result)
    records = [*shipped(), *result.history]
    kernels = []
    for (piece, rows), best in zip(itertools.product(pieces, sizes), found, strict=True):
        if best is None:
            kernels.append(_chosen(piece, rows, threads, records, machine))
        else:
            config = best.config
            built, linked = artifacts.library(best.task, config), artifacts.object(best.task, config)
            kernels.append(
                KernelChoice(rows, best.task.strategy, config, best.time, threads, "tuned", built, linked)
            )
    provenance = {
        "trials": result.trials,
        "failed": sum(result.failures.values()),
        "seconds": round(result.seconds.total, 3),
        "stopped": result.stopped,
        "seed": seed,
        "started": started,
    }
    package = _with_others(
        _assembled(graph, pieces, kernels, machine, provenance),
        graph,
        target=target,
        batch_sizes=sizes,
        threads=threads,
        log=log,
        dtype=dtype,
        device=device,
    )
    copies = (
        _copies(index, _row_bytes(graph, pieces), graph.output.n_outputs, sizes)
        if on_gpu and place is None
        else {}
    )
    return Search(Model.from_package(package, threads, f"cuda:{index}" if on_gpu else None), result, copies)


def compile(
    model: Any,
    *,
    target: str | dict[str, Any] = "cpu",
    batch_sizes: int | Sequence[int] = BATCH_SIZES,
    threads: int | None = None,
    log: Log | str | os.PathLike[str] | None = None,
    dtype: Dtype = "float32",
    strategies: str | Sequence[str] | None = None,
    max_bytes: int | None = None,
    trust: bool | None = None,
    device: str | int | None = None,
    sample: Structures | None = None,
) -> Model:
    """Compile a model without a search: the best that the logs know, else a good default.

    Parameters and errors are those of `search`. The target may be another machine: the
    result can then be saved, but not run here.
    """
    machine, sizes, threads, index = common_options(target, device, batch_sizes, threads, dtype)
    names, kept = strategy_names(strategies), tuning_log(log)
    on_gpu = machine["kind"] == "cuda"
    recursive = recursive_model(model, dtype, names)
    if recursive is not None:
        sizes = RECURSIVE_SIZES if batch_sizes is BATCH_SIZES else sizes
        work = work_of(recursive, machine, sizes, threads, sample)
        package = compiled(work, kept, _head)
        return Model.from_package(package, threads, f"cuda:{index}" if on_gpu else None)
    refuse_sample(sample)
    graph = graph_for(machine, read_model(model, max_bytes, trust), dtype, names)
    if isinstance(graph.anchor, Columns):
        package = assemble(graph, [], [], machine, {"trials": 0, "started": utc_now()})
        return Model.from_package(package, threads, None)
    require_compilers(machine, linked=not on_gpu)
    pieces = pieces_of(graph, dtype, names, machine)
    records: list[Record] = shipped()
    if kept is not None:
        records += kept.read().records
    kernels = [_chosen(piece, rows, threads, records, machine) for piece in pieces for rows in sizes]
    package = _with_others(
        _assembled(graph, pieces, kernels, machine, {"trials": 0, "started": utc_now()}),
        graph,
        target=target,
        batch_sizes=sizes,
        threads=threads,
        log=log,
        dtype=dtype,
        device=device,
    )
    return Model.from_package(package, threads, f"cuda:{index}" if on_gpu else None)


def _head(graph: Graph, target: Target, sizes: tuple[int, ...]) -> Package:
    """The package of the layers behind a recursive model."""
    return compile(graph, target=dict(target), batch_sizes=sizes, threads=1).package


def _row_bytes(graph: Graph, pieces: Sequence[Piece]) -> int:
    """Bytes of a row as it is copied to a GPU: where there are stages, of all that they read, in float64."""
    if graph.stages:
        return 8 * (len(graph.feeds) or graph.input.n_features)
    forest = pieces[-1].operands[0]
    return forest.n_features * np.dtype(forest.row_dtype).itemsize


def _copies(device: int, row: int, outputs: int, sizes: Sequence[int]) -> dict[int, Copies]:
    """Time copies of batches to a GPU and back; none where it has no room for one."""
    try:
        gpu = driver.gpu(device)
        return {rows: time_copies(gpu, rows * row, rows * outputs * 8) for rows in sizes}
    except DeviceError:
        return {}


def _assembled(
    graph: Graph,
    pieces: Sequence[Piece],
    kernels: Sequence[KernelChoice],
    target: Target,
    tuning: dict[str, Any],
) -> Package:
    """The package of kernels that were chosen piece by piece, for as many batch sizes each."""
    count = len(kernels) // len(pieces)
    own = [(piece.operands, kernels[i * count : (i + 1) * count]) for i, piece in enumerate(pieces)]
    *stages, (operands, last) = own
    return assemble(graph, operands, last, target, tuning, stages)


def _with_others(package: Package, graph: Graph, **options: Any) -> Package:
    """The package with those of what else the graph computes, which are compiled without a search."""
    if graph.transform is not None:
        package = replace(package, transform=compile(graph.transform, **options).package)
    if graph.scores is not None:
        package = replace(package, scores=compile(graph.scores, **options).package)
    return package


def _chosen(piece: Piece, rows: int, threads: int, records: Sequence[Record], target: Target) -> KernelChoice:
    choice = choose(records, piece.strategies, workload_of(piece.operands[0], rows, threads), target)
    return KernelChoice(rows, choice.strategy, choice.config, choice.seconds, threads, choice.origin)


def _nothing(result: Result) -> BaseException:
    """Why a search has nothing to return."""
    if result.log_error is not None:
        return result.log_error
    if result.interrupted:
        return KeyboardInterrupt()
    if result.stopped == "devices":
        return DeviceError(result.warnings[0])
    examples = {kind: text for group in result.groups.values() for kind, text in group.example.items()}
    told = "; ".join(f"{kind}: {text}" for kind, text in examples.items())
    return BuildError(f"no candidate worked out of {result.trials} ({told or 'the time budget ended first'})")
