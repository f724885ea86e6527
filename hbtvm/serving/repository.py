"""The models of a service: loading, reloading, unloading."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hbtvm.errors import HbtvmError, PackageError
from hbtvm.runtime.package.trust import ANY, Trust
from hbtvm.serving.inline import inline
from hbtvm.serving.metrics import Metrics
from hbtvm.serving.served import Served

_log = logging.getLogger(__name__)

Signature = tuple[int, int, int]  # a file's state: time of modification in nanoseconds, size, and inode
PATIENCE = 30.0  # seconds to wait for a package that is loading; its disk may hang


@dataclass
class _Entry:
    """A model's file and its state."""

    path: Path
    seen: Signature | None = None
    version: int = 0
    error: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    loading: threading.Thread | None = None
    late: str = ""


class Repository:
    """Models by name. Requests read `served`; loading replaces its items one by one.

    `paths`: packages by model name.
    `threads`, `device`: as for `hbtvm.load`.
    `trust`: required hashes or signatures by model name.
    `version_of`: returns the version of a model's file in a state; by default, counts loads.
    `served`: the ready models. Running requests keep a replaced model alive.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        metrics: Metrics,
        threads: int | None = None,
        device: str | None = None,
        trust: Mapping[str, Trust] | None = None,
        version_of: Callable[[str, Signature | None], int] | None = None,
    ) -> None:
        self.served: dict[str, Served] = {}
        self._entries = {name: _Entry(path) for name, path in paths.items()}
        self._metrics, self._threads, self._device, self._trust = metrics, threads, device, trust or {}
        self._version_of = version_of or (lambda name, seen: self._entries[name].version + 1)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all models, loaded or not."""
        return tuple(self._entries)

    @property
    def models(self) -> list[Served]:
        """The loaded models, in the order of `paths`; unloading and loading change the order of `served`."""
        loaded = map(self.served.get, self.names)
        return [served for served in loaded if served is not None]

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def load(self, name: str) -> None:
        """Load a model's file, and replace the loaded model.

        Raises `KeyError` if the service has no such model. Raises `HbtvmError` if it can't be loaded; the old
        model stays, and `index` has the reason.
        """
        entry = self._entries[name]
        with _held(entry):
            # Before reading: a write during reading makes another state.
            entry.seen = _signature(entry.path)
            try:
                _require_file(entry.path)
                trust = self._trust.get(name, ANY)
                version = self._version_of(name, entry.seen)
                served = Served(name, entry.path, self._threads, self._device, str(version), trust)
                served.inline = inline(served)
            except Exception as error:
                entry.error = str(error) or type(error).__name__
                self._metrics.of(name).loaded(succeeded=False)
                raise
            entry.version = version
            entry.error = entry.late = ""
            replaced = name in self.served
            self.served[name] = served
            if replaced:
                # Functions of `ctypes` are in reference cycles, which keep shared libraries loaded.
                gc.collect()
            self._metrics.of(name).loaded(succeeded=True)

    def unload(self, name: str) -> None:
        """Unload a model until it is loaded again.

        Raises `KeyError` if the service has no such model.
        """
        entry = self._entries[name]
        with _held(entry):
            self.served.pop(name, None)
            entry.error = "unloaded"

    def change(self, name: str, action: str) -> None:
        """Load or unload a model; `action`: ``load`` or ``unload``. Raises as `load` does."""
        (self.load if action == "load" else self.unload)(name)

    def refresh(self, force: bool = False) -> None:
        """Reload changed files, or all; log failures, and keep the old models.

        A separate thread checks each file, so that a hanging disk blocks neither the others nor the process's
        exit.
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
        except Exception as error:  # check the other files in any case
            known = isinstance(error, (HbtvmError, OSError, MemoryError))
            _log.error("%s: %s (%s)", name, entry.error, self._stays(name), exc_info=None if known else error)
        else:
            _log.info("%s: loaded %s, version %s", name, entry.path, entry.version)

    def _stays(self, name: str) -> str:
        served = self.served.get(name)
        return "not loaded" if served is None else f"version {served.version} stays"

    def index(self) -> list[dict[str, Any]]:
        """Return all models in the form of the protocol's repository extension."""
        models = []
        for name, entry in self._entries.items():
            ready = self.served.get(name)
            models.append(
                {
                    "name": name,
                    "version": ready.version if ready is not None else str(entry.version),
                    "state": "READY" if ready is not None else "UNAVAILABLE",
                    "reason": entry.late or entry.error,
                }
            )
        return models

    @property
    def ready(self) -> bool:
        """Return whether every model is loaded, except those unloaded on request."""
        return all(name in self.served or entry.error == "unloaded" for name, entry in self._entries.items())


@contextlib.contextmanager
def _held(entry: _Entry) -> Iterator[None]:
    """Hold a model's lock, with a timeout for getting it."""
    if not entry.lock.acquire(timeout=PATIENCE):
        raise HbtvmError(f"{entry.path} has been loading for more than {PATIENCE:g} s.")
    try:
        yield
    finally:
        entry.lock.release()


def _require_file(path: Path) -> None:
    """Refuse files that could block a read without end, such as a pipe."""
    with contextlib.suppress(OSError):  # loading reports it
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PackageError(f"{path} is not a regular file.")


def _signature(path: Path) -> Signature | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
