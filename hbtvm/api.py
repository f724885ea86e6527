"""The Python interface: `search` and `compile`; `hbtvm.cli.interactive` has `tune`."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from hbtvm.compiler.assemble import KernelChoice, assemble
from hbtvm.compiler.building.cpu import require_compilers
from hbtvm.compiler.candidates import fleet
from hbtvm.compiler.candidates.prepared import prepare
from hbtvm.compiler.overheads import Overheads, groups_of
from hbtvm.compiler.pieces import Piece, pieces_of
from hbtvm.compiler.recursion.compile import compiled, searched, work_of
from hbtvm.compiler.selection.choose import choose
from hbtvm.compiler.untuned import untuned
from hbtvm.errors import BuildError, DeviceError, InputError
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.graph import Graph
from hbtvm.logs.query import shipped
from hbtvm.logs.ranking import is_final
from hbtvm.logs.record import Record, utc_now
from hbtvm.logs.store import Log, LogError
from hbtvm.measuring.calls import add_call_times
from hbtvm.options import CompileOptions, SearchOptions, keywords
from hbtvm.recursive.cell import RecursiveModel
from hbtvm.run import (
    Run,
    SearchRun,
    compile_run,
    graph_of,
    recursive_model,
    refuse_columns,
    refuse_explain,
    refuse_sample,
    search_run,
)
from hbtvm.runtime.cpu import missing_features
from hbtvm.runtime.cuda.timing import Copies, copies_of
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.calls import CallTimes
from hbtvm.runtime.package.file import Package
from hbtvm.schedules.workload import Target
from hbtvm.strategies import workload_of
from hbtvm.tuning import session
from hbtvm.tuning.measuring.artifacts import Artifacts
from hbtvm.tuning.measuring.scratch import Scratch
from hbtvm.tuning.result import Entry, Result
from hbtvm.words.names import REASONS_TITLE

_REASONS = "reasons"  # the view whose kernels are searched


@dataclass(frozen=True)
class Search:
    """A tuned model, and the result of its search."""

    model: Model
    result: Result
    # For a GPU of this machine, by batch size: the time of copies, which the result's times exclude
    copies: Mapping[int, Copies] = field(default_factory=dict)
    sample: str = ""  # for a recursive model, a description of the structures it was measured on; else empty
    # Compiles the model with its default schedules, on this machine's CPU; None if nothing faster was found
    untuned: Callable[[], Model] | None = None

    @property
    def calls(self) -> tuple[CallTimes, ...]:
        """The times of whole calls; empty if they were not measured."""
        return self.model.package.calls


@keywords(SearchOptions)
def search(model: Any, options: SearchOptions) -> Search:
    """Search for a model's fastest code, on this machine or on a fleet of devices.

    Parameters
    ----------
    model
        A trained model or the path of its file (see `hbtvm.frontends`); or a recursive model or its ``.rec``
        file (see `hbtvm.recursive`), whose rows are structures.
    target
        ``"cpu"``, this machine's ``"cuda"`` or ``"opencl"``, or a TVM target that this machine can run.
    batch_sizes
        Rows per call to tune for, a number or several; by default 1, 100 and 10,000, or 1 and 10 structures.
        The package takes any number of rows.
    threads
        Most threads of a call; by default, all CPUs that this process may use.
    trials, time_budget
        Candidates to try, those in the log included, and seconds to search; by default, 240 candidates in at
        most 100 seconds. Setting only one of them leaves the other unlimited. Without `trials`, batch sizes
        whose default kernel takes less than a tenth of a call are not searched.
    log
        Tuning log to resume from and to append to; by default, nothing is kept.
    transfer
        Whether to learn from other models' measurements.
    seed
        The same seed, log and measured times give the same candidates.
    dtype
        Type of leaf values, and of radial kernels for float32 rows: ``"float32"`` is within 1e-5 of the
        library, ``"float64"`` within 1e-12. Rows reach the same leaves with both.
    strategies
        Strategies to try, a name or several; by default, all that support the model.
    max_bytes
        Bytes to which a compressed pickle may expand; by default 4 GiB (see `hbtvm.frontends.load_model`).
    progress
        Called after each trial.
    rpc_tracker, rpc_key
        ``"HOST:PORT"`` of a TVM RPC tracker, and the key of its devices, which measure in parallel. The code
        is built here and must run there: set `target` for devices of another kind. Kernels are measured on
        one thread.
    preset
        Name of a search in `hbtvm.tuning.choices.PRESETS`, such as ``"autotvm"`` or ``"random"``.
    explorer, cost_model, features, acquisition, diversity, epsilon
        Replace parts of the preset (see `hbtvm.tuning.choices.Choices`).
    device
        This machine's GPU that runs candidates and the model, such as ``"cuda:1"``; by default the first.
    sample
        For a recursive model, structures to measure on; by default, random binary trees, or chains where a
        node has one child.
    python_steps
        ``"keep"`` keeps the steps of a Pipeline in memory that can't be compiled, such as a class or function
        of yours, as Python steps of the model, and compiles the steps around them. Rows of Python steps are
        the step's: calls of the model are not timed. By default they are refused.
    explain
        Whether the model has, beside predictions, the leaf of each tree (``apply``), each tree's scores
        (``predict_per_tree``) and contributions of columns, whose kernels are searched too, within the same
        trials and seconds. Packages without them are smaller.

    Returns
    -------
    The model, and the search's result. After an interrupt, batch sizes without a measurement have the kernels
    that `compile` would choose.

    Raises
    ------
    ModelError, InputError, TargetError
        If the model, an option or the target is not supported; before any work is done. For an option of a
        wrong type it is an `InputTypeError`, which is also a `TypeError`.
    DeviceError
        If the tracker or its devices are unavailable, and nothing was measured.
    BuildError
        If no candidate could be built and run.
    LogError
        If the log cannot be read, or could not be written and there is no result.
    KeyboardInterrupt
        If it was interrupted before the first measurement.
    """
    return _search(model, options)


@keywords(CompileOptions)
def compile(model: Any, options: CompileOptions) -> Model:
    """Compile a model without a search: with the logs' best configuration, else with a default.

    Parameters
    ----------
    model
        A trained model, or the path of its file; or a recursive model.
    target
        ``"cpu"``, ``"cuda"``, ``"opencl"``, or a TVM target. It may be another machine: the result can then
        be saved, but not run here.
    batch_sizes
        Rows per call that the kernels suit, a number or several; by default 1, 100 and 10,000.
    threads
        Most threads of a call; by default, all CPUs that this process may use.
    log
        Tuning log whose configurations are used, beside those that hbtvm ships.
    dtype, strategies, max_bytes, device, sample, python_steps, explain
        As for `search`.

    Raises
    ------
    ModelError, InputError, TargetError
        If the model, an option or the target is not supported.
    BuildError
        If the code can't be built; also if a configuration from `log` takes too long to build.
    LogError
        If the log can't be read.
    """
    run = compile_run(options)
    recursive = recursive_model(model, run.dtype, run.strategies)
    if recursive is not None:
        refuse_explain(run.explain)
        work = work_of(recursive, run.target, run.sizes_of(True), run.threads, run.sample)
        return Model.from_package(compiled(work, run.log, _Head(run)), run.threads, run.place)
    refuse_sample(run.sample)
    package = _compiled(model, run)
    return Model.from_package(package, run.threads, run.place if package.kernels else None)


def _search(model: Any, options: SearchOptions) -> Search:
    run = search_run(options, model)
    recursive = recursive_model(model, run.dtype, run.strategies)
    if recursive is not None:
        refuse_explain(run.explain)
        return _search_recursive(recursive, run)
    refuse_sample(run.sample)
    graph = graph_of(model, run)
    refuse_columns(graph)
    require_compilers(run.target, linked=not run.on_gpu or run.fleet is not None)
    pieces = pieces_of(graph, run.dtype, run.strategies, run.target)
    view = _reasons(graph, run)
    parts = [*pieces, *([] if view is None else view[1])]
    sizes, started, artifacts = run.sizes_of(False), utc_now(), Artifacts()
    settings = replace(run.settings, artifacts=artifacts)
    machine = None
    if run.fleet is not None:
        # This machine can only rehearse code that it can run.
        machine = fleet.fleet(run.fleet, rehearse=not (run.on_gpu or missing_features(run.target)))
        named = {**settings.stamp, "session": f"rpc:{run.fleet[2]}"}
        settings = replace(settings, stamp=named, batch=max(settings.batch, 2 * machine.devices))
    with Scratch("hbtvm-") as folder:
        ready = prepare(
            parts, run.target, sizes, run.threads, folder, fleet=machine is not None, device=run.device
        )
        groups = groups_of(list(dict.fromkeys(task.group for task in ready.tasks)), ready.same, sizes)
        of_model = {rows: names[: len(pieces)] for rows, names in groups.items()}
        if run.stops_early and not run.on_gpu and machine is None:
            overheads = Overheads(graph, pieces, run.target, run.threads, of_model)
            settings = replace(settings, overheads=overheads)
        result = session.tune(ready.tasks, settings, machine)
    if not any(group.best for group in result.groups.values()):
        raise _failure(result)
    # Pieces that run the same code share a group.
    winners = [result.groups[groups[rows][at]].best for at in range(len(parts)) for rows in sizes]
    records = [*shipped(), *result.history]
    kernels = [
        _chosen(piece, rows, run, records) if best is None else _tuned(best, rows, run, artifacts)
        for (piece, rows), best in zip(itertools.product(parts, sizes), winners, strict=True)
    ]
    provenance, count = result.provenance(settings.seed, started), len(pieces) * len(sizes)
    views = {} if view is None else {_REASONS: _package(*view, kernels[count:], run, provenance)}
    package = _package(graph, pieces, kernels[:count], run, provenance, views=views)
    copies = {}
    if run.target["kind"] == "cuda" and run.fleet is None:
        copies = copies_of(run.device, _row_bytes(graph, pieces), graph.output.n_outputs, sizes)
    tuned = Model.from_package(package, run.threads, run.place)
    if run.fleet is None and not graph.python:
        add_call_times(tuned)
        last = {rows: result.groups[names[-1]].best for rows, names in of_model.items()}
        _log_calls(run.log, result, tuned.package, last)
    other = None
    if not (run.on_gpu or run.fleet or graph.python):
        defaults = [result.groups[groups[rows][at]].default for at in range(len(pieces)) for rows in sizes]
        usual = [
            None if entry is None or entry == best else _tuned(entry, rows, run, artifacts)
            for entry, best, rows in zip(defaults, winners, itertools.cycle(sizes), strict=False)
        ]
        other = untuned(graph, pieces, usual, kernels[:count], run.target, run.threads)
    return Search(tuned, result, copies, untuned=other)


def _search_recursive(model: RecursiveModel, run: SearchRun) -> Search:
    if run.fleet is not None:
        raise InputError("recursive models are tuned on this machine, not on a fleet")
    work = work_of(model, run.target, run.sizes_of(True), run.threads, run.sample)
    package, result = searched(work, run.settings, _Head(run), run.device)
    if package is None:
        raise _failure(result)
    tuned = Model.from_package(package, run.threads, run.place)
    add_call_times(tuned, {rows: {"structures": batch} for rows, batch in work.structures.items()})
    winners = {rows: group.best for rows, group in zip(work.structures, result.groups.values(), strict=True)}
    _log_calls(run.log, result, tuned.package, winners)
    return Search(tuned, result, sample=work.sample)


def _log_calls(
    log: Log | None, result: Result, package: Package, winners: Mapping[int, Entry | None]
) -> None:
    """Append the winners' final records again, with the times of calls."""
    if log is None or result.log_error is not None:
        return
    for call in package.calls:
        best = winners.get(call.rows)
        if best is None or not best.final:
            continue
        finals = [
            record
            for record in result.history
            if is_final(record) and (record.config, record.times) == (best.config, best.times)
        ]
        for record in finals[-1:]:
            with contextlib.suppress(LogError):  # the result does not depend on it
                log.append(replace(record, extra={**record.extra, "calls": dict(call.seconds)}))


