"""The file of times that candidates of an archive took: JSON lines, format version 1.

The first line has ``format`` (``"hbtvm-times"``), ``version``, ``trials`` (the archive's digest), ``target``
(the archive's; for a GPU with its number of multiprocessors), ``device`` (a name), ``hbtvm`` and ``date``.
Any other line is a candidate's: ``candidate`` (its number), ``times`` (seconds of each repeat) or ``error``
(``kind``, ``message``), ``measure_seconds``, ``date``, ``final`` for a final's measurement (see
`hbtvm.logs.ranking`) and, for some GPUs, ``health``: ``clock`` in MHz and ``temperature`` in degrees Celsius.

A line is one write, forced to the disk: a machine that is lost loses one candidate.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hbtvm.errors import FileError, InputError
from hbtvm.logs import bounds
from hbtvm.logs.bounds import RecordError
from hbtvm.logs.ranking import final_mark
from hbtvm.logs.record import Record
from hbtvm.logs.store import ReadResult
from hbtvm.logs.targets import target_key
from hbtvm.measuring.archive import Trials

FORMAT, VERSION = "hbtvm-times", 1


@dataclass(frozen=True)
class Line:
    """A candidate's result; the module's docstring has the fields."""

    candidate: int
    date: str
    times: tuple[float, ...] = ()
    error: Mapping[str, str] | None = None
    measure_seconds: float = 0.0
    final: Mapping[str, Any] | None = None
    health: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """The line as JSON values, for `parsed` to read."""
        fields = {**vars(self), "times": list(self.times)}
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name not in ("final", "health")
        }


@dataclass
class Times:
    """The contents of a file."""

    head: Mapping[str, Any]  # the first line
    lines: list[Line] = field(default_factory=list)  # the other readable lines
    skipped: int = 0  # number of unreadable lines
    note: str = ""  # a sentence on unreadable lines; "" without any

    def records(self, trials: Trials) -> list[Record]:
        """Return the lines as tuning records of the archive."""
        return [self._record(trials, line) for line in self.lines]

    def _record(self, trials: Trials, line: Line) -> Record:
        candidate = trials.candidates[line.candidate]
        task = trials.tasks[candidate.task]
        return Record(
            workload=task.workload,
            strategy=task.strategy,
            target=self.head["target"],
            config=candidate.config,
            times=line.times,
            error=line.error,
            build_seconds=candidate.build_seconds,
            measure_seconds=line.measure_seconds,
            tvm=trials.manifest["tvm"],
            hbtvm=trials.manifest["hbtvm"],
            date=line.date,
            session=f"trials:{trials.digest[:16]}",
            extra={} if line.final is None else {"final": line.final},
        )


def read(path: Path, trials: Trials) -> Times:
    """Read a file, and check that it belongs to an archive.

    Raises `FileError` if it can't be read. Raises `InputError` if it is not a file of times, or belongs to
    another archive.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(f"can't read {path}: {error.strerror}.", error.errno, str(path)) from None
    return parsed(data, path, trials)


def parsed(data: bytes, path: Path, trials: Trials) -> Times:
    """Parse a file's content as `read` does; errors name `path`."""
    first, *rest = data.split(b"\n")
    try:
        head = bounds.parsed(first)
        bounds.plain("head", head)
        bounds.check_target(head["target"])
        fits = head["format"] == FORMAT and type(head["version"]) is int
        newer = fits and head["version"] > VERSION
        archive, target = str(head["trials"]), head["target"]
        target_key(target)
    except (ValueError, TypeError, KeyError, AttributeError):
        fits = newer = False
    if not fits:
        raise InputError(f"{path} is not a file of times that hbtvm measure wrote.")
    if newer:
        raise InputError(
            f"{path} has format version {head['version']}, but this hbtvm reads version {VERSION}; "
            "upgrade with pip install --upgrade hbtvm."
        )
    if archive != trials.digest:
        raise InputError(f"{path} has times of another archive.")
    contents = Times(head)
    where = 0, ""
    for number, text in enumerate(rest, 2):
        if not text:
            continue
        try:
            fields = bounds.parsed(text)
            if not isinstance(fields, dict):
                raise RecordError("a line is not an object")
            invalid = {
                "candidate",
                "date",
            } - fields.keys() or fields.keys() - Line.__dataclass_fields__.keys()
            if invalid:
                raise RecordError(f"the field {min(invalid)!r:.60} is missing or unknown")
            line = Line(**fields)
            bounds.plain("line", vars(line))
            if type(line.candidate) is not int or not 0 <= line.candidate < len(trials.candidates):
                raise RecordError(f"candidate is {bounds.brief(line.candidate)}")
            line = Line(**{**vars(line), "times": tuple(line.times)})
            contents._record(trials, line)  # whose checks are a line's, too
        except (TypeError, ValueError) as error:
            contents.skipped += 1
            where = where if where[0] else (number, str(error))
        else:
            contents.lines.append(line)
    contents.note = ReadResult([], contents.skipped, *where).note(path)
    return contents


class TimesFile:
    """The file while it is written, locked against others; a context manager.

    `path`: the file; existing lines stay.
    `target`, `device`, `hbtvm`, `date`: fields of a new file's first line.
    Raises `FileError` if it can't be written. Raises `InputError` if another process writes it, or it belongs
    to another archive or machine.
    """

    def __init__(
        self, path: Path, trials: Trials, target: Mapping[str, Any], device: str, hbtvm: str, date: str
    ) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._refused(error) from None
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{path} is being written by another hbtvm measure.") from None
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, size, 0)
            if b"\n" not in data:  # new, or its first line was torn
                head = {
                    "format": FORMAT, "version": VERSION, "trials": trials.digest, "target": dict(target),
                    "device": device, "hbtvm": hbtvm, "date": date,
                }  # fmt: skip
                if not data.startswith(_line(head)[:8][: len(data)]):
                    raise InputError(f"{path} is not a file of times that hbtvm measure wrote.")
                if data:
                    os.ftruncate(self._file, 0)
                self._write(head)
                self.known = Times(head)
                return
            self.known = parsed(data, path, trials)
            if target_key(self.known.head["target"]) != target_key(target):
                raise InputError(
                    f"{path} has times of another machine ({self.known.head.get('device', 'unknown')}); name "
                    "another file with -o."
                )
            if not data.endswith(b"\n"):  # a line was torn: close it off
                os.write(self._file, b"\n")
        except BaseException:
            os.close(self._file)
            raise

    def add(self, line: Line) -> None:
        """Write a line to the disk.

        Raises `FileError` if it can't be written; the file stays as it was.
        """
        self._write(line.to_json())
        self.known.lines.append(line)

    def _write(self, fields: Mapping[str, Any]) -> None:
        data = _line(fields)
        end = os.fstat(self._file).st_size
        try:
            if os.write(self._file, data) != len(data):
                os.ftruncate(self._file, end)
                raise OSError(28, os.strerror(28))
            os.fsync(self._file)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> FileError:
        return FileError(f"can't write {self._path}: {error.strerror}.", error.errno, str(self._path))

    def __enter__(self) -> TimesFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True).encode() + b"\n"


def final(ident: str, reading: float | None) -> dict[str, Any]:
    """Return the field ``final`` of a line."""
    mark: dict[str, Any] = final_mark(ident, reading)["final"]
    return mark
