"""The service as an ASGI application.

The event loop computes small answers itself, which takes less time than handing them to a thread. Threads
compute the others, so that health probes and small requests do not wait for them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orjson

from hbtvm import __version__
from hbtvm.errors import HbtvmError
from hbtvm.serving.access import Access, check_content_type
from hbtvm.serving.answers import Answer
from hbtvm.serving.bodies import (
    Account,
    Coming,
    Gone,
    Headers,
    Limits,
    Message,
    Receive,
    Refused,
    Share,
    begun,
    read_body,
    read_headers,
    too_many,
)
from hbtvm.serving.messages import BINARY_HEADER
from hbtvm.serving.metrics import CONTENT_TYPE, Metrics
from hbtvm.serving.plain.openapi import openapi, page
from hbtvm.serving.processes.peers import Peers
from hbtvm.serving.repository import PATIENCE, Repository
from hbtvm.serving.served import Served
from hbtvm.serving.work import computed, read, worked

_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

EXTENSIONS = ["binary_tensor_data", "model_repository"]

_JSON = (b"content-type", b"application/json")
_HTML = (b"content-type", b"text/html; charset=utf-8")
_OCTETS = (b"content-type", b"application/octet-stream")

_TURN = 0.4e-3  # seconds of predictions in a turn of the event loop, after which it starts no other

_POLL = 0.02  # seconds between looks whether other processes have changed a model

_MODELS = "/v2/models/"
_INFER, _PREDICT = "/infer", "/predict"
_REPOSITORY = "/v2/repository/models/"


class Service:
    """The application.

    `metrics`: the service's metrics.
    `limits`: limits on requests.
    `workers`: number of threads that compute answers of many rows.
    `access`: access rules.
    `account`: accounts for the bytes of bodies in progress, and of answers until they are sent.
    `peers`: the other processes of the service; None if there is one.
    `stopping`: whether the service is ending and therefore not ready.
    """

    def __init__(
        self,
        repository: Repository,
        metrics: Metrics,
        limits: Limits | None = None,
        workers: int = 2,
        access: Access | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.repository, self.metrics, self.limits = repository, metrics, limits or Limits()
        self._pool = ThreadPoolExecutor(workers, "hbtvm-serve")
        self._access = access or Access()
        self.account = Account(self.limits)
        self._inline = min(self.limits.inline, self.limits.body)
        self._spent = 0.0
        self._waiting = 0
        self.stopping = False
        self.peers = peers
        metrics.waiting = lambda: self._waiting
        # Routes of predictions: the model, and whether rows and answers are plain JSON.
        self._routes = {
            f"{_MODELS}{name}{action}": (name, action == _PREDICT)
            for name in repository.names
            for action in (_INFER, _PREDICT)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        headers = dict(scope["headers"])
        name, plain = self._routes.get(path, ("", False))
        try:
            self._access.check_host(headers, scope.get("http_version", ""))
            if name and scope["method"] == "POST":
                await self._infer(name, plain, headers, receive, send)
            else:
                await self._other(path, scope["method"], headers, receive, send)
        except Gone:
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

    async def _infer(self, name: str, plain: bool, headers: Headers, receive: Receive, send: Send) -> None:
        served = self._served(name)
        check_content_type(headers)
        length, header_length, encoding = read_headers(headers)
        if length > self.limits.body:
            raise Refused(413, f"the request has {length:,} bytes; the limit is {self.limits.body:,}")
        if plain and header_length is not None:
            raise Refused(400, "rows in plain JSON have no binary tensors; send those to the route infer")
        message = begun(receive)
        start = time.perf_counter()
        share = Share(self.account)
        try:
            if isinstance(message, Coming) or message.get("more_body", True):
                share.require(length)
                data = await read_body(share, self.limits, message, receive)
                start = time.perf_counter()
            else:
                data = message.get("body", b"")
            request = None
            if len(data) <= self._inline and not encoding:
                if self._spent > _TURN:
                    if not share.count:
                        share.take(len(data))
                    await self._next_turn()
                began = time.perf_counter()
                request = read(served, plain, data, header_length)
                if served.is_inline(request):
                    result = computed(served, request)
                    self._spend(time.perf_counter() - began)
                else:
                    result = await self._by_thread(
                        served, plain, data, header_length, encoding, request, share
                    )
            else:
                if not share.count:
                    share.take(len(data))
                result = await self._by_thread(served, plain, data, header_length, encoding, request, share)
            del data, request, message
            self.metrics.of(name).answered(result.rows, time.perf_counter() - start)
            await _send_answer(send, result)
        finally:
            share.release()

    def _spend(self, seconds: float) -> None:
        """Count time that the event loop spent on predictions in its current turn."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._spent += seconds

    async def _next_turn(self) -> None:
        """Wait until the event loop has polled its connections and served earlier requests."""
        while self._spent > _TURN:
            await asyncio.sleep(0)

    def _begin_turn(self) -> None:
        self._spent = 0.0

    def _served(self, name: str) -> Served:
        served = self.repository.served.get(name)
        if served is None:
            if name in self.repository:
                raise Refused(503, f"model {name} is not loaded")
            raise Refused(404, f"there is no model {name!r:.80}")
        return served

    async def _by_thread(self, *work: Any) -> Answer:
        """Run `worked` in a thread."""
        if self._waiting >= self.limits.waiting:
            raise too_many(f"{self._waiting} requests are waiting")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, worked, self.limits.body, *work)
        finally:
            self._waiting -= 1

    async def _other(self, path: str, method: str, headers: Headers, receive: Receive, send: Send) -> None:
        """Answer all requests except predictions."""
        if path.startswith("/v2/repository/"):
            if method != "POST":
                raise Refused(405, "the repository needs POST", (b"allow", b"POST"))
            await self._change(path, headers, send)
            return
        if path.endswith((_INFER, _PREDICT)) and path.startswith(_MODELS):
            if method != "POST":
                raise Refused(405, "predictions need POST", (b"allow", b"POST"))
            await self._versioned(path, headers, receive, send)
            return
        if method not in ("GET", "HEAD"):
            raise Refused(405, f"{method} of {path!r:.80} is not known", (b"allow", b"GET"))
        if path == "/metrics":
            await _send(send, 200, self.metrics.text(), (b"content-type", CONTENT_TYPE.encode()))
        elif path == "/v2/health/live":
            await _answer(send, 200, {"live": True})
        elif path == "/v2/health/ready":
            ready = self.repository.ready and not self.stopping
            await _answer(send, 200 if ready else 503, {"ready": ready})
        elif path == "/openapi.json":
            await _answer(send, 200, openapi(self.repository.models))
        elif path in ("/docs", "/docs/"):
            html, policy = page()
            await _send(send, 200, html, _HTML, policy)
        elif path in ("/v2", "/v2/"):
            await _answer(send, 200, {"name": "hbtvm", "version": __version__, "extensions": EXTENSIONS})
        elif path.startswith(_MODELS):
            await self._model(path[len(_MODELS) :], send)
        else:
            raise Refused(404, f"there is nothing at {path!r:.80}")

    async def _versioned(self, path: str, headers: Headers, receive: Receive, send: Send) -> None:
        """Predict with a version of a model, which must be the loaded version."""
        model, _, action = path[len(_MODELS) :].rpartition("/")
        name, version = _model_of(model)
        try:
            _check_version(self._served(name), version)
            await self._infer(name, action == _PREDICT[1:], headers, receive, send)
        except Refused as refused:
            if name in self.repository:
                self.metrics.of(name).refused(refused.status)
            raise

    async def _model(self, path: str, send: Send) -> None:
        """Send a model's metadata, or its readiness."""
        of_ready = path.endswith("/ready")
        name, version = _model_of(path.removesuffix("/ready"))
        if of_ready and name in self.repository:
            ready = name in self.repository.served
            await _answer(send, 200 if ready else 503, {"name": name, "ready": ready})
            return
        served = self._served(name)
        _check_version(served, version)
        await _answer(send, 200, served.metadata())

    async def _change(self, path: str, headers: Headers, send: Send) -> None:
        """List, load or unload models."""
        if path == "/v2/repository/index":
            await _answer(send, 200, self.repository.index())
            return
        name, _, action = path.removeprefix(_REPOSITORY).rpartition("/")
        if not path.startswith(_REPOSITORY) or action not in ("load", "unload"):
            raise Refused(404, f"there is nothing at {path!r:.80}")
        self._access.check_control(headers)
        check_content_type(headers)
        if name not in self.repository:
            raise Refused(404, f"there is no model {name!r:.80}")
        try:
            # A separate thread, so that loading and predictions do not wait for each other.
            await asyncio.wait_for(self._changed(name, action), PATIENCE)
        except asyncio.TimeoutError as error:
            raise Refused(503, f"model {name} takes more than {PATIENCE:g} s to load") from error
        except (HbtvmError, OSError, MemoryError) as error:
            raise Refused(400, str(error)) from error
        await _answer(send, 200, {})

    async def _changed(self, name: str, action: str) -> None:
        """Load or unload a model in all processes."""
        await _in_daemon(self.repository.change, name, action)
        if self.peers is not None:
            number = self.peers.ask(name, action)
            while not self.peers.done(name, number):
                await asyncio.sleep(_POLL)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()


