"""Folders for a run's temporary files, removed by a later run where this one was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

_MARK = ".in-use"

_YOUNG = 60.0
"""Seconds for which a folder is left alone: its owner may not have come to lock it yet."""


class Scratch:
    """A temporary folder, removed by `close`, or when the next one is made after its owner was killed.

    The owner holds a lock on a file in the folder, which the operating system releases when the process
    ends: a folder whose lock can be taken is not in use.

    Parameters
    ----------
    prefix
        How the folder's name begins. Abandoned folders of this prefix are removed.

    Attributes
    ----------
    path
        The folder.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._mark = os.open(self.path / _MARK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._mark, fcntl.LOCK_EX)
        for folder in self.path.parent.glob(f"{prefix}*"):
            if folder != self.path:
                _remove_if_abandoned(folder)

    def close(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._mark >= 0:
            os.close(self._mark)
            self._mark = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder whose owner ended; one without a lock file is not ours, or has just been made."""
    with contextlib.suppress(OSError):
        found = folder.lstat()
        if found.st_uid != os.getuid() or time.time() - found.st_mtime < _YOUNG:
            return
        mark = os.open(folder / _MARK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(mark)
