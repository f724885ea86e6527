"""HTTP/1.1 over a connection, with limits on head size, read-ahead, and time.

A connection reads ahead at most the bytes of one system read. It parses them one slice at a time, and only
until a request waits for its answer; the service's account holds the rest. A client that sends without end,
or does not read, therefore costs a fixed number of bytes. `Connections` closes late connections.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import deque
from typing import cast

import httptools
import orjson

from hbtvm.serving.bodies import Refused
from hbtvm.serving.http.connections import Connections
from hbtvm.serving.http.exchange import STATUS_LINES, Exchange, path_of

_log = logging.getLogger(__name__)
_access = logging.getLogger("hbtvm.access")

_SLICE = 64 << 10  # bytes parsed at a time
_AHEAD = 64 << 10  # bytes of a body that may wait for the application before reading pauses

_HEAD = 16 << 10
"""Maximal bytes of a request's target, of its headers and trailers, and between parts of its body."""

_HEADERS = 100  # maximal number of a request's headers
_QUEUED = 400  # bytes accounted for a parsed request that waits behind another
_BUFFER = 16 << 10  # bytes of responses that may wait for the client before the service waits
_LINGER = 2.0  # seconds for a refused client to read the answer, which closing at once would drop


class _Phase(enum.Enum):
    IDLE = enum.auto()
    HEAD = enum.auto()
    BUSY = enum.auto()
    CLOSING = enum.auto()


