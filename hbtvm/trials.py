"""Build candidates here, measure them there: `export`, `measure` and `add_times`.

A machine with a compiler builds a model's candidates into an archive. The machine that runs them needs only
numpy and, for a GPU, its driver to measure them. A tuning log takes the times, for `hbtvm.compile` to choose
from or for a second round.

Examples
--------
>>> from hbtvm import trials
>>> sm_90 = {"kind": "cuda", "arch": "sm_90", "cores": 132}
>>> trials.export("model.pkl", "trials.tar", target=sm_90, trials=600)  # doctest: +SKIP
>>> trials.measure("trials.tar", "times.jsonl", time_budget=540)  # doctest: +SKIP
>>> trials.add_times("trials.tar", "times.jsonl", log="team.jsonl")  # doctest: +SKIP
>>> hbtvm.compile("model.pkl", target=sm_90, log="team.jsonl")  # doctest: +SKIP
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm import checks
from hbtvm.errors import BuildError, InputError, InputTypeError
from hbtvm.logs.store import Log
from hbtvm.measuring import archive, times
from hbtvm.measuring.run import Outcome, Progress, measure
from hbtvm.options import SearchOptions

if TYPE_CHECKING:
    from hbtvm.compiler.candidates import exporting

__all__ = ["Added", "Outcome", "Progress", "add_times", "export", "measure"]


def export(
    model: Any,
    path: str | os.PathLike[str],
    *,
    progress: exporting.Progress | None = None,
    **options: Any,
) -> exporting.Export:
    """Build a model's candidates into an archive for another machine to measure.

    Parameters
    ----------
    path
        The archive to write.
    target
        The machine that measures. For a GPU name ``cores``, its multiprocessors: schedules depend on them.
    threads
        Threads of a call there; by default, all CPUs that this process may use.
    trials
        Candidates to build; by default 240. Candidates in the log do not count, and are not built again.
    log
        Tuning log to learn from: after `add_times`, the same call plans a second round.
    progress
        Called after each candidate.
    options
        As of `hbtvm.search`; those of measuring (``time_budget``, ``rpc_tracker``, ``rpc_key``, ``sample``)
        are refused. Errors are those of `hbtvm.search`, too.

    Returns
    -------
    Counts of the candidates that were built, left out or failed.

    Raises
    ------
    BuildError
        If none could be built.
    """
    # The machine that measures has no compiler.
    from hbtvm.compiler.building.cpu import require_compilers
    from hbtvm.compiler.candidates import exporting
    from hbtvm.compiler.candidates.prepared import prepare
    from hbtvm.compiler.pieces import pieces_of
    from hbtvm.run import export_run, graph_for, read_model, recursive_model, refuse_columns
    from hbtvm.tuning import session
    from hbtvm.tuning.measuring.scratch import Scratch

    if progress is not None and not callable(progress):
        raise InputTypeError(f"progress is {checks.kind(progress)}; expected a function")
    try:
        search_options = SearchOptions(**options)
    except TypeError as error:
        raise TypeError(str(error).replace("SearchOptions.__init__", "export")) from None
    run = export_run(search_options)
    if recursive_model(model, run.dtype, run.strategies) is not None:
        raise InputError("candidates of recursive models can't be exported; tune them where they run.")
    graph = graph_for(run.target, read_model(model, run.max_bytes, run.keep), run.dtype, run.strategies)
    refuse_columns(graph)
    require_compilers(run.target, linked=not run.on_gpu)
    pieces = pieces_of(graph, run.dtype, run.strategies, run.target)
    with Scratch("hbtvm-") as folder:
        ready = prepare(pieces, run.target, run.sizes_of(False), run.threads, folder)
        planned = session.plan(ready.tasks, run.settings)
        if not planned:
            where = "the log" if run.log is None else run.log.path
            raise InputError(f"{where} has all candidates of this model already.")
        done = exporting.export(Path(path), ready, planned, run.target, run.threads, graph.model, progress)
    if not done.built:
        if done.stopped:
            raise KeyboardInterrupt
        examples = "; ".join(f"{kind}: {text}" for kind, text in done.examples.items())
        raise BuildError(f"none of {done.planned} candidates could be built ({examples}).")
    return done


@dataclass(frozen=True)
class Added:
    """The records that a log received.

    Attributes
    ----------
    records
        Records added; `failed` of them failed.
    known
        Records that the log already had.
    skipped
        Unreadable lines.
    notes
        A sentence for each file with unreadable lines.
    """

    records: int
    failed: int
    known: int
    skipped: int
    notes: tuple[str, ...] = ()


def add_times(
    path: str | os.PathLike[str],
    *measured: str | os.PathLike[str],
    log: Log | str | os.PathLike[str],
) -> Added:
    """Add the measured times of an archive's candidates to a tuning log, each record once.

    Parameters
    ----------
    path
        The archive.
    measured
        Files of times that `measure` wrote.

    Raises
    ------
    PackageError
        If the archive is missing or damaged.
    InputError, FileError
        If a file of times can't be read, or belongs to another archive.
    LogError
        If the log can't be read or written.
    """
    trials = archive.read(Path(path))
    files = [times.read(Path(name), trials) for name in measured]
    records = [record for file in files for record in file.records(trials)]
    store = log if isinstance(log, Log) else Log(log)
    known = {record.to_line() for record in store.read().records}
    new = [record for record in records if record.to_line() not in known]
    for record in new:
        store.append(record)
    return Added(
        len(new),
        sum(record.error is not None for record in new),
        len(records) - len(new),
        sum(file.skipped for file in files),
        tuple(file.note for file in files if file.note),
    )
