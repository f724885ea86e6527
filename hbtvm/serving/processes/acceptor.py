"""Accept connections of a socket that several processes share."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Collection

from hbtvm.serving.processes.peers import Peers

_log = logging.getLogger(__name__)

_DEFER = 0.002  # seconds in which a process with fewer connections may accept a connection
_PAUSE = 1.0  # seconds before the next connection is accepted if there are too many files
_TOO_MANY = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts one connection at a time, and lets a process with fewer connections go first.

    A server of asyncio takes all waiting connections at once: the first process to wake would serve them.

    `open_connections`: the open connections of this process.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        peers: Peers,
        open_connections: Collection[object],
    ) -> None:
        self._loop, self._listening, self._protocol = loop, listening, protocol
        self._peers, self._open = peers, open_connections
        self._tasks: set[asyncio.Task[object]] = set()
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more connections."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self._wake)

    def _wake(self) -> None:
        self._count()
        if self._peers.has_fewest:
            self._accept()
        else:
            self._loop.remove_reader(self._listening.fileno())
            self._loop.call_later(_DEFER, self._accept_late)

    def _accept_late(self) -> None:
        """Accept a connection that the process with the fewest has left, which may be busy or gone."""
        if self._listening.fileno() >= 0:
            self._resume()
            self._accept()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process has it, or the client left
        except OSError as error:
            if error.errno not in _TOO_MANY:
                raise
            _log.error("no connection is accepted for %g s: %s", _PAUSE, error.strerror)
            self._loop.remove_reader(self._listening.fileno())
            self._loop.call_later(_PAUSE, self._resume)
            return
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task: asyncio.Task[object] = self._loop.create_task(
            self._loop.connect_accepted_socket(self._protocol, connection)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._count()

    def _count(self) -> None:
        self._peers.count_connections(len(self._open) + len(self._tasks))
