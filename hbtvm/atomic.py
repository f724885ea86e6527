"""Atomic writing of files, and locks that end with their process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from hbtvm.errors import InputError

TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.hbtvm", re.DOTALL)
"""Names of files and folders that are still being written."""

_MOST_NAME = 40  # characters of a file's name that its temporary name repeats


def temporary_name(name: str) -> str:
    """Return a name, matched by `TEMPORARY`, that no other file has."""
    return f".{name}.{secrets.token_hex(8)}.hbtvm"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file beside `path`; on success it replaces `path`, else it is removed.

    The temporary file is locked while it is written, so that `clear` keeps it. Yields the path of an empty
    temporary file, to be written in place. Raises `OSError` if the folder can't be written.
    """
    handle, temporary = _temporary(path)
    try:
        yield temporary
        os.fsync(handle)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def clear(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files that killed processes left in a folder.

    A file is removed only if `replacing` named it, this user owns it, and no process holds its lock.

    `folder`: the folder; its subfolders are not searched.
    `name`: the name of the replaced file; None for any.
    """
    start = "." if name is None else f".{name[:_MOST_NAME]}."
    with contextlib.suppress(OSError):
        left = [file for file in os.listdir(folder) if file.startswith(start) and TEMPORARY.fullmatch(file)]
        for file in left:
            with contextlib.suppress(OSError):
                _remove_if_abandoned(folder / file)


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock on a file, and remove the file at the end; a killed process loses its lock.

    On a file system without locks, nothing is locked. Raises `InputError` with the text `busy` if another
    process holds it. Raises `OSError` if the lock file can't be created.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            if _lock(handle) is False:
                raise InputError(busy)
            if _names(path, handle):
                break
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed it meanwhile
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, durably."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's names to the disk, if the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _temporary(path: Path) -> tuple[int, Path]:
    """Create and lock a temporary file, with the permissions of the user's umask."""
    while True:
        temporary = path.with_name(temporary_name(path.name[:_MOST_NAME]))
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        # Before it was locked, `clear` in another process may have removed it.
        if _lock(handle) is not False and _names(temporary, handle):
            return handle, temporary
        os.close(handle)


def _remove_if_abandoned(path: Path) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and _lock(handle):
            os.unlink(path)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock a file; return False if another process holds it, None if the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _names(path: Path, handle: int) -> bool:
    """Return whether a path still names an open file."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False
