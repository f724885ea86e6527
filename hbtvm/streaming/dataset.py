"""A folder of files in, a folder of predictions out: file by file, each whole or not there.

What was begun is gone on with: a file ``_hbtvm.json`` in the folder of predictions says of what package,
options and files they are, and a file of predictions appears under its name once it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from hbtvm.errors import InputError
from hbtvm.runtime.model import load
from hbtvm.streaming.scorer import Scorer

NOTES = "_hbtvm.json"
SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".arrow": "ipc", ".feather": "ipc"}
"""Of files that are read, and what they are to pyarrow."""

_FORMAT, _VERSION = "hbtvm-predictions", 1

_ROWS = 1 << 16
"""Rows of a batch."""

_AHEAD = 4
"""Batches that are read ahead, and that wait to be written, at most."""

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


class Dataset:
    """Files of rows in a folder, and folders in it, all of one kind.

    Folders called ``name=value`` are columns, as Hive has them. Files and folders whose names begin with
    ``.`` or ``_`` are none of it.

    Parameters
    ----------
    folder
        Where they are.

    Attributes
    ----------
    files
        Names below the folder, in order.
    schema
        Of their rows; that of the first file.

    Raises
    ------
    InputError
        If there are no files, files of several kinds, or the first can't be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = sorted(
            one.relative_to(folder)
            for one in folder.rglob("*")
            if one.suffix.lower() in SUFFIXES
            and not any(part.startswith((".", "_")) for part in one.relative_to(folder).parts)
            and one.is_file()
        )
        kinds = {SUFFIXES[one.suffix.lower()] for one in found}
        if not found:
            raise InputError(f"{folder}: there are no files of rows; known are {', '.join(SUFFIXES)}.")
        if len(kinds) > 1:
            raise InputError(f"{folder}: there are files of several kinds, {', '.join(sorted(kinds))}.")
        self.files = [str(one) for one in found]
        with _explained(folder / found[0]):
            self._all = pads.dataset(
                [str(folder / one) for one in found],
                format=kinds.pop(),
                partitioning="hive",
                partition_base_dir=str(folder),
            )
            self.schema = self._all.schema
            fragments = self._all.get_fragments()
            self._fragments = {os.path.relpath(one.path, folder): one for one in fragments}
            # Columns that names of folders are.
            first = self._fragments[self.files[0]].physical_schema.names
            self._by_folder = set(self.schema.names) - set(first)

    def batches(self, file: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of a file, of which some columns are read, and some batches ahead.

        Raises
        ------
        InputError
            If it can't be read, or its columns are of other types than those of the first file.
        """
        path = self.folder / file
        fragment = self._fragments[file]
        with _explained(path):
            lacking = set(columns) - set(fragment.physical_schema.names) - self._by_folder
            if lacking:
                first = self.files[0]
                raise InputError(f"{path}: column {min(lacking)!r} is not there, but is in {first}.")
            scanner = fragment.scanner(
                schema=self.schema,
                columns=list(columns),
                batch_size=_ROWS,
                batch_readahead=_AHEAD,
                fragment_readahead=1,
            )
            yield from scanner.to_batches()


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
    # Batches are predicted side by side, each by one thread, which shares all of the work.
    workers = threads or len(os.sched_getaffinity(0))
    scorer = Scorer(load(job.package, threads=1), rows.schema, job.output, keep=job.keep, drop=job.drop)
    _note(job, job.notes(rows.files), overwrite)
    done = 0
    for file in rows.files:
        out = job.out / Path(file).with_suffix(".parquet")
        if out.exists():
            if told is not None:
                told(0, 1)
            continue
        out.parent.mkdir(parents=True, exist_ok=True)
        with _appearing(out) as temporary:
            done += _file(workers, job, rows, file, scorer, temporary, told)
        if told is not None:
            told(0, 1)
    return done


def _file(
    workers: int, job: Job, rows: Dataset, file: str, scorer: Scorer, out: Path, told: Told | None
) -> int:
    """Predict one file; return its rows."""
    done = 0
    begun: deque[Future[pa.RecordBatch]] = deque()

    with _writing(out, scorer.schema) as write, ThreadPoolExecutor(workers) as pool:

        def finish() -> None:
            nonlocal done
            try:
                made = begun.popleft().result()
            except InputError as error:
                raise InputError(f"{job.data / file}, rows from {done + 1:,} on: {error}") from error
            write(made)
            done += made.num_rows
            if told is not None:
                told(made.num_rows, 0)

        try:
            for batch in rows.batches(file, scorer.columns):
                if batch.num_rows:
                    begun.append(pool.submit(scorer, batch))
                if len(begun) > 2 * workers:
                    finish()
            while begun:
                finish()
        finally:
            for one in begun:
                one.cancel()
    return done


@contextlib.contextmanager
def _writing(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Write batches by a thread of its own, so that predicting goes on meanwhile."""
    waiting: queue.Queue[pa.RecordBatch | None] = queue.Queue(_AHEAD)
    failed: list[BaseException] = []

    def work(writer: pq.ParquetWriter) -> None:
        while (batch := waiting.get()) is not None:
            try:
                if not failed:
                    writer.write_batch(batch)
            except BaseException as error:
                failed.append(error)

    def write(batch: pa.RecordBatch) -> None:
        if failed:
            raise failed[0]
        waiting.put(batch)

    # Scores hardly repeat: looking for values that do takes most of the time of writing them.
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    with pq.ParquetWriter(path, schema, use_dictionary=texts) as writer:
        thread = threading.Thread(target=work, args=(writer,), daemon=True)
        thread.start()
        try:
            yield write
        finally:
            waiting.put(None)
            thread.join()
        if failed:
            raise failed[0]


@contextlib.contextmanager
def _appearing(path: Path) -> Iterator[Path]:
    """A name beside a path; what is written there takes the path's place at the end, or is gone."""
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
        with _appearing(path) as temporary:
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


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Tell a damaged file, for which pyarrow has errors of several kinds, from one that can't be read."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        first = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"{path}: this is damaged, or of other types than the first file ({first})."
        ) from error
