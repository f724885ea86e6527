"""A folder of files in, a folder of predictions out: file by file, each whole or not there.

What was begun is gone on with: a file ``_hbtvm.json`` in the folder of predictions says of what package,
options and files they are, and a file of predictions appears under its name once it is complete.
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

import pyarrow as pa

from hbtvm.errors import InputError
from hbtvm.runtime.model import load
from hbtvm.streaming.reading import Dataset, Piece
from hbtvm.streaming.scorer import Scorer
from hbtvm.streaming.writing import appearing, writing

NOTES = "_hbtvm.json"
_FORMAT, _VERSION = "hbtvm-predictions", 1

_GROUP = 1 << 16
"""Rows that are written at a time at least, where a file has as many."""

Told = Callable[[int, int], None]
"""Takes the rows and the files done since it was called last."""


class DatasetError(InputError):
    """Predictions that are there already are of something else."""


@dataclass(frozen=True)
class Job:
    """What is predicted, and where it goes.

    Attributes
    ----------
    package, data, out
        The package, the folder of rows, and the folder of predictions.
    output, keep, drop
        As of `Scorer`.
    """

    package: Path
    data: Path
    out: Path
    output: str | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    def notes(self, files: Sequence[str]) -> dict[str, Any]:
        """What is noted beside predictions: of what they are."""
        stats = {name: (self.data / name).stat() for name in files}
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "package": hashlib.sha256(self.package.read_bytes()).hexdigest(),
            "output": self.output,
            "keep": list(self.keep),
            "drop": list(self.drop),
            "files": {name: [one.st_size, one.st_mtime_ns] for name, one in stats.items()},
        }


def predict(job: Job, threads: int | None = None, told: Told | None = None, overwrite: bool = False) -> int:
    """Predict for all files that have no predictions yet.

    Parameters
    ----------
    threads
        Batches that are predicted at the same time; None for as many as there are CPUs.
    told
        Called as predictions are made.
    overwrite
        Whether what is there of another package, other options or other rows is replaced.

    Returns
    -------
    Rows predicted by this call.

    Raises
    ------
    DatasetError
        If what is there is of another package, other options or other rows.
    InputError
        If rows don't fit the model, or can't be read.
    OSError
        If predictions can't be written. Those of files before are there then.
    """
    rows = Dataset(job.data)
    # Pieces are predicted side by side, each by one thread, which shares all of the work.
    workers = threads or len(os.sched_getaffinity(0))
    scorer = Scorer(load(job.package, threads=1), rows.schema, job.output, keep=job.keep, drop=job.drop)
    _note(job, job.notes(rows.files), overwrite)
    tell = told or (lambda rows, files: None)
    done = 0
    missing = []
    for file in rows.files:
        if (job.out / Path(file).with_suffix(".parquet")).exists():
            tell(0, 1)
        else:
            missing.append(file)
    with ThreadPoolExecutor(workers) as pool:
        begun = _ahead(pool, 2 * workers, _tasks(rows, missing, scorer))
        with contextlib.closing(begun):
            for file, scored in itertools.groupby(begun, key=itemgetter(0)):
                done += _file(job, file, scorer.schema, (future for _, future in scored), tell)
                tell(0, 1)
    return done


@dataclass(frozen=True)
class _Scored:
    """Predictions of a piece.

    Attributes
    ----------
    batches
        In order.
    error
        Why there are no more.
    refused
        Whether that is the model's.
    """

    batches: Sequence[pa.RecordBatch] = ()
    error: InputError | None = None
    refused: bool = False


_Task = tuple[str, Callable[[], _Scored]]
"""A file, and what predicts some of its rows."""


def _tasks(rows: Dataset, files: Sequence[str], scorer: Scorer) -> Iterator[_Task]:
    """What is to be done, in order; something for each file."""
    for file in files:
        yield file, _Scored
        try:
            for piece in rows.pieces(file, scorer.columns):
                yield file, partial(_score, scorer, piece)
        except InputError as error:
            # Rows before these are predicted first.
            yield file, partial(_Scored, (), error)
            return


def _score(scorer: Scorer, piece: Piece) -> _Scored:
    made: list[pa.RecordBatch] = []
    try:
        for batch in piece():
            try:
                made.append(scorer(batch))
            except InputError as error:
                return _Scored(made, error, True)
    except InputError as error:
        return _Scored(made, error)
    return _Scored(made)


def _ahead(
    pool: ThreadPoolExecutor, count: int, tasks: Iterable[_Task]
) -> Generator[tuple[str, Future[_Scored]]]:
    """Begin some tasks before they are asked for."""
    begun: deque[tuple[str, Future[_Scored]]] = deque()
    try:
        for file, task in tasks:
            begun.append((file, pool.submit(task)))
            if len(begun) > count:
                yield begun.popleft()
        while begun:
            yield begun.popleft()
    finally:
        for _, one in begun:
            one.cancel()


def _file(job: Job, file: str, schema: pa.Schema, scored: Iterable[Future[_Scored]], told: Told) -> int:
    """Write one file's predictions; return how many."""
    done = 0
    out = job.out / Path(file).with_suffix(".parquet")
    out.parent.mkdir(parents=True, exist_ok=True)
    with appearing(out) as temporary, writing(temporary, schema) as write:
        group: list[pa.RecordBatch] = []
        rows = 0
        for future in scored:
            piece = future.result()
            count = sum(batch.num_rows for batch in piece.batches)
            if piece.error is not None:
                at = f"{job.data / file}, rows from {done + count + 1:,} on: " if piece.refused else ""
                raise InputError(f"{at}{piece.error}") from piece.error
            group += piece.batches
            rows += count
            if rows >= _GROUP:
                write(pa.Table.from_batches(group))
                group, rows = [], 0
            done += count
            told(count, 0)
        if rows:
            write(pa.Table.from_batches(group))
    return done


def _note(job: Job, notes: Mapping[str, Any], overwrite: bool) -> None:
    """Compare the notes of what is there with what is asked for, and write them where there are none."""
    path = job.out / NOTES
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        if job.out.exists() and any(job.out.iterdir()) and not overwrite:
            raise DatasetError(
                f"{job.out}: this folder has files that are no predictions; expected a new one."
            ) from None
        found = None
    except ValueError:
        found = {}
    if found is not None and found != notes:
        if not overwrite:
            raise DatasetError(f"{job.out}: {_difference(found, notes)}; --overwrite replaces what is there.")
        for name in found.get("files", {}) if isinstance(found, dict) else ():
            (job.out / Path(name).with_suffix(".parquet")).unlink(missing_ok=True)
        found = None
    # What a killed run was at.
    for left in job.out.rglob(".*.parquet.*"):
        left.unlink(missing_ok=True)
    if found is None:
        job.out.mkdir(parents=True, exist_ok=True)
        with appearing(path) as temporary:
            temporary.write_text(json.dumps(notes, indent=1))


def _difference(found: Any, notes: Mapping[str, Any]) -> str:
    """In what predictions that are there differ from those that are asked for."""
    if not isinstance(found, dict) or found.get("format") != _FORMAT or found.get("version") != _VERSION:
        return f"its {NOTES} is damaged, or of another version"
    if found.get("package") != notes["package"]:
        return "the predictions in it are of another package"
    for name in ("output", "keep", "drop"):
        if found.get(name) != notes[name]:
            return f"the predictions in it were made with another --{name}"
    changed = [name for name, one in notes["files"].items() if found["files"].get(name, one) != one]
    if changed:
        return f"{changed[0]} has changed since its predictions were made"
    return "the files of rows are others than when the predictions in it were made"
