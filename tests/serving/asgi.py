"""Requests to the service as an ASGI application, within this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hbtvm.serving.access import Access
from hbtvm.serving.app import Service
from hbtvm.serving.bodies import Limits
from hbtvm.serving.messages import BINARY_HEADER
from hbtvm.serving.metrics import Metrics
from hbtvm.serving.repository import Repository

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes

    @property
    def document(self) -> Any:
        """Its JSON; what follows that is left out."""
        length = self.headers.get(BINARY_HEADER)
        return json.loads(self.body if length is None else self.body[: int(length)])

    @property
    def error(self) -> str:
        """The sentence of an error."""
        document = self.document
        assert set(document) == {"error"}, document
        sentence: str = document["error"]
        return sentence


def service(paths: dict[str, Path], limits: Limits | None = None, access: Access | None = None) -> Service:
    """Return a service of packages that are loaded."""
    metrics = Metrics()
    repository = Repository(paths, metrics, threads=1)
    for name in paths:
        repository.load(name)
    return Service(repository, metrics, limits, access=access)


async def ask(
    app: Service,
    method: str,
    path: str,
    parts: Iterable[bytes] = (b"",),
    headers: Iterable[tuple[bytes, bytes]] = (),
    *,
    pause: float = 0.0,
    leaves: bool = False,
) -> Answer:
    """Send a request.

    Parameters
    ----------
    parts
        Of the body.
    pause
        Seconds before each part.
    leaves
        Whether the client closes the connection instead of sending the last part.
    """
    waiting = list(parts)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if pause:
            await asyncio.sleep(pause)
        if len(waiting) == 1 and leaves:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    await app(scope, receive, send)
    if not sent:
        return Answer(0, {}, b"")
    start, *bodies = sent
    assert start["type"] == "http.response.start"
    assert {one["type"] for one in bodies} == {"http.response.body"}
    assert [one.get("more_body", False) for one in bodies] == [True] * (len(bodies) - 1) + [False]
    named = dict(start["headers"])
    body = b"".join(one["body"] for one in bodies)
    assert int(named[b"content-length"]) == len(body)
    return Answer(start["status"], named, body)


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run until it is done."""
    return asyncio.run(work)
