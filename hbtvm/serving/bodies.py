"""Request bodies: read within limits of time and memory, and decompressed."""

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

_STEP = 1 << 20  # bytes decompressed at a time


@dataclass(frozen=True)
class Limits:
    """Limits of a service; requests beyond them are refused at once."""

    body: int = 16 << 20  # maximal bytes of a request's body, before and after decompression
    # Maximal bytes of all bodies in progress, and of their answers until clients have read them
    bodies: int = 256 << 20
    waiting: int = 64  # maximal number of requests that wait for a thread or run in one
    inline: int = 64 << 10  # maximal bytes of a body that the event loop processes
    seconds: float = 30.0  # maximal seconds for a request's body to arrive


class Refused(Exception):
    """A request is refused.

    `status`, `reason`, `headers`: status, reason and extra headers of the response.
    """

    def __init__(self, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class Gone(Exception):
    """The client closed the connection before its request arrived."""


def too_many(reason: str) -> Refused:
    """Return a refusal that invites a retry."""
    return Refused(429, f"{reason}; try again later", _LATER)


class Account:
    """Bytes held by requests and answers, and by connections for later requests.

    Worker threads hold bytes too, so counts change under a lock.

    `bytes`: bytes held now.
    `most`: maximal bytes held since this was set.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.bytes, self.most = limits, 0, 0
        self._lock = threading.Lock()

    def take(self, count: int, held: int = 0) -> None:
        """Hold more bytes.

        `count`: number of bytes; negative to release them.
        `held`: bytes that the request already holds.
        Raises `Refused` if the request needs more than the limit (413), or other requests hold the rest
        (429).
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
                raise too_many("other requests hold too much memory now")
            self.bytes += count
            self.most = max(self.most, self.bytes)


class Share:
    """The bytes that a request holds until it is answered.

    `count`: number of bytes.
    """

    def __init__(self, account: Account) -> None:
        self._account, self.count = account, 0

    def take(self, count: int) -> None:
        """Hold more bytes, or release some; see `Account.take`."""
        self._account.take(count, self.count)
        self.count += count

    def require(self, count: int) -> None:
        """Raise the error that `take` would raise, without holding bytes."""
        self.take(count)
        self.take(-count)

    def release(self) -> None:
        """Release all bytes."""
        if self.count:
            self.take(-self.count)


async def read_body(share: Share, limits: Limits, first: Message | Coming, receive: Receive) -> Bytes:
    """Read a request's body into accounted memory.

    `share`: the request's share.
    `first`: the first message, arrived or pending; see `begun`.
    Raises `Refused` if the body is too long (413), arrives too slowly (408), or memory is short (429). Raises
    `Gone` if the client disconnects.
    """
    try:
        return await asyncio.wait_for(_rest(share, limits.body, first, receive), limits.seconds)
    except asyncio.TimeoutError as error:
        reason = f"the request took more than {limits.seconds:g} s to arrive"
        raise Refused(408, reason, _CLOSE) from error


async def _rest(share: Share, most: int, first: Message | Coming, receive: Receive) -> Bytes:
    message = await first if isinstance(first, Coming) else first
    # The system can move a growing array; joining a list of parts would need twice the memory.
    body = bytearray()
    while True:
        if message["type"] != "http.request":
            raise Gone
        part = message.get("body", b"")
        if len(body) + len(part) > most:
            raise Refused(413, f"the request is too long; the limit is {most:,} bytes")
        # Account only for arrived bytes: otherwise a few idle connections could reserve all memory.
        share.take(len(part))
        if not message.get("more_body", False) and not body:
            return bytes(part)
        body += part
        if not message.get("more_body", False):
            return body
        message = await receive()


class Coming:
    """A pending message whose coroutine has started.

    `steps`: the coroutine's iterator, after its first step.
    `first`: the future that the first step awaits.
    """

    def __init__(self, steps: Generator[Any, Any, Message], first: Any) -> None:
        self._steps, self._first = steps, first

    def __await__(self) -> Generator[Any, Any, Message]:
        yield self._first
        return (yield from self._steps)


def begun(receive: Receive) -> Message | Coming:
    """Return a request's first message if it has arrived, as it nearly always has; else the pending message.

    Arrived requests need no timer, which costs as much as parsing their JSON.
    """
    steps = receive().__await__()
    try:
        first = next(steps)
    except StopIteration as done:
        message: Message = done.value
        return message
    return Coming(steps, first)


def read_headers(headers: Headers) -> tuple[int, int | None, bytes]:
    """Return the length of the body (0 if unknown), the length of its JSON, and its encoding.

    Raises `Refused` if a length is not a number (400), or the encoding is not gzip or deflate (415).
    """
    length = _number(headers, b"content-length")
    header_length = _number(headers, BINARY_HEADER)
    encoding = headers.get(b"content-encoding", b"").lower()
    if encoding not in (b"", b"identity", b"gzip", b"deflate"):
        raise Refused(415, "the body's encoding is not gzip or deflate")
    return length or 0, header_length, b"" if encoding == b"identity" else encoding


def _number(headers: Headers, name: bytes) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise Refused(400, f"the header {name.decode()} is not a whole number")
    return int(value)


def unpacked(body: Bytes, encoding: bytes, most: int, share: Share) -> Bytes:
    """Decompress a gzip or deflate (that is, zlib) body into accounted memory.

    Raises `Refused` if the result exceeds `most` bytes (413), memory is short (429), or the body is invalid
    (400).
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
                raise Refused(413, f"the uncompressed request is too long; the limit is {most:,} bytes")
            rest = reader.unconsumed_tail
    except zlib.error as error:
        raise Refused(400, f"the body is not valid {encoding.decode()}") from error
    if not reader.eof or reader.unused_data:
        raise Refused(400, f"the {encoding.decode()} body is incomplete, or has trailing bytes")
    return data
