"""A server of one constant answer, which is what the HTTP stack reaches: ``... {raw,starlette} PORT FILE``.

FILE holds the answer's body.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn


def raw(body: bytes) -> Any:
    """An ASGI function that reads a request's body and sends the answer."""
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def starlette(body: bytes) -> Any:
    """A route of Starlette that does the same."""
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def infer(request: Any) -> Response:
        await request.body()
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route("/v2/models/{name}/infer", infer, methods=["POST"])])


def main() -> None:
    """Serve until a signal comes."""
    kind, port, path = sys.argv[1:]
    app = {"raw": raw, "starlette": starlette}[kind](Path(path).read_bytes())
    # As `hbtvm serve` runs it.
    uvicorn.run(
        app, port=int(port), lifespan="off", ws="none", access_log=False, server_header=False,
        date_header=False, log_level="error",
    )  # fmt: skip


if __name__ == "__main__":
    main()