class _Malformed(Exception):
    """A request is refused while it is parsed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Connection(asyncio.Protocol):
    """A client's connection.

    `deadline`: time on the event loop's clock at which the connection is late.
    """

    def __init__(self, all_of_them: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self._all, self._loop = all_of_them, loop
        self._transport = cast("asyncio.Transport", None)
        self._parser = httptools.HttpRequestParser(self)
        # If a client sends more after its last request, that request is still answered.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._phase, self.deadline, self._since, self._answers = _Phase.IDLE, 0.0, 0.0, 0
        # The request in progress, those queued, and the request whose body is being parsed.
        self._current: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._parsed: Exchange | None = None
        self._rest = memoryview(b"")
        self._held = 0
        self._paused = self._full = self._last = False
        self._room: asyncio.Future[None] | None = None
        self._refusal: _Malformed | None = None
        self._begun = False
        self._target, self._headers = b"", cast("list[tuple[bytes, bytes]]", [])
        self._head_size = self._silent = 0
        self._continues = self._hosts = False

    @property
    def idle(self) -> bool:
        """Whether the connection waits for a request."""
        return self._current is None and self._phase is not _Phase.CLOSING

    @property
    def rank(self) -> tuple[bool, float]:
        """Order in which idle connections are closed: those without any request first, then the oldest."""
        return self._answers > 0, self._since

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_BUFFER)
        if self._all.admit(self):
            self._wait()
        else:
            self._refuse(_Malformed(503, "there are too many connections; try again later"))

    def connection_lost(self, error: Exception | None) -> None:
        """End the connection."""
        self._all.open.discard(self)
        self._phase, self._rest = _Phase.CLOSING, memoryview(b"")
        self._queue.clear()
        self.hold()
        if self._current is not None:
            self._current.gone = True
            self._current.wake()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse data, or keep it until there is room."""
        if self._phase is _Phase.CLOSING:
            return
        if self._rest:
            data = bytes(self._rest) + data
        self._rest = memoryview(data)
        self.read_on()
        if self._phase is _Phase.IDLE and self._current is None:
            self._wait_for_head()

    def pause_writing(self) -> None:
        """Note that the client does not read."""
        self._full = True

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        self._full = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Start a request."""
        self._target, self._headers, self._head_size, self._silent = b"", [], 0, 0
        self._begun, self._continues, self._hosts = True, False, False

    def on_url(self, part: bytes) -> None:
        """Add a part of the target."""
        self._target += part
        if len(self._target) > _HEAD:
            raise _Malformed(414, f"the request's target has more than {_HEAD:,} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; of a trailer, count its size only."""
        self._head_size += len(name) + len(value)
        if self._head_size > _HEAD or len(self._headers) >= _HEADERS:
            raise _Malformed(
                431, f"the request has more than {_HEAD:,} bytes of headers, or more than {_HEADERS} headers"
            )
        self._headers.append((name := name.lower(), value))
        if name == b"expect":
            self._continues = value.lower() == b"100-continue"
        elif name == b"host":
            if self._hosts:
                raise _Malformed(400, "the request has several Host headers")
            self._hosts = True

    def on_headers_complete(self) -> None:
        """Start to answer, if no other request is in progress."""
        self._silent, self._begun = 0, False
        if self._last:
            return
        parser = self._parser
        try:
            path = path_of(self._target)
        except httptools.HttpParserInvalidURLError:
            raise _Malformed(400, "the request's target is not an address") from None
        version, keep = parser.get_http_version(), parser.should_keep_alive() and not parser.should_upgrade()
        method = parser.get_method().decode("ascii")
        headers, self._headers = self._headers, []
        exchange = Exchange(self, method, self._target, path, headers, version, keep, self._continues)
        self._last = not keep
        self._parsed = exchange
        if self._current is None:
            self._start(exchange)
        else:
            self._queue.append(exchange)

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._silent = 0
        if self._parsed is not None:
            self._parsed.arrived(body, complete=False)

    def on_message_complete(self) -> None:
        """End a request."""
        self._silent = 0
        if self._parsed is not None:
            self._parsed.arrived(b"", complete=True)
            self._parsed = None

    # Called by an exchange.

    def read_on(self) -> bool:
        """Parse kept data as far as there is room; return whether there was any."""
        parsed = False
        while self._rest and self._phase is not _Phase.CLOSING and self._wants():
            part, self._rest = self._rest[:_SLICE], self._rest[_SLICE:]
            self._parse(part)
            parsed = True
        if self._phase is not _Phase.CLOSING:
            # A client that waits for its answer sends nothing: pausing would be wasted.
            current = self._current
            self._pause(bool(self._rest) or (current is not None and len(current.body) >= _AHEAD))
            self.hold()
        return parsed

    def hold(self) -> None:
        """Account for read-ahead data."""
        current = self._current
        count = len(self._rest) + _QUEUED * len(self._queue)
        if current is not None and len(current.body) > _SLICE:
            count += len(current.body)
        if count == self._held:
            return
        try:
            self._all.account.take(count - self._held)
            self._held = count
        except Refused as refused:
            self._queue.clear()
            self._malformed(_Malformed(429, refused.reason))
            self._all.account.take(-self._held)
            self._held = 0

    def write(self, data: bytes) -> None:
        """Write bytes, unless the connection is closed."""
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until the client has read enough for more."""
        if not self._full or self._transport.is_closing():
            return
        self.deadline = self._loop.time() + self._all.timeouts.write
        self._room = self._loop.create_future()
        await self._room
        self.deadline = float("inf")

    def answered(self, exchange: Exchange) -> None:
        """Continue with the next request."""
        if self._phase is _Phase.CLOSING:
            return
        self._current = None
        self._answers += 1
        if not exchange.keep_alive:
            self._close(linger=not exchange.complete)
        elif self._queue:
            self._start(self._queue.popleft())
        elif self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self._wait()
        if self._rest or self._paused:
            self.read_on()

    def log(self, exchange: Exchange, status: int) -> None:
        """Log a response."""
        if self._all.access_log:
            client = self._transport.get_extra_info("peername") or ("",)
            target = exchange.target.decode("ascii", "backslashreplace")
            _access.info(
                '%s - "%s %s HTTP/%s" %d', client[0], exchange.method, target, exchange.version, status
            )

    # Called by `Connections`.

    def expire(self) -> None:
        """Close the connection, which is late."""
        if self._phase is _Phase.HEAD:
            seconds = self._all.timeouts.head
            self._refuse(_Malformed(408, f"the request's head took more than {seconds:g} s to arrive"))
        elif self._phase is _Phase.IDLE and not self._transport.get_write_buffer_size():
            self._close()
        else:
            self.abort()

    def stop(self) -> None:
        """Close the connection after the current request."""
        if self._current is None:
            self._close()
        else:
            self._last, self._current.keep_alive = True, False

    def abort(self) -> None:
        """Close the connection at once."""
        self._phase = _Phase.CLOSING
        self._all.open.discard(self)
        self._transport.abort()

    # Internal.

    def _wants(self) -> bool:
        """Return whether there is room for more data."""
        current = self._current
        return current is None or (not current.complete and len(current.body) < _AHEAD)

    def _parse(self, part: memoryview) -> None:
        self._silent += len(part)
        try:
            self._parser.feed_data(part)
            if self._silent > _HEAD:
                # No head or body part has ended: a name or a trailer is endless.
                raise _Malformed(431, f"the request's head has more than {_HEAD:,} bytes")
        except httptools.HttpParserUpgrade:
            self._rest = memoryview(b"")
        except (httptools.HttpParserError, _Malformed) as error:
            reason = error if isinstance(error, _Malformed) else error.__context__
            if not isinstance(reason, _Malformed):
                if reason is not None:
                    _log.error("this is a bug in hbtvm", exc_info=reason)
                reason = _Malformed(400, "this is not an HTTP request")
            self._malformed(reason)

    def _malformed(self, refusal: _Malformed) -> None:
        """Refuse data that the parser cannot continue with, after earlier answers."""
        self._rest = memoryview(b"")
        current = self._current
        if current is None:
            self._refuse(refusal)
        elif current.complete:
            self._refusal, self._last = refusal, True
            self._pause(True)
        elif current.started:
            self.abort()
        else:
            current.gone = True
            current.wake()
            self._refuse(refusal)

    def _refuse(self, refusal: _Malformed) -> None:
        body = orjson.dumps({"error": refusal.reason})
        head = STATUS_LINES[refusal.status] + (
            b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        )
        self.write(head % len(body) + body)
        self._close(linger=True)

    def _start(self, exchange: Exchange) -> None:
        self._current, self._phase, self.deadline = exchange, _Phase.BUSY, float("inf")
        task = self._loop.create_task(self._run(exchange))
        self._all.tasks.add(task)
        task.add_done_callback(self._all.tasks.discard)

    async def _run(self, exchange: Exchange) -> None:
        try:
            await self._all.app(exchange.scope(), exchange.receive, exchange.send)
        except Exception:
            _log.exception("%s %s", exchange.method, exchange.path)
        finally:
            if not exchange.done and not exchange.gone:
                self.abort()

    def _wait(self) -> None:
        """Wait for the next request."""
        self._phase, self._since = _Phase.IDLE, self._loop.time()
        self.deadline = self._since + self._all.timeouts.idle
        if self._begun:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._phase, self.deadline = _Phase.HEAD, self._loop.time() + self._all.timeouts.head

    def _close(self, linger: bool = False) -> None:
        """Close after all data is sent; with `linger`, when the client closes or some seconds later."""
        self._phase, self._rest = _Phase.CLOSING, memoryview(b"")
        self._queue.clear()
        self.hold()
        self.deadline = self._loop.time() + (_LINGER if linger else self._all.timeouts.write)
        if linger and not self._transport.is_closing():
            self._pause(False)
            self._transport.write_eof()
        else:
            self._transport.close()

    def _pause(self, paused: bool) -> None:
        if paused != self._paused and not self._transport.is_closing():
            self._paused = paused
            (self._transport.pause_reading if paused else self._transport.resume_reading)()
