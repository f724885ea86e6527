"""Run the service until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn

from hbtvm.errors import HbtvmError
from hbtvm.serving.app import Service
from hbtvm.serving.repository import Repository

_log = logging.getLogger(__name__)

_BACKLOG = 2048
"""Connections that the system keeps until they are accepted."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises
    ------
    HbtvmError
        If the port is taken, or there is no such host.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(_BACKLOG)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise HbtvmError(f"{host}:{port}: {error.strerror or error}") from error
    return made


def run(
    service: Service,
    listening: socket.socket,
    *,
    watch: float | None,
    grace: float,
    access_log: bool,
    started: Callable[[], None],
) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is begun.

    Parameters
    ----------
    watch
        Seconds between looks at the packages' files; None for no looks. SIGHUP loads all of them anew.
    grace
        Seconds that requests have to end once the service is told to stop.
    access_log
        Whether each request is logged.
    started
        Called when requests are taken.
    """
    config = uvicorn.Config(
        service,
        lifespan="off",
        ws="none",
        # Nothing is answered by a client's address; the log tells the proxy's.
        proxy_headers=False,
        access_log=access_log,
        log_config=None,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=int(grace) or None,
        backlog=_BACKLOG,
    )
    server = _Server(config, service, started)
    # The server catches signals, ends, and raises them again: that is the end that was asked for.
    before = {one: signal.signal(one, _ignored) for one in (signal.SIGTERM, signal.SIGINT)}
    # What is loaded now stays: the collector of garbage need not look through it again and again.
    gc.collect()
    gc.freeze()
    loop = (config.get_loop_factory() or asyncio.new_event_loop)()
    try:
        loop.run_until_complete(_serve(server, service.repository, listening, watch))
    finally:
        loop.close()
        service.close()
        for one, handler in before.items():
            signal.signal(one, handler)


class _Server(uvicorn.Server):
    """Tells when it takes requests, and that it is not ready for more once it is told to stop."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._tell = service, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._service.stopping = True
        super().handle_exit(sig, frame)


async def _serve(
    server: _Server, repository: Repository, listening: socket.socket, watch: float | None
) -> None:
    async with _watching(repository, watch):
        await server.serve(sockets=[listening])


@contextlib.asynccontextmanager
async def _watching(repository: Repository, seconds: float | None) -> AsyncIterator[None]:
    """Load files that change, and all upon SIGHUP."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, asked.set)

    async def look() -> None:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asked.wait(), seconds)
            force = asked.is_set()
            asked.clear()
            await asyncio.to_thread(repository.refresh, force)

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        task.cancel()
        loop.remove_signal_handler(signal.SIGHUP)
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _ignored(number: int, frame: Any) -> None:
    """What a signal does that was acted upon already."""


def log_to_stderr(verbose: bool) -> None:
    """Log to standard error, a line each with its time."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("hbtvm.serving").setLevel(logging.INFO)
