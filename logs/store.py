"""The log file: JSON lines that are only ever appended to.

A log must survive crashes, full disks, other programs' lines, and several writers. So each
record is one write at the file's end under a lock; a line that a crash tore is closed off
before the next; and reading skips, but counts, what is not a record.
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
    """A log cannot be read or written; the message is one sentence that names its path."""


@dataclass(frozen=True)
class ReadResult:
    """What a log held.

    Attributes
    ----------
    records
        Every readable record, oldest line first.
    skipped
        Number of lines that are torn, foreign, of another schema version, or break the schema.
    line, reason
        Number of the first of them, from 1, and what is wrong with it; 0 and "" where none was skipped.
    """

    records: list[Record]
    skipped: int
    line: int = 0
    reason: str = ""

    def note(self, path: object) -> str:
        """One sentence about the lines that were skipped, for people; "" without any."""
        if not self.skipped:
            return ""
        if self.skipped == 1:
            return f"{path}: line {self.line} was skipped ({self.reason})"
        return f"{path}: {self.skipped:,} lines were skipped, first line {self.line} ({self.reason})"


def parse(lines: Iterable[bytes]) -> ReadResult:
    """Read records from lines; blank lines are neither records nor skipped."""
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
    """A file's lines; of a line that is longer than records may be, only the beginning is read."""
    while line := file.readline(MOST_BYTES + 1):
        yield line
        while line and not line.endswith(b"\n"):
            line = file.readline(MOST_BYTES)


class Log:
    """An append-only file of tuning records.

    Parameters
    ----------
    path
        The file; it comes to be with the first record. Beside it a ``.lock`` file is kept,
        so that several processes may append to one log.
    fsync
        Whether each record is forced to the disk, to survive a power failure as well as a
        crash of the process.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.path = Path(path)
        self.fsync = fsync

    def append(self, record: Record) -> None:
        """Add one record at the end.

        Raises
        ------
        LogError
            If the file cannot be written: nothing of the record stays in it.
        RecordError
            If the record cannot be written as JSON.
        """
        line = record.to_line().encode() + b"\n"
        with self.locked(), explained(self.path, "write"):
            # Opened anew each time: `prune` may have put another file at this path.
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
        """Read all records; a file that does not exist is an empty log.

        Raises
        ------
        LogError
            If there is something at the path that cannot be read.
        """
        if self.path.is_char_device():  # such as /dev/null: it keeps nothing, and may never end
            return ReadResult([], 0)
        with explained(self.path, "read"):
            try:
                with open(self.path, "rb") as file:
                    return parse(_lines(file))
            except FileNotFoundError:
                return ReadResult([], 0)

    def replace(self, records: Iterable[Record]) -> None:
        """Put these records in the place of the log's, all at once or not at all.

        Hold `locked` from before the old records were read, or what another process appends
        meanwhile is lost.

        Raises
        ------
        LogError
            If the file cannot be written: the old one stays as it was.
        """
        # Through a link, the file that it points to is replaced, not the link.
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
        """Keep other processes from appending for the length of a ``with`` block.

        Raises
        ------
        LogError
            If the lock file cannot be made.
        """
        path = Path(os.path.realpath(self.path))
        # A device is never replaced, and its folder is no place for a lock file; opening a
        # folder fails soon enough.
        if path.exists() and not path.is_file():
            yield
            return
        from filelock import FileLock  # which reading a log does without

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
    """Turn an operating system's error into a `LogError` that names the log."""
    try:
        yield
    except LogError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).rstrip(".")
        raise LogError(f"cannot {verb} tuning log {path}: {reason}") from error
