"""Access checks: host names, content types, and the token for model control.

A web page may send requests to any address that its visitor's machine reaches. It cannot read the answers,
but the service would compute them. With DNS rebinding (a page's host name that resolves to another address),
it can read them too. Browsers send the name as ``Host``, and send JSON or custom headers only after a
preflight request (CORS, which this service never grants).
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable

from hbtvm.serving.bodies import Headers, Refused
from hbtvm.serving.messages import BINARY_HEADER

_TYPES = frozenset((b"application/json", b"application/octet-stream"))

_MOST_KNOWN = 64  # maximal number of cached allowed spellings of ``Host``


class Access:
    """Access rules of a service.

    `host`: the address on which the service listens; if it is all addresses, ``Host`` may be any address.
    `allowed`: additional names and addresses; ``*`` for any.
    `token`: token for loading and unloading models; None disables both.
    """

    def __init__(
        self, host: str = "127.0.0.1", allowed: Iterable[str] = (), token: str | None = None
    ) -> None:
        names = {name.lower().strip("[]") for name in (host, "localhost", *allowed)}
        listens = _address(host)
        self._any_address = listens is not None and listens.is_unspecified
        if self._any_address:
            names.add(socket.gethostname().lower())
        self._any = "*" in names
        self._names = names
        self._known: set[bytes | None] = set()
        self._token = None if token is None else token.encode()

    def check_host(self, headers: Headers, version: str = "") -> None:
        """Refuse requests for another host name (403), or without one (400)."""
        host = headers.get(b"host")
        if host in self._known:
            return
        if host is None:
            if version == "1.1":
                raise Refused(400, "the request has no header Host")
            return
        if self._any:
            return
        text = host.decode("latin-1").strip().lower()
        name = text.rpartition(":")[0] if text.rpartition(":")[2].isdigit() else text
        name = name[1:-1] if name[:1] == "[" and name[-1:] == "]" else name
        if not self._allows(name.removesuffix(".")):
            raise Refused(
                403,
                f"this service is not known as {name!r:.80}; "
                "allow the name by starting it with --allowed-host NAME",
            )
        if len(self._known) < _MOST_KNOWN:
            self._known.add(host)

    def _allows(self, name: str) -> bool:
        if name in self._names or name.endswith(".localhost"):
            return True
        address = _address(name)
        # DNS rebinding needs a name: a page at an address belongs to that address.
        return address is not None and (address.is_loopback or self._any_address)

    def check_control(self, headers: Headers) -> None:
        """Refuse model control if it is off (403), or without the token (401)."""
        if self._token is None:
            raise Refused(
                403,
                "changing models over HTTP is off; start the service with --allow-model-control",
            )
        sent = headers.get(b"authorization", b"")
        scheme, _, token = sent.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            raise Refused(
                401,
                "changing models needs the header Authorization: Bearer TOKEN",
                (b"www-authenticate", b"Bearer"),
            )


def check_content_type(headers: Headers) -> None:
    """Refuse bodies that a web page can send without a preflight request (415).

    Many programs, ``tritonclient`` among them, omit the type. Browsers, which send the page's origin, may
    not.
    """
    kind = headers.get(b"content-type", b"")
    if kind in _TYPES:
        return
    kind = kind.partition(b";")[0].strip().lower()
    page = b"origin" in headers or any(name.startswith(b"sec-fetch-") for name in headers)
    empty = b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0"
    if kind in _TYPES or empty or (not kind and not (page and BINARY_HEADER not in headers)):
        return
    raise Refused(
        415,
        f"the body's content type is {kind.decode('latin-1')!r:.60}, expected application/json, or "
        "application/octet-stream for binary tensors",
    )


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
