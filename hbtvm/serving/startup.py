"""The socket and the log of a service, for processes that load no models."""

from __future__ import annotations

import logging
import socket
import sys

from hbtvm.errors import HbtvmError

BACKLOG = 2048  # connections that the system queues until they are accepted


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises `HbtvmError` if the port is in use, or the host is unknown.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise HbtvmError(f"{host}:{port}: {error.strerror or error}") from error
    return listener


def log_to_stderr(verbose: bool, processes: int = 1) -> None:
    """Log to standard error, a line with a time each, and with the process if there are several."""
    process = " %(process)d" if processes > 1 else ""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s{process} %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("hbtvm.serving").setLevel(logging.INFO)
