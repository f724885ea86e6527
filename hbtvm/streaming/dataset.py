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

from hbtvm.errors import InputError
from hbtvm.runtime.model import load
from hbtvm.streaming.predicting import Scored, Told, score, untold, write
from hbtvm.streaming.reading import Dataset
from hbtvm.streaming.scorer import Scorer
from hbtvm.streaming.writing import appearing

NOTES = "_hbtvm.json"
_FORMAT, _VERSION = "hbtvm-predictions", 1


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


def predict(
    job: Job,
    threads: int | None = None,
    told: Told = untold,
    overwrite: bool = False,
    rows: Dataset | None = None,
) -> int:
    """Predict for all files that have no predictions yet.

    Parameters
    ----------
    threads
        Batches that are predicted at the same time; None for as many as there are CPUs.
    told
        Called as predictions are made.
    overwrite
        Whether what is there of another package, other options or other rows is replaced.
    rows
        The rows of the job's folder, where they have been listed before.

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
    rows = Dataset(job.data) if rows is None else rows
    # Pieces are predicted side by side, each by one thread, which shares all of the work.
    workers = threads or len(os.sched_getaffinity(0))
    scorer = Scorer(load(job.package, threads=1), rows.schema, job.output, keep=job.keep, drop=job.drop)
    _note(job, job.notes(rows.files), overwrite)
    done = 0
    missing = []
    for file in rows.files:
        if (job.out / Path(file).with_suffix(".parquet")).exists():
            told(0, 1)
        else:
            missing.append(file)
    with ThreadPoolExecutor(workers) as pool:
        begun = _ahead(pool, 2 * workers, _tasks(rows, missing, scorer))
        with contextlib.closing(begun):
            for file, scored in itertools.groupby(begun, key=itemgetter(0)):
                out = job.out / Path(file).with_suffix(".parquet")
                results = (future.result() for _, future in scored)
                done += write(out, scorer.schema, results, str(rows.folder / file), told=told)
                told(0, 1)
    return done


_Task = tuple[str, Callable[[], Scored]]
"""A file, and what predicts some of its rows."""


def _tasks(rows: Dataset, files: Sequence[str], scorer: Scorer) -> Iterator[_Task]:
    """What is to be done, in order; something for each file."""
    for file in files:
        yield file, Scored
        try:
            for piece in rows.source(file).pieces(scorer.columns):
                yield file, partial(score, scorer, piece)
        except InputError as error:
            # Rows before these are predicted first.
            yield file, partial(Scored, (), error)
            return


def _ahead(
    pool: ThreadPoolExecutor, count: int, tasks: Iterable[_Task]
) -> Generator[tuple[str, Future[Scored]]]:
    """Begin some tasks before they are asked for."""
    begun: deque[tuple[str, Future[Scored]]] = deque()
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
