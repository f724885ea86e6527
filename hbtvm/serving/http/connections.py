"""All connections of a service: their number and timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hbtvm.serving.bodies import Account

App = Callable[[Any, Any, Any], Awaitable[None]]

_SPARE = 16  # connections beyond the limit that get a refusal; further connections are closed silently


@dataclass(frozen=True)
class Timeouts:
    """Seconds after which a connection is closed."""

    head: float = 10.0  # for a request's head to arrive, after its first byte (408)
    idle: float = 60.0  # without a request
    write: float = 30.0  # for the client to read the next part of an answer


class Client(Protocol):
    """A client's connection."""

    deadline: float  # time on the event loop's clock at which the connection is late

    @property
    def idle(self) -> bool:
        """Whether the connection waits for a request."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Order in which idle connections are closed, lowest first."""

    def expire(self) -> None:
        """Close the connection, which is late."""

    def stop(self) -> None:
        """Close the connection after the current request."""

    def abort(self) -> None:
        """Close the connection at once."""


class Connections:
    """All connections of a service.

    `app`: the application (ASGI).
    `account`: the service's account of bytes.
    `most`: maximal number of connections.
    `access_log`: whether each response is logged.
    """

    def __init__(
        self, app: App, account: Account, timeouts: Timeouts, most: int, access_log: bool = False
    ) -> None:
        self.app, self.account, self.timeouts, self.access_log = app, account, timeouts, access_log
        self.open: set[Client] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._most = most

    def admit(self, connection: Client) -> bool:
        """Add a connection; if there are too many, close an idle connection for it.

        Returns whether the connection is admitted. If not, it gets a refusal, or is closed if too many
        refusals are pending.
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
        """Close late connections, by the event loop's clock."""
        for connection in [each for each in self.open if each.deadline < now]:
            connection.expire()

    def stop(self) -> None:
        """Close each connection after its current request."""
        for connection in list(self.open):
            connection.stop()

    async def abort(self) -> None:
        """Close all connections and cancel their requests."""
        for connection in list(self.open):
            connection.abort()
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
