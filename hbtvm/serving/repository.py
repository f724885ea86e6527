"""The models of a service: loaded, loaded anew, unloaded."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hbtvm.errors import HbtvmError, PackageError
from hbtvm.runtime.trust import ANY, Trust
from hbtvm.serving.answers import inline_rows
from hbtvm.serving.metrics import Metrics
from hbtvm.serving.served import Served

_log = logging.getLogger(__name__)

Signature = tuple[int, int, int]
"""Of a file: when it was written, in nanoseconds, its size, and its number on the disk."""

PATIENCE = 30.0
"""Seconds that others wait for a package that is being loaded; its disk may hang."""


@dataclass
class _Entry:
    """A model's file, and what became of it."""

    path: Path
    seen: Signature | None = None
    version: int = 0
    error: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    loading: threading.Thread | None = None
    late: str = ""


class Repository:
    """Models by name. Requests read `served`; loading replaces its items one by one.

    Parameters
    ----------
    paths
        Packages by the name that clients know them by.
    threads, device
        As for `hbtvm.load`.
    trust
        What files have to be to be loaded, by the names of models.

    Attributes
    ----------
    served
        The models that are ready. What is computing with a model keeps it alive after it was replaced.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        metrics: Metrics,
        threads: int | None = None,
        device: str | None = None,
        trust: Mapping[str, Trust] | None = None,
    ) -> None:
        self.served: dict[str, Served] = {}
        self._entries = {name: _Entry(path) for name, path in paths.items()}
        self._metrics, self._threads, self._device, self._trust = metrics, threads, device, trust or {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of all models, loaded or not."""
        return tuple(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def load(self, name: str) -> None:
        """Load a model's file, in place of what was loaded before.

        Raises
        ------
        KeyError
            If the service has no such model.
        HbtvmError
            If it can't be loaded; what was loaded before stays, and `index` tells the reason.
        """
        entry = self._entries[name]
        with _held(entry):
            # Before it is read: what is written meanwhile is another state.
            entry.seen = _signature(entry.path)
            try:
                _require_file(entry.path)
                trust = self._trust.get(name, ANY)
                made = Served(name, entry.path, self._threads, self._device, str(entry.version + 1), trust)
                made.inline_rows = inline_rows(made)
            except Exception as error:
                entry.error = str(error) or type(error).__name__
                self._metrics.of(name).loaded(succeeded=False)
                raise
            entry.version += 1
            entry.error = ""
            replaced = name in self.served
            self.served[name] = made
            if replaced:
                # The functions of `ctypes` are in circles, and keep shared libraries loaded till then.
                gc.collect()
            self._metrics.of(name).loaded(succeeded=True)

    def unload(self, name: str) -> None:
        """Forget a model until it is loaded again.

        Raises
        ------
        KeyError
            If the service has no such model.
        """
        entry = self._entries[name]
        with _held(entry):
            self.served.pop(name, None)
            entry.error = "unloaded"

    def refresh(self, force: bool = False) -> None:
        """Load each file that changed or went since, or all; what fails is logged, and stays as it was.

        Each is looked at in a thread of its own: a file on a disk that hangs stops neither the others, nor
        the end of the process.
        """
        for name, entry in self._entries.items():
            if entry.loading is not None and entry.loading.is_alive():
                continue
            entry.late = ""
            entry.loading = threading.Thread(target=self._refresh, args=(name, entry, force), daemon=True)
            entry.loading.start()
            entry.loading.join(PATIENCE)
            if entry.loading.is_alive():
                entry.late = f"{entry.path} takes more than {PATIENCE:g} s to read"
                _log.error("%s: %s (%s)", name, entry.late, self._stays(name))

    def _refresh(self, name: str, entry: _Entry, force: bool) -> None:
        if entry.error == "unloaded":
            return
        if _signature(entry.path) == entry.seen and not force:
            return
        try:
            self.load(name)
        except Exception as error:  # whatever it is, other files are still looked at
            known = isinstance(error, (HbtvmError, OSError, MemoryError))
            _log.error("%s: %s (%s)", name, entry.error, self._stays(name), exc_info=None if known else error)
        else:
            _log.info("%s: loaded %s, version %s", name, entry.path, entry.version)

    def _stays(self, name: str) -> str:
        served = self.served.get(name)
        return "not loaded" if served is None else f"version {served.version} stays"

    def index(self) -> list[dict[str, Any]]:
        """All models, as the protocol's repository extension tells them."""
        made = []
        for name, entry in self._entries.items():
            ready = self.served.get(name)
            made.append(
                {
                    "name": name,
                    "version": ready.version if ready is not None else str(entry.version),
                    "state": "READY" if ready is not None else "UNAVAILABLE",
                    "reason": entry.late or entry.error,
                }
            )
        return made

    @property
    def ready(self) -> bool:
        """Whether every model is loaded that was not unloaded on purpose."""
        return all(name in self.served or one.error == "unloaded" for name, one in self._entries.items())


@contextlib.contextmanager
def _held(entry: _Entry) -> Iterator[None]:
    """Hold a model's lock, but do not wait for it without end."""
    if not entry.lock.acquire(timeout=PATIENCE):
        raise HbtvmError(f"{entry.path} is being loaded for more than {PATIENCE:g} s.")
    try:
        yield
    finally:
        entry.lock.release()


def _require_file(path: Path) -> None:
    """Refuse what a read could wait for without end, such as a pipe."""
    with contextlib.suppress(OSError):  # loading tells of it
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PackageError(f"{path} is not a regular file.")


def _signature(path: Path) -> Signature | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
