"""The service as an ASGI application.

Answers of a few rows are computed where they arrive, which takes less time than handing them to a thread;
others by threads, so that health and small requests do not wait for them.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson

from hbtvm import __version__
from hbtvm.errors import HbtvmError, InputError
from hbtvm.serving.messages import BINARY_HEADER, read_request, write_response
from hbtvm.serving.metrics import CONTENT_TYPE, Metrics
from hbtvm.serving.repository import Repository
from hbtvm.serving.served import Served

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

EXTENSIONS = ["binary_tensor_data", "model_repository"]

_JSON = (b"content-type", b"application/json")
_OCTETS = (b"content-type", b"application/octet-stream")

_MODELS = "/v2/models/"
_REPOSITORY = "/v2/repository/models/"


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
    """A request that is not answered as asked."""

    def __init__(self, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


class Service:
    """The application.

    Parameters
    ----------
    repository
        The models.
    metrics
        What is counted.
    limits
        What is taken at most.
    workers
        Threads that compute answers of many rows.

    Attributes
    ----------
    bodies
        Bytes of bodies that are read or worked on.
    stopping
        Whether the service is about to end, and so is not ready for more.
    """

    def __init__(
        self, repository: Repository, metrics: Metrics, limits: Limits | None = None, workers: int = 2
    ) -> None:
        self.repository, self.metrics, self.limits = repository, metrics, limits or Limits()
        self._pool = ThreadPoolExecutor(workers, "hbtvm-serve")
        self.bodies = self._waiting = 0
        self.stopping = False
        metrics.waiting = lambda: self._waiting
        self._names = {f"{_MODELS}{name}/infer": name for name in repository.names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        name = self._names.get(path, "")
        try:
            if name and scope["method"] == "POST":
                await self._infer(name, scope, receive, send)
            else:
                await self._other(path, scope, receive, send)
        except _Gone:
            pass
        except Refused as refused:
            if name:
                self.metrics.of(name).refused(refused.status)
            await _answer(send, refused.status, {"error": refused.reason}, *refused.headers)
        except Exception as error:
            _log.exception("%s %s", scope["method"], path)
            if name:
                self.metrics.of(name).refused(500)
            await _answer(send, 500, {"error": f"this is a bug in hbtvm: {type(error).__name__}"})

    async def _infer(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._served(name)
        length, header_length, encoding = _headers(scope["headers"])
        if length > self.limits.body:
            raise Refused(413, f"the request has {length:,} bytes; at most {self.limits.body:,} are taken")
        message = await receive()
        start = time.perf_counter()
        if not message.get("more_body", True) and length <= self.limits.inline and not encoding:
            made, json_length, rows = _computed(served, message["body"], header_length)
        else:
            held = _Held(self)
            try:
                body = await self._body(message, receive, held, length)
                start = time.perf_counter()
                made, json_length, rows = await self._by_thread(served, body, header_length, encoding)
            finally:
                held.release()
        self.metrics.of(name).answered(rows, time.perf_counter() - start)
        headers = [(b"content-length", b"%d" % len(made))]
        if json_length is None:
            headers.append(_JSON)
        else:
            headers += [_OCTETS, (BINARY_HEADER, b"%d" % json_length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": made})

    def _served(self, name: str) -> Served:
        served = self.repository.served.get(name)
        if served is None:
            if name in self.repository:
                raise Refused(503, f"model {name} is not loaded")
            raise Refused(404, f"there is no model {name!r:.80}")
        return served

    async def _body(self, first: Message, receive: Receive, held: _Held, length: int) -> bytes:
        """The request's body, of which the first part is there."""
        held.add(length)
        rest = self._rest(first, receive, held, length)
        try:
            return await asyncio.wait_for(rest, self.limits.seconds)
        except asyncio.TimeoutError as error:
            raise Refused(408, f"the request took more than {self.limits.seconds:g} s to arrive") from error

    async def _rest(self, message: Message, receive: Receive, held: _Held, length: int) -> bytes:
        parts: list[bytes] = []
        count = 0
        while True:
            if message["type"] != "http.request":
                raise _Gone
            parts.append(message["body"])
            count += len(parts[-1])
            if count > self.limits.body:
                raise Refused(413, f"the request is too long; at most {self.limits.body:,} bytes are taken")
            if count > length:  # none was told
                held.add(count - length)
                length = count
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)
            message = await receive()

    async def _by_thread(
        self, served: Served, body: bytes, header_length: int | None, encoding: bytes
    ) -> _Answer:
        if encoding:
            body = _unpacked(body, encoding, self.limits.body)
        if len(body) <= self.limits.inline:
            return _computed(served, body, header_length)
        if self._waiting >= self.limits.waiting:
            raise Refused(429, f"{self._waiting} requests are waiting; try again later", _LATER)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, _computed, served, body, header_length)
        finally:
            self._waiting -= 1

    async def _other(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """All but predictions."""
        method = scope["method"]
        if path.startswith("/v2/repository/"):
            if method != "POST":
                raise Refused(405, "the repository is asked by POST", (b"allow", b"POST"))
            await self._change(path, send)
            return
        if path.endswith("/infer") and path.startswith(_MODELS):
            await self._versioned(path[len(_MODELS) : -len("/infer")], scope, receive, send)
            return
        if method not in ("GET", "HEAD"):
            raise Refused(405, f"{method} of {path:.80} is not known", (b"allow", b"GET"))
        if path == "/metrics":
            await _send(send, 200, self.metrics.text(), (b"content-type", CONTENT_TYPE.encode()))
        elif path == "/v2/health/live":
            await _answer(send, 200, {"live": True})
        elif path == "/v2/health/ready":
            ready = self.repository.ready and not self.stopping
            await _answer(send, 200 if ready else 503, {"ready": ready})
        elif path in ("/v2", "/v2/"):
            await _answer(send, 200, {"name": "hbtvm", "version": __version__, "extensions": EXTENSIONS})
        elif path.startswith(_MODELS):
            await self._model(path[len(_MODELS) :], send)
        else:
            raise Refused(404, f"there is nothing at {path:.80}")

    async def _versioned(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Predictions by a version of a model, which is the one that there is."""
        if scope["method"] != "POST":
            raise Refused(405, "predictions are asked for by POST", (b"allow", b"POST"))
        name, version = _model_of(path)
        _check_version(self._served(name), version)
        await self._infer(name, scope, receive, send)

    async def _model(self, path: str, send: Send) -> None:
        """Metadata of a model, and whether it is ready."""
        of_ready = path.endswith("/ready")
        name, version = _model_of(path.removesuffix("/ready"))
        if of_ready and name in self.repository:
            ready = name in self.repository.served
            await _answer(send, 200 if ready else 503, {"name": name, "ready": ready})
            return
        served = self._served(name)
        _check_version(served, version)
        await _answer(send, 200, served.metadata())

    async def _change(self, path: str, send: Send) -> None:
        """List, load or unload models."""
        if path == "/v2/repository/index":
            await _answer(send, 200, self.repository.index())
            return
        name, _, action = path.removeprefix(_REPOSITORY).rpartition("/")
        if not path.startswith(_REPOSITORY) or action not in ("load", "unload"):
            raise Refused(404, f"there is nothing at {path:.80}")
        if name not in self.repository:
            raise Refused(404, f"there is no model {name!r:.80}")
        change = self.repository.load if action == "load" else self.repository.unload
        try:
            # In a thread of its own, so that no prediction waits for it, nor it for them.
            await asyncio.to_thread(change, name)
        except (HbtvmError, OSError, MemoryError) as error:
            raise Refused(400, str(error)) from error
        await _answer(send, 200, {})

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


class _Held:
    """Bytes of one request's body that are accounted for."""

    def __init__(self, service: Service) -> None:
        self._service, self._count = service, 0

    def add(self, count: int) -> None:
        service = self._service
        if service.bodies + count > service.limits.bodies:
            raise Refused(429, "too many bytes of requests are waiting; try again later", _LATER)
        service.bodies += count
        self._count += count

    def release(self) -> None:
        self._service.bodies -= self._count


class _Gone(Exception):
    """The client closed the connection before its request had arrived."""


_Answer = tuple[bytes, int | None, int]
"""A body, the bytes of its JSON where others follow, and the rows predicted."""

_LATER = (b"retry-after", b"1")


def _computed(served: Served, body: bytes, header_length: int | None) -> _Answer:
    try:
        request = read_request(body, header_length)
        outputs = served.infer(request)
    except InputError as error:
        raise Refused(400, str(error)) from error
    except (HbtvmError, MemoryError) as error:
        _log.error("%s: %s", served.name, error)
        raise Refused(500, str(error) or "there is not enough memory") from error
    made, json_length = write_response(served.head, request.identity, outputs)
    return made, json_length, len(outputs[0][1])


def _headers(headers: list[tuple[bytes, bytes]]) -> tuple[int, int | None, bytes]:
    """Length of the body (0 if it is not told), length of its JSON, and how it is packed."""
    length, header_length, encoding = 0, None, b""
    for name, value in headers:
        if name == b"content-length":
            length = _number(name, value)
        elif name == BINARY_HEADER:
            header_length = _number(name, value)
        elif name == b"content-encoding" and value.lower() != b"identity":
            encoding = value.lower()
    return length, header_length, encoding


def _number(name: bytes, value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise Refused(400, f"the header {name.decode()} is no whole number")
    return int(value)


def _unpacked(body: bytes, encoding: bytes, most: int) -> bytes:
    """A body that was packed; no longer than `most`."""
    if encoding not in (b"gzip", b"deflate"):
        raise Refused(415, "bodies may be packed by gzip or deflate only")
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


def _model_of(path: str) -> tuple[str, str | None]:
    """A model's name and version, if one is told, of a path behind ``/v2/models/``."""
    name, slash, version = path.partition("/versions/")
    if not name or "/" in name or "/" in version or (slash and not version):
        raise Refused(404, f"there is no model {path!r:.80}")
    return name, version or None


def _check_version(served: Served, version: str | None) -> None:
    if version is not None and version != served.version:
        raise Refused(404, f"model {served.name} has version {served.version}, not {version!r:.20}")


async def _answer(send: Send, status: int, told: Any, *headers: tuple[bytes, bytes]) -> None:
    await _send(send, status, orjson.dumps(told), _JSON, *headers)


async def _send(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    own = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
