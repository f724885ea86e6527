"""The log file: append-only JSON lines.

A log must survive crashes, full disks, foreign lines, and several writers. Each record is therefore one write
at the end of the file under a lock. A torn line is terminated before the next record is written. Reading
skips and counts invalid lines.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hbtvm.logs.bounds import MOST_BYTES, RecordError
from hbtvm.logs.record import Record


class LogError(OSError):
    """A log cannot be read or written; the message names its path."""


@dataclass(frozen=True)
class ReadResult:
    """The contents of a log."""

    records: list[Record]  # every valid record, oldest line first
    skipped: int  # number of invalid lines: torn, foreign, of another schema version, or against the schema
    # `line`, `reason`: number of the first invalid line, from 1, and the reason; 0 and "" without any
    line: int = 0
    reason: str = ""

    def note(self, path: object) -> str:
        """Return a sentence about the skipped lines for users; "" without any."""
        if not self.skipped:
            return ""
        if self.skipped == 1:
            return f"{path}: line {self.line} was skipped ({self.reason})"
        return f"{path}: {self.skipped:,} lines were skipped, first line {self.line} ({self.reason})"


def parse(lines: Iterable[bytes]) -> ReadResult:
    """Read records from lines; blank lines do not count as skipped."""
    records: list[Record] = []
    skipped, first, reason = 0, 0, ""
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            records.append(Record.from_line(line))
        except RecordError as error:
            skipped += 1
            if not first:
                first, reason = number, str(error)
    return ReadResult(records, skipped, first, reason)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's lines; a line longer than `MOST_BYTES` is cut."""
    while line := file.readline(MOST_BYTES + 1):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(MOST_BYTES)


class Log:
    """An append-only file of tuning records.

    Parameters
    ----------
    path
        The file, which the first record creates. A ``.lock`` file beside it lets several processes append to
        the log.
    fsync
        Force each record to the disk, so that it survives a power failure as well as a crash of the process.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.path = Path(path)
        self.fsync = fsync

    def append(self, record: Record) -> None:
        """Append a record.

        Raises
        ------
        LogError
            If the file cannot be written; no part of the record stays in it.
        RecordError
            If the record cannot be written as JSON.
        """
        line = record.to_line().encode() + b"\n"
        with self.locked(), explained(self.path, "write"):
            # Reopened each time: `prune` may have replaced the file.
            file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                end = os.fstat(file).st_size
                torn = end > 0 and os.pread(file, 1, end - 1) != b"\n"
                data = b"\n" + line if torn else line
                if os.write(file, data) != len(data):
                    os.ftruncate(file, end)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if self.fsync:
                    os.fsync(file)
            finally:
                os.close(file)

    def read(self) -> ReadResult:
        """Read all records; a missing file is an empty log.

        Raises
        ------
        LogError
            If the path exists and cannot be read.
        """
        if self.path.is_char_device():  # such as /dev/null, or a device that never ends
            return ReadResult([], 0)
        with explained(self.path, "read"):
            try:
                with open(self.path, "rb") as file:
                    return parse(_lines(file))
            except FileNotFoundError:
                return ReadResult([], 0)

    def replace(self, records: Iterable[Record]) -> None:
        """Replace the log's records, atomically.

        Hold `locked` while reading the old records and until this call returns; otherwise records that
        another process appends meanwhile are lost.

        Raises
        ------
        LogError
            If the file cannot be written; the old file stays unchanged.
        """
        # Replace the file that a link points to, not the link.
        path = Path(os.path.realpath(self.path))
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with explained(self.path, "write"):
            try:
                with open(temporary, "wb") as file:
                    file.writelines(record.to_line().encode() + b"\n" for record in records)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from appending during a ``with`` block.

        Raises
        ------
        LogError
            If the lock file cannot be created.
        """
        path = Path(os.path.realpath(self.path))
        # Devices are never replaced, and their folder gets no lock file; opening a folder fails later.
        if path.exists() and not path.is_file():
            yield
            return
        from filelock import FileLock  # not needed for reading

        guard = FileLock(f"{path}.lock")
        with explained(self.path, "write"):
            if not path.parent.is_dir():
                raise FileNotFoundError(errno.ENOENT, "its folder does not exist")
            guard.acquire()
        try:
            yield
        finally:
            guard.release()


@contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Convert an operating system's error to a `LogError` that names the log."""
    try:
        yield
    except LogError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".")
        raise LogError(f"cannot {verb} tuning log {path}: {reason}") from error