def _in_daemon(work: Callable[..., None], *arguments: str) -> asyncio.Future[None]:
    """Run `work` in a daemon thread, which does not block the process's exit if a disk hangs."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work(*arguments)
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="hbtvm-load", daemon=True).start()
    return asyncio.wrap_future(done)


def _model_of(path: str) -> tuple[str, str | None]:
    """Return a model's name and optional version from a path below ``/v2/models/``."""
    name, slash, version = path.partition("/versions/")
    if not name or "/" in name or "/" in version or (slash and not version):
        raise Refused(404, f"there is no model {path!r:.80}")
    return name, version or None


def _check_version(served: Served, version: str | None) -> None:
    if version is not None and version != served.version:
        raise Refused(404, f"model {served.name} has version {served.version}, not {version!r:.20}")


async def _answer(send: Send, status: int, content: Any, *headers: tuple[bytes, bytes]) -> None:
    await _send(send, status, orjson.dumps(content), _JSON, *headers)


async def _send(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    complete = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": complete})
    await send({"type": "http.response.body", "body": body})


async def _send_answer(send: Send, result: Answer) -> None:
    *parts, last = result.parts
    headers = [(b"content-length", b"%d" % (len(last) + sum(map(len, parts))))]
    if result.json_length is None:
        headers.append(_JSON)
    else:
        headers += [_OCTETS, (BINARY_HEADER, b"%d" % result.json_length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for part in parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": last})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
