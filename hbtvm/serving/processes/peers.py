"""A process's view of the other processes of its service: metrics, versions, and changes of models."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from hbtvm.errors import HbtvmError
from hbtvm.serving.metrics import Metrics
from hbtvm.serving.processes.board import Board

_log = logging.getLogger(__name__)

_SHARED = 0  # the board's cell with versions and requested changes; process i writes cell 1 + i
_STATES = 16  # states of a file whose version is remembered


def board_of(processes: int, models: Iterable[str]) -> Board:
    """Return the board of a service."""
    return Board(1 + processes, sum(4096 + 16 * len(name) for name in models))


class Peers:
    """The processes of a service, from the view of one of them.

    `number`: the number of this process, from 0.
    `count`: number of processes.
    """

    def __init__(self, board: Board, number: int, count: int) -> None:
        self._board, self._number, self._count = board, number, count
        self._change: Callable[[str, str], None] = lambda name, action: None
        self._metrics = Metrics()
        self._applied: dict[str, int] = {}
        self._changer: threading.Thread | None = None

    def count_connections(self, connections: int) -> None:
        """Note how many connections this process has open."""
        self._board.counts[self._number] = connections

    @property
    def has_fewest(self) -> bool:
        """Whether no other process has fewer open connections."""
        counts = self._board.counts
        return counts[self._number] <= min(counts[: self._count])

    def join(self, metrics: Metrics, change: Callable[[str, str], None]) -> None:
        """Share this process's metrics, which continue those of the process that it replaces.

        `change`: loads or unloads a model of this process, by its name and the action.
        """
        self._metrics, self._change = metrics, change
        before = self._board.read(1 + self._number)
        if before is not None:
            metrics.restore(before["metrics"])
        metrics.others = lambda: [state["metrics"] for state in self._others()]

    def publish(self) -> None:
        """Show this process's metrics, and the changes that it has applied."""
        state = {"pid": os.getpid(), "metrics": self._metrics.snapshot(), "applied": self._applied}
        self._board.write(1 + self._number, state)

    def tick(self) -> None:
        """Publish, and apply changes that another process was asked for."""
        self.publish()
        if self._changer is not None and self._changer.is_alive():
            return
        late = {
            name: (number, action)
            for name, (number, action) in self._shared()["changes"].items()
            if number > self._applied.get(name, 0)
        }
        if late:
            self._changer = threading.Thread(target=self._apply, args=(late,), daemon=True)
            self._changer.start()

    def catch_up(self) -> None:
        """Unload models that were unloaded before this process began; call it after loading."""
        for name, (number, action) in self._shared()["changes"].items():
            if action == "unload":
                self._change(name, action)
            self._applied[name] = number
        self.publish()

    def _apply(self, changes: dict[str, Any]) -> None:
        for name, (number, action) in changes.items():
            try:
                self._change(name, action)
            except (HbtvmError, OSError, MemoryError) as error:
                _log.error("%s: %s", name, error)
            self._applied[name] = number

    def ask(self, name: str, action: str) -> int:
        """Ask the other processes for a change that this process has applied; return the change's number."""
        with self._board.locked():
            shared = self._shared()
            number: int = shared["changes"].get(name, (0, ""))[0] + 1
            shared["changes"][name] = (number, action)
            self._board.write(_SHARED, shared)
        self._applied[name] = number
        return number

    def done(self, name: str, number: int) -> bool:
        """Return whether all living processes have applied a change."""
        return all(
            state["applied"].get(name, 0) >= number or not _lives(state["pid"]) for state in self._others()
        )

    def version(self, name: str, state: tuple[int, ...] | None) -> int:
        """Return the version of a file's state, which is the same in all processes."""
        with self._board.locked():
            shared = self._shared()
            known = shared["versions"].setdefault(name, [])
            for version, other in known:
                if state is not None and other == list(state):
                    return int(version)
            version = known[-1][0] + 1 if known else 1
            shared["versions"][name] = [*known, (version, state)][-_STATES:]
            self._board.write(_SHARED, shared)
            return version

    def _shared(self) -> dict[str, Any]:
        return self._board.read(_SHARED) or {"changes": {}, "versions": {}}

    def _others(self) -> list[dict[str, Any]]:
        """Return what the other processes have published."""
        states = (self._board.read(1 + number) for number in range(self._count) if number != self._number)
        return [state for state in states if state is not None]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
