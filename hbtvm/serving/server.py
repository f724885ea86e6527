"""Run the service until a signal stops it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import uvloop

from hbtvm.errors import HbtvmError
from hbtvm.serving.app import Service
from hbtvm.serving.bodies import Account
from hbtvm.serving.http.connection import Connection
from hbtvm.serving.http.connections import Connections, Timeouts
from hbtvm.serving.processes.acceptor import Acceptor
from hbtvm.serving.startup import BACKLOG

_FILES = 40  # files that the process may need besides connections: packages being loaded, refused connections
_TICK = 0.1  # seconds between checks of signals and late connections
_KEPT = 8 << 20  # bytes of freed requests that the C library may keep
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # available in the GNU C library only
_SWITCH = 5e-4  # seconds after which a thread that runs Python yields to another


class Signals:
    """Signals as flags during a ``with`` block that starts before listening.

    SIGTERM and SIGINT stop the service; a second signal cancels its requests. SIGHUP reloads packages. A
    supervised process ignores SIGINT, which the terminal sends to all processes, and repeated SIGTERM;
    SIGUSR1 cancels its requests.

    Before the service listens, while packages load, the first signal ends the process with the shell's usual
    status, also as a container's first process, which ignores signals without a handler. Python runs handlers
    in its main thread between instructions, so that no signal is lost before the event loop runs.

    `listening`: whether the service listens, so that clients may wait for answers.
    `stop`: number of signals to stop.
    `reload`: whether to reload all packages.
    """

    def __init__(self, supervised: bool = False) -> None:
        self.listening, self.stop, self.reload = False, 0, False
        self._supervised = supervised
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        handlers: dict[int, Any] = dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), self._note)
        if self._supervised:
            handlers |= {signal.SIGINT: signal.SIG_IGN, signal.SIGUSR1: self._note}
        for number, handler in handlers.items():
            self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        if not self.listening:
            raise SystemExit(128 + number)
        if number == signal.SIGHUP:
            self.reload = True
        elif self._supervised:
            self.stop = 2 if number == signal.SIGUSR1 else max(self.stop, 1)
        else:
            self.stop += 1


def most_connections(wanted: int) -> int:
    """Return how many connections the limit of open files allows besides other files, at most `wanted`.

    Raises `HbtvmError` if it allows none.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return wanted
    most = min(wanted, soft - len(os.listdir("/proc/self/fd")) - _FILES)
    if most < 1:
        raise HbtvmError(f"this process may open {soft} files, too few to serve (ulimit -n)")
    return most


def run(
    service: Service,
    listening: socket.socket,
    signals: Signals,
    *,
    timeouts: Timeouts,
    connections: int,
    watch: float | None,
    grace: float,
    access_log: bool,
    started: Callable[[], None],
) -> None:
    """Serve until a signal, then finish open requests; a second signal cancels them.

    `timeouts`: timeouts of connections.
    `connections`: maximal number of connections.
    `watch`: seconds between checks of the packages' files; None disables them.
    `grace`: seconds for open requests to finish after a signal to stop.
    `access_log`: whether each request is logged.
    `started`: called when the service accepts requests.
    """
    # Loaded objects stay: exclude them from garbage collection.
    gc.collect()
    gc.freeze()
    # Worker threads yield to the event loop after this time; their C calls hold the lock only briefly.
    sys.setswitchinterval(_SWITCH)
    clients = Connections(service, service.account, timeouts, connections, access_log)
    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(_serve(service, clients, listening, signals, watch, grace, started))
    finally:
        loop.close()
        service.close()


async def _serve(
    service: Service,
    clients: Connections,
    listening: socket.socket,
    signals: Signals,
    watch: float | None,
    grace: float,
    started: Callable[[], None],
) -> None:
    loop = asyncio.get_running_loop()

    def protocol() -> Connection:
        return Connection(clients, loop)

    server: asyncio.Server | Acceptor
    if service.peers is None:
        server = await loop.create_server(protocol, sock=listening, backlog=BACKLOG)
    else:
        server = Acceptor(loop, listening, protocol, service.peers, clients.open)
    started()
    tick = min(_TICK, watch or _TICK, *vars(clients.timeouts).values())
    look = loop.time()
    watcher = None
    while not signals.stop:
        await asyncio.sleep(tick)
        now = loop.time()
        clients.expire(now)
        _return_memory(service.account)
        if service.peers is not None:
            service.peers.tick()
        if (watcher is None or not watcher.is_alive()) and (
            signals.reload or (watch is not None and now >= look)
        ):
            force, signals.reload, look = signals.reload, False, now + (watch or 0.0)
            # A daemon thread does not block the process's exit if a disk hangs.
            watcher = threading.Thread(target=service.repository.refresh, args=(force,), daemon=True)
            watcher.start()
    service.stopping = True
    server.close()
    clients.stop()
    end = loop.time() + grace
    while clients.open and loop.time() < end and signals.stop < 2:
        await asyncio.sleep(tick)
        clients.expire(loop.time())
    await clients.abort()
    if service.peers is not None:
        service.peers.publish()


def _return_memory(account: Account) -> None:
    """Return memory of answered large requests to the system; the C library would keep it."""
    if account.most > _KEPT and not account.bytes and _trim is not None:
        account.most = 0
        _trim(0)
