"""Temporary folders; a later run removes those of killed runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_MARK = ".in-use"

_YOUNG = 60.0  # age in seconds below which a folder stays: its owner may not have locked it yet


class Scratch:
    """A temporary folder that `close` removes, or the next `Scratch` if its owner was killed.

    The owner locks a file in the folder; the operating system releases the lock when the process ends.

    `prefix`: prefix of the folder's name. Abandoned folders with this prefix are removed.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._mark = os.open(self.path / _MARK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._mark, fcntl.LOCK_EX)
        for folder in self.path.parent.glob(f"{prefix}*"):
            if folder != self.path:
                _remove_if_abandoned(folder)

    def close(self) -> None:
        """Remove the folder with its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._mark >= 0:
            os.close(self._mark)
            self._mark = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder whose owner ended; without a lock file it is new, or not a `Scratch`."""
    with contextlib.suppress(OSError):
        status = folder.lstat()
        if status.st_uid != os.getuid() or time.time() - status.st_mtime < _YOUNG:
            return
        mark = os.open(folder / _MARK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(mark)
