"""Build candidates that another machine measures, and pack them (see `hbtvm.measuring.archive`)."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm import codec
from hbtvm.compiler.assemble import stamp
from hbtvm.compiler.building.cuda import read_code
from hbtvm.compiler.candidates.prepared import Prepared, Work
from hbtvm.compiler.candidates.program import SAMPLE, Study, read_study
from hbtvm.compiler.candidates.samples import tolerance_of
from hbtvm.compiler.entries import entry_of
from hbtvm.logs.record import utc_now
from hbtvm.measuring import archive
from hbtvm.measuring.archive import MOST_ROWS, Members
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.measuring.messages import Candidate, Failure
from hbtvm.tuning.measuring.pool import Pool
from hbtvm.tuning.task import Task

_AT_ONCE = 4  # candidates per builder in a batch of builds


@dataclass
class Export:
    """The numbers of candidates that an export built, left out, or failed to build.

    Attributes
    ----------
    planned, built
        Candidates chosen, and those in the archive.
    twins
        Candidates left out because the archive has the same program.
    failures
        Failed builds by kind, with an example of each kind in `examples`.
    stopped
        Whether it was interrupted; the archive then has the candidates built so far.
    """

    planned: int
    built: int = 0
    twins: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    stopped: bool = False

    @property
    def done(self) -> int:
        """Candidates that are done."""
        return self.built + self.twins + sum(self.failures.values())


Progress = Callable[[Export], None]


def export(
    path: Path,
    prepared: Prepared,
    planned: Sequence[tuple[Task, Config]],
    target: Target,
    threads: int,
    model: str,
    progress: Progress | None = None,
) -> Export:
    """Build candidates on all cores, and write them into an archive.

    On a GPU, kernels that spill registers are left out: they were never among the fastest.

    `planned`: candidates in the order of measurement.
    `model`: the model's name.
    Returns the numbers of candidates; no archive is written if none could be built. Raises `PackageError` if
    the archive can't be written.
    """
    result, members = Export(len(planned)), Members()
    owner = {task.name: number for number, work in enumerate(prepared.works) for task in work.tasks}
    studies = [read_study(work.folder) for work in prepared.works]
    numbers = {task.name: number for number, task in enumerate(prepared.tasks)}
    prints: set[tuple[str, str]] = set()
    candidates: list[dict[str, Any]] = []
    try:
        with contextlib.closing(_built(planned)) as built:
            for task, config, library in built:
                if isinstance(library, Failure):
                    result.failures[library.kind] += 1
                    result.examples.setdefault(library.kind, library.message)
                elif (task.name, library.fingerprint) in prints:
                    result.twins += 1
                else:
                    if library.fingerprint is not None:
                        prints.add((task.name, library.fingerprint))
                    kernel = _kernel(prepared.works[owner[task.name]], task, config, library, members)
                    seconds = round(library.seconds, 4)
                    candidates.append(
                        {"task": numbers[task.name], "kernel": kernel, "build_seconds": seconds}
                    )
                    result.built += 1
                if progress is not None:
                    progress(result)
    except KeyboardInterrupt:
        result.stopped = True
    if not candidates:
        return result
    on_gpu = target["kind"] == "cuda"
    archive.write(
        path,
        members,
        **stamp(),
        date=utc_now(),
        model=model,
        target=dict(target),
        threads=threads,
        executor=None if on_gpu else members.add(studies[0].executor, "kernels"),
        data=[_data(work, study, members) for work, study in zip(prepared.works, studies, strict=True)],
        tasks=[
            {
                "name": task.name,
                "group": task.group,
                "strategy": task.strategy,
                "workload": dict(task.workload),
                "data": owner[task.name],
            }
            for task in prepared.tasks
        ],
        candidates=candidates,
    )
    return result


def _built(
    planned: Sequence[tuple[Task, Config]],
) -> Generator[tuple[Task, Config, BuiltLibrary | Failure]]:
    """Build candidates in processes; a library exists until the next iteration."""
    jobs = [Candidate(task.program, {**task.payload, "spills": False}, config) for task, config in planned]
    with Pool([jobs[0].program]) as pool:
        step = _AT_ONCE * pool.builders
        for start in range(0, len(jobs), step):
            libraries = pool.build(jobs[start : start + step], math.inf)
            for (task, config), library in zip(planned[start : start + step], libraries, strict=True):
                assert library is not None  # without a limit of time all are built
                yield task, config, library
                if isinstance(library, BuiltLibrary):
                    pool.discard(library)


def _kernel(
    work: Work, task: Task, config: Config, library: BuiltLibrary, members: Members
) -> dict[str, Any]:
    """Describe a candidate as packages describe kernels, and add its code and tables to the members."""
    forest, strategy = work.piece.operands[0], work.piece.strategies[task.strategy]
    workload: Any = task.workload
    if task.target["kind"] == "cuda":
        code, launch = read_code(library.path)
        entry = entry_of(forest, strategy, workload, config, code, launch)
    else:
        entry = entry_of(forest, strategy, workload, config, Path(library.path).read_bytes())
    return codec.write(replace(entry, threads=int(workload.get("threads", 1))), members.add)


def _data(work: Work, study: Study, members: Members) -> dict[str, Any]:
    """Rows to time, and the expected sums of the first rows."""
    operand = work.piece.operands[0]
    sample: np.ndarray = np.load(work.folder / SAMPLE.format(dtype=operand.row_dtype), mmap_mode="r")
    expected = study.expected[operand.row_dtype]
    rows = np.ascontiguousarray(sample[: max(MOST_ROWS, len(expected))])
    return {
        "rows": members.add(rows, "rows"),
        "expected": members.add(expected, "rows"),
        "tolerance": tolerance_of(operand.value_dtype, study.scale),
    }
