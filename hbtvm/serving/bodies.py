"""Bodies of requests: read within limits of time and memory, and unpacked."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Awaitable, Callable, Generator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from hbtvm.serving.messages import BINARY_HEADER

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Bytes = bytes | bytearray
Headers = Mapping[bytes, bytes]

_LATER = (b"retry-after", b"1")
_CLOSE = (b"connection", b"close")

_STEP = 1 << 20
"""Bytes that are unpacked at a time."""


@dataclass(frozen=True)
class Limits:
    """What a service takes at most; what is more is refused at once.

    Attributes
    ----------
    body
        Bytes of a request's body, also when uncompressed.
    bodies
        Bytes of all bodies that are read or worked on, and of their answers until clients have read them.
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
    inline: int = 64 << 10
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
    """Bytes that requests and their answers hold, and those that connections hold for later requests.

    Worker threads hold bytes, too, so that a count changes under a lock.

    Attributes
    ----------
    bytes
        How many are held now.
    most
        How many were held at most since this was set.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.bytes, self.most = limits, 0, 0
        self._lock = threading.Lock()

    def take(self, count: int, held: int = 0) -> None:
        """Hold more bytes.

        Parameters
        ----------
        count
            How many; give back a negative number.
        held
            Bytes that the same request holds already.

        Raises
        ------
        Refused
            If the request alone needs more than the limit (413), or there is no room now (429).
        """
        most = self.limits.bodies
        with self._lock:
            if count > 0 and self.bytes + count > most:
                if held + count > most:
                    raise Refused(
                        413,
                        f"this request and its answer need more than {most:,} bytes of memory; "
                        "ask for fewer rows at a time (the service's limit is --max-memory)",
                    )
                raise too_many("too many bytes of requests are at hand")
            self.bytes += count
            self.most = max(self.most, self.bytes)


class Share:
    """The bytes that one request holds until it is answered.

    Attributes
    ----------
    count
        How many.
    """

    def __init__(self, account: Account) -> None:
        self._account, self.count = account, 0

    def take(self, count: int) -> None:
        """Hold more bytes, or give some back; see `Account.take`."""
        self._account.take(count, self.count)
        self.count += count

    def require(self, count: int) -> None:
        """Raise what `take` would raise, and hold nothing."""
        self.take(count)
        self.take(-count)

    def release(self) -> None:
        """Give all of them back."""
        if self.count:
            self.take(-self.count)


async def read_body(share: Share, limits: Limits, first: Message | Coming, receive: Receive) -> Bytes:
    """Read a request's body, and hold it.

    Parameters
    ----------
    share
        Of the request.
    first
        The first message, there or coming; see `begun`.

    Raises
    ------
    Refused
        If it is too long (413), takes too long (408), or there is no room for it (429).
    Gone
        If the client gave up.
    """
    try:
        return await asyncio.wait_for(_rest(share, limits.body, first, receive), limits.seconds)
    except asyncio.TimeoutError as error:
        reason = f"the request took more than {limits.seconds:g} s to arrive"
        raise Refused(408, reason, _CLOSE) from error


async def _rest(share: Share, most: int, first: Message | Coming, receive: Receive) -> Bytes:
    message = await first if isinstance(first, Coming) else first
    # (An array that grows is moved by the system; a list of parts would be there twice when it is joined.)
    body = bytearray()
    while True:
        if message["type"] != "http.request":
            raise Gone
        part = message.get("body", b"")
        if len(body) + len(part) > most:
            raise Refused(413, f"the request is too long; at most {most:,} bytes are taken")
        # Room is taken only by what has arrived: else a few idle connections could take all of it.
        share.take(len(part))
        if not message.get("more_body", False) and not body:
            return bytes(part)
        body += part
        if not message.get("more_body", False):
            return body
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


def read_headers(headers: Headers) -> tuple[int, int | None, bytes]:
    """Length of the body (0 if it is not told), length of its JSON, and how it is packed.

    Raises
    ------
    Refused
        If a length is no number (400), or it is packed otherwise than by gzip or deflate (415).
    """
    length = _number(headers, b"content-length")
    header_length = _number(headers, BINARY_HEADER)
    encoding = headers.get(b"content-encoding", b"").lower()
    if encoding not in (b"", b"identity", b"gzip", b"deflate"):
        raise Refused(415, "bodies may be packed by gzip or deflate only")
    return length or 0, header_length, b"" if encoding == b"identity" else encoding


def _number(headers: Headers, name: bytes) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise Refused(400, f"the header {name.decode()} is no whole number")
    return int(value)


def unpacked(body: Bytes, encoding: bytes, most: int, share: Share) -> Bytes:
    """Unpack a body that was packed by gzip or deflate (that is, zlib), and hold the result.

    Raises
    ------
    Refused
        If it has more than `most` bytes (413), there is no room for it (429), or it was not packed so (400).
    """
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | (16 if encoding == b"gzip" else 0))
    data = bytearray()
    rest: Bytes = body
    try:
        while not reader.eof:
            share.take(_STEP)
            part = reader.decompress(rest, _STEP)
            share.take(len(part) - _STEP)
            if not part:
                break
            data += part
            if len(data) > most:
                raise Refused(413, f"the unpacked request is too long; at most {most:,} bytes are taken")
            rest = reader.unconsumed_tail
    except zlib.error as error:
        raise Refused(400, f"the body is not packed by {encoding.decode()}") from error
    if not reader.eof or reader.unused_data:
        raise Refused(400, f"the body packed by {encoding.decode()} is not whole")
    return data
