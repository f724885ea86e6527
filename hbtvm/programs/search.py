"""Search for the fastest schedule of a tensor program."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hbtvm.compiler.assemble import stamp
from hbtvm.compiler.building.cpu import require_compilers
from hbtvm.compiler.features.loop_nest import loop_nest
from hbtvm.cost_model.encoding.nest import Nest
from hbtvm.errors import BuildError, InputError
from hbtvm.logs.ranking import ranking
from hbtvm.logs.record import Record, canonical
from hbtvm.logs.store import Log
from hbtvm.logs.targets import target_key
from hbtvm.programs.built import Best
from hbtvm.programs.show import Line
from hbtvm.programs.task import TensorTask, applied
from hbtvm.programs.worker import PROGRAM, write
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.tuning.choices import ChoiceError, assembled
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.measuring.messages import Timing
from hbtvm.tuning.measuring.pool import PoolOptions
from hbtvm.tuning.measuring.scratch import Scratch
from hbtvm.tuning.measuring.worker_process import Limits
from hbtvm.tuning.progress import Progress
from hbtvm.tuning.result import Entry, Result
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from hbtvm.tuning.task import Describe, Task


def search(
    task: TensorTask,
    *,
    trials: int = 256,
    log: Log | str | os.PathLike[str] | None = None,
    time_budget: float | None = None,
    seed: int = 0,
    transfer: bool | Sequence[Log | str | os.PathLike[str]] = True,
    preset: str = "default",
    progress: bool | Progress = True,
    timeout: float = 10.0,
    batch: int = 8,
) -> Best:
    """Search for the fastest schedule of a tensor program.

    Worker processes build, check and time candidates: a crash, a timeout or a wrong output fails only that
    candidate. Ctrl-C stops the search, which returns the best so far; the log has every result.

    Parameters
    ----------
    task
        The program, from `tensor_task`.
    trials
        Candidates to try, those in the log included.
    log
        A file that receives every result at once. A search with the same log resumes: no candidate is
        measured again.
    time_budget
        Seconds for the search; None for no limit.
    seed
        The same seed, log and times give the same candidates.
    transfer
        Whether to learn from the log's records of other programs; or further logs to learn from, too.
    preset
        How to search: ``"default"``, or another name in `hbtvm.tuning.choices.PRESETS`.
    progress
        Whether to show a line of progress on the standard error, or a function that gets each
        `hbtvm.tuning.progress.Trial`.
    timeout
        Seconds after which a measurement counts as failed.
    batch
        Candidates planned and built at a time.

    Raises
    ------
    InputError
        If an option is invalid, or `apply` can't be sent to worker processes.
    LogError
        If a log can't be read.
    BuildError
        If there is no C compiler, or every candidate failed; the message has an example of each failure.
    KeyboardInterrupt
        If it is interrupted before any candidate ran.
    """
    if type(trials) is not int or trials < 1:
        raise InputError(f"trials must be a positive number, not {trials!r}")
    if time_budget is not None and not 0 < time_budget < math.inf:
        raise InputError(f"time_budget must be a positive number of seconds, not {time_budget!r}")
    if not 0 < timeout < math.inf or batch < 1:
        raise InputError("timeout and batch must be positive")
    try:
        choices = assembled(preset)
    except ChoiceError as error:
        raise InputError(str(error)) from None
    require_compilers(task.target, linked=True)
    kept = _log(log)
    known = [] if kept is None or not kept.path.exists() else kept.read().records
    logs = [] if isinstance(transfer, bool) else [_log(path) for path in transfer]
    others = [record for other in logs if other is not None for record in other.read().records]
    with Scratch("programs-") as folder:
        write(task, folder)
        line = Line(task.name, trials) if progress is True else None
        settings = Settings(
            trials=trials,
            time_budget=time_budget,
            log=kept,
            seed=seed,
            transfer=transfer is not False,
            choices=choices,
            batch=batch,
            progress=line if line is not None else (None if isinstance(progress, bool) else progress),
            describe=None if choices.lowers else _spaces([*known, *others]),
            experience=others,
            pool=PoolOptions(limits=Limits(measure=timeout)),
            timing=Timing(min_repeat=0.01, patience=2.0),
            final=FinalOptions(finalists=4, rounds=7),
            stamp=stamp(),
        )
        try:
            result = tune(_tasks(task, folder), settings)
        finally:
            if line is not None:
                line.close()
    return _best(task, result, known)


def _log(log: Log | str | os.PathLike[str] | None) -> Log | None:
    return log if log is None or isinstance(log, Log) else Log(Path(log))


def _tasks(task: TensorTask, folder: Path) -> list[Task]:
    """Return a tuning task for each space."""
    definition = task.definition

    def describe(name: str) -> Describe:
        roles = task.strategies[name].roles

        def nest(config: Config) -> Nest:
            return loop_nest(applied(definition, roles, config)[0], {})

        return nest

    return [
        Task(
            name=f"{task.name}, {name}",
            workload=task.workload,
            target=task.target,
            strategy=name,
            group=task.name,
            space=strategy.space,
            describe=describe(name),
            program=PROGRAM,
            payload={"folder": str(folder), "strategy": name},
            initial=strategy.initial,
        )
        for name, strategy in task.strategies.items()
    ]


def _spaces(records: Sequence[Record]) -> Callable[[Record], tuple[Describe, Space] | None]:
    """Return what describes other programs' records: a space of the choices that their records have."""
    choices: dict[tuple[str, str, str], dict[str, set[Any]]] = {}
    for record in records:
        known = choices.setdefault(record.task, {})
        for name, choice in record.config.items():
            known.setdefault(name, set()).add(choice)

    def none(config: Config) -> Nest:
        raise NotImplementedError("other programs' loops are unknown")

    def describe(record: Record) -> tuple[Describe, Space] | None:
        known = choices.get(record.task)
        if not known:
            return None
        knobs = (Knob(name, tuple(sorted(values, key=str))) for name, values in known.items())
        return none, Space(tuple(knobs))

    return describe