@dataclass(frozen=True)
class _Head:
    """Compiles the layers behind a recursive model."""

    run: Run

    def __call__(self, graph: Graph, target: Target, sizes: tuple[int, ...]) -> Package:
        run = replace(self.run, target=target, sizes=sizes, threads=1, log=None, strategies=None)
        return _compiled(graph, run)


def _compiled(model: Any, run: Run) -> Package:
    """Compile a model of rows without a search."""
    graph = graph_of(model, run)
    provenance = {"trials": 0, "started": utc_now()}
    if isinstance(graph.anchor, Columns):
        return _with_python(assemble(graph, [], [], run.target, provenance), graph, run)
    require_compilers(run.target, linked=not run.on_gpu)
    pieces = pieces_of(graph, run.dtype, run.strategies, run.target)
    records: list[Record] = shipped()
    if run.log is not None:
        records += run.log.read().records
    sizes = run.sizes_of(False)
    kernels = [_chosen(piece, rows, run, records) for piece in pieces for rows in sizes]
    return _package(graph, pieces, kernels, run, provenance, limited=run.log is not None)


def _package(
    graph: Graph,
    pieces: Sequence[Piece],
    kernels: Sequence[KernelChoice],
    run: Run,
    provenance: dict[str, Any],
    limited: bool = False,
    views: Mapping[str, Package] = MappingProxyType({}),
) -> Package:
    """Return the package of the pieces' chosen kernels, and of the graph's other outputs.

    `views`: packages of views whose kernels were searched, by name.
    """
    count = len(kernels) // len(pieces)
    parts = [(piece.operands, kernels[i * count : (i + 1) * count]) for i, piece in enumerate(pieces)]
    *stages, (operands, last) = parts
    package = assemble(graph, operands, last, run.target, provenance, stages, limited)
    bare = _bare(run)
    if graph.transform is not None:
        package = replace(package, transform=_compiled(graph.transform, bare))
    if graph.scores is not None:
        package = replace(package, scores=_compiled(graph.scores, bare))
    others = {name: _compiled(view, bare) for name, view in graph.views.items() if name not in views}
    package = replace(package, views={**others, **views}, no_views=graph.no_views)
    return _with_python(package, graph, bare)


