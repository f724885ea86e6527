"""Prediction of a folder of files into a folder of files, each complete or absent.

An interrupted run can resume: the file ``_hbtvm.json`` in the output folder records the package, the options
and the input files, and each file of predictions appears once it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from hbtvm.atomic import TEMPORARY, clear, locked, make_folder, replacing
from hbtvm.errors import InputError
from hbtvm.runtime.model import load
from hbtvm.streaming.places import check_apart, check_outputs, folds_case, output_of
from hbtvm.streaming.predicting import Progress, Scored, no_progress, score, write
from hbtvm.streaming.reading import SUFFIXES, Dataset
from hbtvm.streaming.scorer import Scorer

NOTES = "_hbtvm.json"
_FORMAT, _VERSION = "hbtvm-predictions", 1
_MOST_NOTES = 1 << 28  # maximal bytes of notes to read

_LOCK = ".hbtvm.lock"


class DatasetError(InputError):
    """Existing predictions belong to another job."""


@dataclass(frozen=True)
class Job:
    """The input and output of a run."""

    # `package`, `data`, `out`: the package's path or content, the folder of rows, and the folder of
    # predictions
    package: Path | bytes
    data: Path
    out: Path
    # `output`, `keep`, `drop`: as for `Scorer`
    output: str | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    def notes(self, files: Sequence[str]) -> dict[str, Any]:
        """Return the notes that identify the predictions."""
        content = self.package if isinstance(self.package, bytes) else self.package.read_bytes()
        stats = {name: (self.data / name).stat() for name in files}
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "package": hashlib.sha256(content).hexdigest(),
            "output": self.output,
            "keep": list(self.keep),
            "drop": list(self.drop),
            "files": {name: [status.st_size, status.st_mtime_ns] for name, status in stats.items()},
        }


def predict(
    job: Job,
    threads: int | None = None,
    progress: Progress = no_progress,
    overwrite: bool = False,
    rows: Dataset | None = None,
) -> int:
    """Predict all files that have no predictions yet.

    `threads`: number of batches predicted concurrently; None for the number of CPUs.
    `progress`: called with the rows and files done since the last call.
    `overwrite`: replace predictions of another package, other options or other rows.
    `rows`: the listed files of the job's folder, if known.
    Raises `DatasetError` if existing predictions are of another package, other options or other rows. Raises
    `InputError` if rows don't fit the model or can't be read; if the two folders overlap, two files'
    predictions would have the same name, or another process writes to the folder. Raises `OSError` if
    predictions can't be written. Predictions of earlier files remain.
    """
    check_apart(job.data, job.out)
    rows = Dataset(job.data) if rows is None else rows
    # One thread per piece: concurrent pieces use all CPUs.
    workers = threads or len(os.sched_getaffinity(0))
    scorer = Scorer(load(job.package, threads=1), rows.schema, job.output, keep=job.keep, drop=job.drop)
    outputs = {file: output_of(file) for file in rows.files}
    check_outputs(outputs.items(), False)
    make_folder(job.out)
    lock = job.out / _LOCK
    with locked(lock, f"{job.out}: another hbtvm predict writes to this folder."):
        if folds_case(lock):
            check_outputs(outputs.items(), True)
        for file, output in outputs.items():
            if (job.out / output).exists() and (job.out / output).samefile(rows.folder / file):
                raise InputError(f"{job.out / output}: the predictions would replace the rows.")
        _note(job, job.notes(rows.files), overwrite)
        # The lock ensures that no other run writes these.
        for folder in {job.out, *((job.out / output).parent for output in outputs.values())}:
            clear(folder)
        missing = [file for file in rows.files if not (job.out / outputs[file]).exists()]
        progress(0, len(rows.files) - len(missing))
        with ThreadPoolExecutor(workers) as pool:
            running = _ahead(pool, 2 * workers, _tasks(rows, missing, scorer))
            with contextlib.closing(running):
                done = 0
                for file, scored in itertools.groupby(running, key=itemgetter(0)):
                    results = (future.result() for _, future in scored)
                    source = str(rows.folder / file)
                    done += write(job.out / outputs[file], scorer.schema, results, source, progress=progress)
                    progress(0, 1)
    return done


_Task = tuple[str, Callable[[], Scored]]  # a file, and a function that predicts some of its rows


def _tasks(rows: Dataset, files: Sequence[str], scorer: Scorer) -> Iterator[_Task]:
    """Yield the tasks in order, at least one per file."""
    for file in files:
        yield file, Scored
        try:
            for piece in rows.source(file).pieces(scorer.columns):
                yield file, partial(score, scorer, piece)
        except InputError as error:
            # Earlier rows are predicted first.
            yield file, partial(Scored, (), error)
            return


def _ahead(
    pool: ThreadPoolExecutor, count: int, tasks: Iterable[_Task]
) -> Generator[tuple[str, Future[Scored]]]:
    """Submit some tasks before the caller requests them."""
    running: deque[tuple[str, Future[Scored]]] = deque()
    try:
        for file, task in tasks:
            running.append((file, pool.submit(task)))
            if len(running) > count:
                yield running.popleft()
        while running:
            yield running.popleft()
    finally:
        for _, pending in running:
            pending.cancel()


def _note(job: Job, notes: Mapping[str, Any], overwrite: bool) -> None:
    """Compare the folder's notes with this job's; write them if there are none.

    If the job replaces other predictions, remove those that the old notes list and those whose names this job
    needs.
    """
    path = job.out / NOTES
    noted = _noted(path)
    if noted == notes:
        return
    if noted is not None:
        if not overwrite:
            raise DatasetError(f"{job.out}: {_difference(noted, notes)}; --overwrite replaces what is there.")
    elif not overwrite and any(
        name != _LOCK and not TEMPORARY.fullmatch(name) for name in os.listdir(job.out)
    ):
        raise DatasetError(f"{job.out}: this folder has other files; name a new or empty folder.")
    for name in {*notes["files"], *(noted or notes)["files"]}:
        output = job.out / output_of(name)
        # Links may lead outside the folder.
        if output.parent.resolve().is_relative_to(job.out.resolve()):
            output.unlink(missing_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(notes, indent=1))


def _noted(path: Path) -> dict[str, Any] | None:
    """Read notes; None if there are none.

    Raises `DatasetError` if they do not have the form of `Job.notes`, or name files outside their folder.
    """
    try:
        if not path.exists():
            return None
        if not path.is_file() or path.stat().st_size > _MOST_NOTES:
            raise ValueError
        noted = json.loads(path.read_bytes())
        _check_notes(noted)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DatasetError(
            f"{path.parent}: its {NOTES} is damaged or of another version, so its predictions cannot be "
            "identified; name another folder, or empty this folder."
        ) from None
    return dict(noted)


def _check_notes(noted: Any) -> None:
    """Raise an error for notes that do not have the form of `Job.notes`."""
    if type(noted) is not dict or (noted["format"], noted["version"]) != (_FORMAT, _VERSION):
        raise ValueError
    if [type(noted[name]) for name in ("keep", "drop", "files")] != [list, list, dict]:
        raise TypeError
    texts = [noted["package"], *noted["keep"], *noted["drop"]]
    texts += [] if noted["output"] is None else [noted["output"]]
    if not all(type(text) is str for text in texts):
        raise TypeError
    for name, stamp in noted["files"].items():
        path = Path(name)
        plain = str(path) == name and not path.is_absolute() and ".." not in path.parts and "\0" not in name
        if not plain or path.suffix.lower() not in SUFFIXES:
            raise ValueError
        if type(stamp) is not list or [type(number) for number in stamp] != [int, int]:
            raise TypeError


def _difference(noted: Mapping[str, Any], notes: Mapping[str, Any]) -> str:
    """Describe how existing predictions differ from the requested predictions."""
    if noted["package"] != notes["package"]:
        return "the predictions in it are of another package"
    for name in ("output", "keep", "drop"):
        if noted[name] != notes[name]:
            return f"the predictions in it were made with another --{name}"
    changed = [name for name, state in notes["files"].items() if noted["files"].get(name, state) != state]
    if changed:
        return f"{changed[0]} has changed since its predictions were made"
    return "the files of rows differ from those of its predictions"