def _best(task: TensorTask, result: Result, known: Sequence[Record]) -> Best:
    """Return the winner.

    Raises `BuildError` if every candidate failed, `KeyboardInterrupt` if none was tried.
    """
    for warning in result.warnings:
        print(f"{task.name}: {warning}", file=sys.stderr)
    group = result.groups[task.name]
    if result.log_error is not None:
        raise result.log_error
    if group.best is None:
        if result.interrupted:
            raise KeyboardInterrupt
        examples = "; ".join(f"{kind}: {group.example[kind]}" for kind in group.failures)
        raise BuildError(f"no candidate of {task.name} ran correctly ({examples or 'no trial was made'})")
    entry: Entry = group.best
    strategy, config = entry.task.strategy, dict(entry.config)
    record = next(
        record
        for record in reversed([*known, *result.history])
        if record.times and (record.strategy, record.config) == (strategy, config)
        and record.workload == task.workload
    )  # fmt: skip
    return Best(task, strategy, config, entry.time, record, result)


def best(task: TensorTask, log: Log | str | os.PathLike[str]) -> Best:
    """Return the fastest schedule of a log, without a search.

    Raises `InputError` if the log has no working candidate of the program on the target; `LogError` if it
    can't be read.
    """
    kept = _log(log)
    assert kept is not None
    records = kept.read().records if kept.path.exists() else []
    mine = [
        record
        for record in records
        if record.strategy in task.strategies
        and record.workload_key == canonical(task.workload)
        and record.target_key == target_key(task.target)
        and task.strategies[record.strategy].space.contains(dict(record.config))
    ]
    ranked = ranking(mine)
    if not ranked:
        raise InputError(f"{kept.path}: it has no record of {task.name} on this target; search first")
    record = ranked[0]
    return Best(task, record.strategy, dict(record.config), record.cost, record, None)