def _bare(run: Run) -> Run:
    """Return the run for further outputs of a model, which the names of strategies do not concern."""
    return replace(run, sizes=run.sizes_of(False), strategies=None, sample=None, explain=False)


def _reasons(graph: Graph, run: Run) -> tuple[Graph, list[Piece]] | None:
    """Return the view of contributions and its pieces; None for models without it."""
    if _REASONS not in graph.views:
        return None
    view = graph_of(graph.views[_REASONS], _bare(run))
    pieces = pieces_of(view, run.dtype, None, run.target)
    return view, [replace(piece, title=f"{REASONS_TITLE}{piece.title}") for piece in pieces]


def _with_python(package: Package, graph: Graph, run: Run) -> Package:
    """Return the package with the graph's Python steps, and what is in front of them."""
    lead = None if graph.lead is None else _compiled(graph.lead, run)
    return replace(package, python=graph.python, lead=lead)


def _chosen(piece: Piece, rows: int, run: Run, records: Iterable[Record]) -> KernelChoice:
    workload = workload_of(piece.operands[0], rows, run.threads)
    choice = choose(records, piece.strategies, workload, run.target)
    return KernelChoice(rows, choice.strategy, choice.config, choice.seconds, run.threads, choice.origin)


def _tuned(best: Entry, rows: int, run: Run, artifacts: Artifacts) -> KernelChoice:
    library, linked = artifacts.library(best.task, best.config), artifacts.object(best.task, best.config)
    return KernelChoice(
        rows, best.task.strategy, best.config, best.time, run.threads, "tuned", library, linked
    )


def _row_bytes(graph: Graph, pieces: Sequence[Piece]) -> int:
    """Return the bytes of a row that is copied to a GPU; stages read all columns in float64."""
    if graph.stages:
        return 8 * (len(graph.feeds) or graph.input.n_features)
    forest = pieces[-1].operands[0]
    return forest.n_features * np.dtype(forest.row_dtype).itemsize


def _failure(result: Result) -> BaseException:
    """Return the error of a search without a result."""
    if result.log_error is not None:
        return result.log_error
    if result.interrupted:
        return KeyboardInterrupt()
    if result.stopped == "devices":
        return DeviceError(result.warnings[0])
    examples = {kind: text for group in result.groups.values() for kind, text in group.example.items()}
    failures = "; ".join(f"{kind}: {text}" for kind, text in examples.items())
    return BuildError(
        f"no candidate worked out of {result.trials} ({failures or 'the time budget ended first'})"
    )
