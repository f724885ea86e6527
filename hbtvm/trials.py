"""Build candidates here, measure them there: `export`, `measure` and `add_times`.

A machine with a compiler builds a model's candidates into one archive; a machine that runs them, with numpy
and a GPU's driver and nothing else, measures; and a tuning log takes what was found, for `hbtvm.compile` to
choose from, or for a second round.

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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm import checks
from hbtvm.errors import BuildError, InputError, InputTypeError
from hbtvm.logs.store import Log
from hbtvm.measuring import archive, times
from hbtvm.measuring.run import Outcome, Progress, measure

if TYPE_CHECKING:
    from hbtvm.compiler.candidates import exporting
    from hbtvm.reading import Dtype

TRIALS = 240
"""Candidates of an archive, unless told otherwise."""

__all__ = ["Added", "Outcome", "Progress", "add_times", "export", "measure"]


def export(
    model: Any,
    path: str | os.PathLike[str],
    *,
    target: str | dict[str, Any] = "cpu",
    batch_sizes: int | Sequence[int] | None = None,
    threads: int | None = None,
    trials: int | None = None,
    log: Log | str | os.PathLike[str] | None = None,
    transfer: bool = True,
    seed: int = 0,
    dtype: Dtype = "float32",
    strategies: str | Sequence[str] | None = None,
    max_bytes: int | None = None,
    preset: str = "default",
    explorer: str | None = None,
    cost_model: str | None = None,
    features: str | None = None,
    acquisition: str | None = None,
    diversity: int | None = None,
    epsilon: float | None = None,
    device: str | int | None = None,
    progress: exporting.Progress | None = None,
) -> exporting.Export:
    """Build a model's candidates into an archive for another machine to measure.

    Parameters
    ----------
    path
        The archive to write.
    target
        The machine that measures. For a GPU name ``cores``, its multiprocessors, as schedules depend on them.
    threads
        Threads of a call there; by default, all CPUs that this process may use.
    trials
        Candidates to build; 240 by default. Those that the log has do not count, and are not built again.
    log
        Tuning log to learn from: after `add_times`, the same call plans a second round.
    progress
        Called after each candidate.

    Other parameters, and errors, are those of `hbtvm.search`.

    Returns
    -------
    What became of the candidates.

    Raises
    ------
    BuildError
        If none could be built.
    """
    # The compiler is for the machine that builds.
    from hbtvm.compiler.building.cpu import require_compilers
    from hbtvm.compiler.candidates import exporting, tasks
    from hbtvm.compiler.candidates.prepared import prepare
    from hbtvm.compiler.pieces import pieces_of
    from hbtvm.compiler.recursion.tree_gru import make_scorer
    from hbtvm.options import (
        BATCH_SIZES,
        common_options,
        search_choices,
        search_limits,
        strategy_names,
        tuning_log,
    )
    from hbtvm.reading import graph_for, read_model, recursive_model, refuse_columns
    from hbtvm.tuning import session
    from hbtvm.tuning.measuring.scratch import Scratch

    trials, _, seed = search_limits(TRIALS if trials is None else trials, None, seed)
    checks.flag("transfer", transfer)
    if progress is not None and not callable(progress):
        raise InputTypeError(f"progress is {checks.kind(progress)}; expected a function of one export")
    kept, names = tuning_log(log), strategy_names(strategies)
    machine, sizes, threads, _ = common_options(
        target, device, BATCH_SIZES if batch_sizes is None else batch_sizes, threads, dtype
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
    if recursive_model(model, dtype, names) is not None:
        raise InputError("candidates of recursive models can't be exported; tune them where they run.")
    graph = graph_for(machine, read_model(model, max_bytes), dtype, names)
    refuse_columns(graph)
    require_compilers(machine, linked=machine["kind"] != "cuda")
    with Scratch("hbtvm-") as folder:
        ready = prepare(pieces_of(graph, dtype, names, machine), machine, sizes, threads, folder)
        planned = session.plan(
            ready.tasks,
            trials=trials,
            log=kept,
            seed=seed,
            transfer=transfer,
            choices=choices,
            describe=tasks.describe,
            options=session.Options(make_scorer=make_scorer),
        )
        if not planned:
            raise InputError(f"{getattr(kept, 'path', 'the log')} has all candidates of this model already.")
        done = exporting.export(Path(path), ready, planned, machine, threads, graph.model, progress)
    if not done.built:
        if done.stopped:
            raise KeyboardInterrupt
        told = "; ".join(f"{kind}: {text}" for kind, text in done.examples.items())
        raise BuildError(f"none of {done.planned} candidates could be built ({told}).")
    return done


@dataclass(frozen=True)
class Added:
    """What a log got.

    Attributes
    ----------
    records
        Records added; `failed` of them failed.
    known
        Records that the log had already.
    skipped
        Lines that could not be read.
    notes
        A sentence on these lines, for each file that has some.
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
    """Add what was measured of an archive's candidates to a tuning log, each record once.

    Parameters
    ----------
    path
        The archive.
    measured
        Files of times that `measure` wrote of it.

    Raises
    ------
    PackageError
        If the archive is damaged, or no such archive.
    InputError, FileError
        If a file of times can't be read, or is of another archive.
    LogError
        If the log can't be read or written.
    """
    trials = archive.read(Path(path))
    found = [times.read(Path(one), trials) for one in measured]
    records = [record for one in found for record in one.records(trials)]
    kept = log if isinstance(log, Log) else Log(log)
    known = {record.to_line() for record in kept.read().records}
    new = [record for record in records if record.to_line() not in known]
    for record in new:
        kept.append(record)
    return Added(
        len(new),
        sum(record.error is not None for record in new),
        len(records) - len(new),
        sum(one.skipped for one in found),
        tuple(one.note for one in found if one.note),
    )
