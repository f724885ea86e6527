"""Bodies of requests: read within limits of time and memory, and unpacked."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from dataclasses import dataclass
from typing import Any

from hbtvm.serving.messages import BINARY_HEADER

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

_LATER = (b"retry-after", b"1")
_CLOSE = (b"connection", b"close")


@dataclass(frozen=True)
class Limits:
    """What a service takes at most; what is more is refused at once.

    Attributes
    ----------
    body
        Bytes of a request's body, also when uncompressed.
    bodies
        Bytes of all bodies that are read or worked on.
    waiting
        Requests that wait for a thread or are computed by one.
    inline
        Bytes of a body that is worked on where it arrives.
    seconds
        For a request's body to arrive.
    """

    body: int = 16 << 20
    bodies: int = 256 << 20
    waiting: int = 64
    inline: int = 16 << 10
    seconds: float = 30.0


class Refused(Exception):
    """A request that is not answered as asked.

    Parameters
    ----------
    status, reason, headers
        Of the response.
    """

    def __init__(self, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class Gone(Exception):
    """The client closed the connection before its request had arrived."""


def too_many(reason: str) -> Refused:
    """The refusal of what another time may be answered."""
    return Refused(429, f"{reason}; try again later", _LATER)


class Account:
    """Bytes of all bodies that are read or worked on.

    Attributes
    ----------
    bytes
        How many there are now.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.bytes = limits, 0


class Body:
    """One request's body, which is accounted for until it is released.

    Parameters
    ----------
    account
        That of the service.
    length
        Bytes that the request's header tells; 0 if it tells none.

    Raises
    ------
    Refused
        If there is no room for so many (429).
    """

    def __init__(self, account: Account, length: int) -> None:
        self._account, self._count = account, 0
        # Room is taken only by what has arrived: else a few idle connections could take all of it.
        self._require(length)

    def _require(self, count: int) -> None:
        if self._account.bytes + count > self._account.limits.bodies:
            raise too_many("too many bytes of requests are at hand")

    def hold(self, count: int) -> None:
        """Take so many bytes into account.

        Raises
        ------
        Refused
            If there is no room for them (429).
        """
        self._require(count)
        self._account.bytes += count
        self._count += count

    def release(self) -> None:
        """Take them out of the account."""
        self._account.bytes -= self._count
        self._count = 0

    async def read(self, first: Message | Coming, receive: Receive) -> bytes:
        """All of it.

        Parameters
        ----------
        first
            The first message, there or coming; see `begun`.

        Raises
        ------
        Refused
            If it is too long (413), takes too long (408), or there is no room for it (429).
        Gone
            If the client gave up.
        """
        seconds = self._account.limits.seconds
        try:
            return await asyncio.wait_for(self._rest(first, receive), seconds)
        except asyncio.TimeoutError as error:
            reason = f"the request took more than {seconds:g} s to arrive"
            raise Refused(408, reason, _CLOSE) from error

    async def _rest(self, first: Message | Coming, receive: Receive) -> bytes:
        message = await first if isinstance(first, Coming) else first
        most = self._account.limits.body
        parts: list[bytes] = []
        count = 0
        while True:
            if message["type"] != "http.request":
                raise Gone
            parts.append(message.get("body", b""))
            count += len(parts[-1])
            if count > most:
                raise Refused(413, f"the request is too long; at most {most:,} bytes are taken")
            self.hold(len(parts[-1]))
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)
            message = await receive()


class Coming:
    """A message that was begun to wait for, and can be awaited still.

    Parameters
    ----------
    steps
        The iterator of what waits for it, which has made its first step.
    first
        What that step waits for.
    """

    def __init__(self, steps: Generator[Any, Any, Message], first: Any) -> None:
        self._steps, self._first = steps, first

    def __await__(self) -> Generator[Any, Any, Message]:
        yield self._first
        return (yield from self._steps)


def begun(receive: Receive) -> Message | Coming:
    """A request's first message, if it is there, as nearly always; else what waits for it.

    So a request that has arrived takes no timer: that costs as much as reading its JSON.
    """
    steps = receive().__await__()
    try:
        first = next(steps)
    except StopIteration as done:
        found: Message = done.value
        return found
    return Coming(steps, first)


def read_headers(headers: list[tuple[bytes, bytes]]) -> tuple[int, int | None, bytes]:
    """Length of the body (0 if it is not told), length of its JSON, and how it is packed.

    Raises
    ------
    Refused
        If a length is no number (400), or it is packed otherwise than by gzip or deflate (415).
    """
    length, header_length, encoding = 0, None, b""
    for name, value in headers:
        if name == b"content-length":
            length = _number(name, value)
        elif name == BINARY_HEADER:
            header_length = _number(name, value)
        elif name == b"content-encoding" and value.lower() != b"identity":
            encoding = value.lower()
            if encoding not in (b"gzip", b"deflate"):
                raise Refused(415, "bodies may be packed by gzip or deflate only")
    return length, header_length, encoding


def _number(name: bytes, value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise Refused(400, f"the header {name.decode()} is no whole number")
    return int(value)


def unpacked(body: bytes, encoding: bytes, most: int) -> bytes:
    """A body that was packed by gzip or deflate (that is, zlib).

    Raises
    ------
    Refused
        If it has more than `most` bytes (413), or was not packed so (400).
    """
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | (16 if encoding == b"gzip" else 0))
    try:
        made = reader.decompress(body, most + 1)
    except zlib.error as error:
        raise Refused(400, f"the body is not packed by {encoding.decode()}") from error
    if len(made) > most:
        raise Refused(413, f"the unpacked request is too long; at most {most:,} bytes are taken")
    if not reader.eof or reader.unused_data:
        raise Refused(400, f"the body packed by {encoding.decode()} is not whole")
    return made
