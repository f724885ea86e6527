"""All connections of a service: how many there are, and which are late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hbtvm.serving.bodies import Account

if TYPE_CHECKING:
    from hbtvm.serving.connection import Connection

App = Callable[[Any, Any, Any], Awaitable[None]]

_SPARE = 16
"""Connections beyond the limit that are told so; more are closed without a word."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds after which a connection is closed.

    Attributes
    ----------
    head
        For a request's head to arrive, from its first byte on (408).
    idle
        Without a request.
    write
        For the client to read the next part of an answer.
    """

    head: float = 10.0
    idle: float = 60.0
    write: float = 30.0


class Connections:
    """All connections of a service.

    Parameters
    ----------
    app
        The application (ASGI).
    account
        Of the service's bytes.
    most
        Connections at the same time.
    access_log
        Whether each response is logged.
    """

    def __init__(
        self, app: App, account: Account, timeouts: Timeouts, most: int, access_log: bool = False
    ) -> None:
        self.app, self.account, self.timeouts, self.access_log = app, account, timeouts, access_log
        self.open: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._most = most

    def admit(self, connection: Connection) -> bool:
        """Add a connection; if there are too many, in place of one that waits for a request.

        Returns
        -------
        Whether it may ask. If not, it may be told so, or is closed at once where too many are told already.
        """
        full = len(self.open) >= self._most
        waiting = [other for other in self.open if other.idle] if full else []
        if waiting:
            min(waiting, key=lambda other: other.rank).abort()
            full = False
        self.open.add(connection)
        if full and len(self.open) > self._most + _SPARE:
            connection.abort()
        return not full

    def expire(self, now: float) -> None:
        """End connections that are late, by the event loop's time."""
        for connection in [each for each in self.open if each.deadline < now]:
            connection.expire()

    def stop(self) -> None:
        """End each connection when its request is answered."""
        for connection in list(self.open):
            connection.stop()

    async def abort(self) -> None:
        """End all connections, and what is computed for them."""
        for connection in list(self.open):
            connection.abort()
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
