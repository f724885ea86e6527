"""A request and its response, between a connection's bytes and the application."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

import httptools

from hbtvm.serving.bodies import Message

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}

_SLICE = 64 << 10
"""Bytes of a response written at a time, which bounds the memory of a client that does not read."""


_HELD = 16 << 10  # bytes of a body accounted for by its connection


def path_of(target: bytes) -> str:
    """Return the unescaped path of a request's target.

    Raises `HttpParserInvalidURLError` if the target is invalid.
    """
    path = target
    if path[:1] != b"/" or b"?" in path or b"#" in path:
        path = httptools.parse_url(path).path or b"/"
    text = path.decode("latin-1")
    return unquote(text) if "%" in text else text


class Channel(Protocol):
    """The connection of an exchange."""

    def read_on(self) -> bool:
        """Parse kept data as far as there is room; return whether there was any."""

    def hold(self) -> None:
        """Account for read-ahead data."""

    def write(self, data: bytes) -> None:
        """Write bytes, unless the connection is closed."""

    async def drained(self) -> None:
        """Wait until the client has read enough for more."""

    def answered(self, exchange: Exchange) -> None:
        """Continue with the next request."""

    def log(self, exchange: Exchange, status: int) -> None:
        """Log a response."""


class Exchange:
    """A request as it arrives, with the application's receive and send.

    `method`, `target`, `path`, `headers`, `version`: from the request's head; the path is unescaped.
    `body`: arrived bytes that the application has not received.
    `complete`: whether the whole request has arrived.
    `started`, `done`: whether the response has started; whether it is complete.
    `gone`: whether the client has disconnected.
    `keep_alive`: whether another request may follow.
    """

    __slots__ = (
        "_connection", "_continues", "_head", "_waiter", "body", "complete", "done", "gone", "headers",
        "keep_alive", "method", "path", "started", "target", "version",
    )  # fmt: skip

    def __init__(
        self,
        connection: Channel,
        method: str,
        target: bytes,
        path: str,
        headers: list[tuple[bytes, bytes]],
        version: str,
        keep_alive: bool,
        continues: bool,
    ) -> None:
        self.method, self.target, self.path = method, target, path
        self.headers, self.version = headers, version
        self.keep_alive = keep_alive
        self.body = b""
        self.complete = self.started = self.done = self.gone = False
        self._connection, self._continues, self._head = connection, continues, b""
        self._waiter: asyncio.Future[None] | None = None

    def scope(self) -> dict[str, Any]:
        """Return the request's ASGI scope."""
        return {
            "type": "http",
            "http_version": self.version,
            "method": self.method,
            "path": self.path,
            "headers": self.headers,
        }

    def arrived(self, body: bytes, complete: bool) -> None:
        """Add a part of the body, or its end."""
        if body and not self.done:
            self.body = self.body + body if self.body else body
        self.complete = self.complete or complete
        self.wake()

    def wake(self) -> None:
        """Resume `receive`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def receive(self) -> Message:
        """Return the next part of the body (ASGI)."""
        while not (self.body or self.complete or self.gone or self.done):
            if self._continues and not self.started:
                self._continues = False
                self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if self._connection.read_on():
                continue
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.gone or self.done:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        if len(body) > _HELD:
            self._connection.hold()
        return {"type": "http.request", "body": body, "more_body": not self.complete}

    async def send(self, message: Message) -> None:
        """Start the response or write a part of its body (ASGI); ignore messages after a disconnect."""
        if self.gone:
            return
        if message["type"] == "http.response.start":
            self.started = True
            if not self.complete:
                self.keep_alive = False
            lines = [STATUS_LINES[message["status"]]]
            for name, value in message["headers"]:
                lines += (name, b": ", value, b"\r\n")
                if name == b"connection":
                    self.keep_alive = False
            if not self.keep_alive and (b"connection", b"close") not in message["headers"]:
                lines.append(b"connection: close\r\n")
            lines.append(b"\r\n")
            self._head = b"".join(lines)
            self._connection.log(self, message["status"])
            return
        body = message.get("body", b"") if self.method != "HEAD" else b""
        head, self._head = self._head, b""
        self._connection.write(head + body[:_SLICE])
        for at in range(_SLICE, len(body), _SLICE):
            await self._connection.drained()
            if self.gone:
                return
            self._connection.write(body[at : at + _SLICE])
        await self._connection.drained()
        if not message.get("more_body", False) and not self.gone:
            self.done = True
            self._connection.answered(self)
