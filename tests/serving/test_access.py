"""Who may ask: names in ``Host``, kinds of bodies, and the token for changing models."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from hbtvm.cli.main import main
from hbtvm.serving.access import Access, check_content_type
from hbtvm.serving.bodies import Refused
from tests.serving.asgi import ask, run, service
from tests.serving.conftest import TOKEN
from tests.serving.models import numbers

JSON = (b"content-type", b"application/json")


def host(access: Access, name: str | None, version: str = "1.1") -> int:
    """The status of a request with that ``Host``; 200 if it may be answered."""
    headers = {} if name is None else {b"host": name.encode("latin-1")}
    for _ in range(2):  # what was allowed once is remembered
        try:
            access.check_host(headers, version)
        except Refused as refused:
            return refused.status
    return 200


LOCAL = [
    "localhost",
    "LocalHost:80",
    "127.0.0.1:8080",
    "[::1]",
    "[::1]:80",
    "a.localhost",
    "127.9.9.9",
    "localhost.",
]
FOREIGN = [
    "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "", ":80",
    "localhost@evil.example", "evil.example#localhost", "[evil]", "\xe9", "127.1", "0x7f.1", "[::1", "a:b:c",
]  # fmt: skip
ADDRESSES = ["10.1.2.3", "10.1.2.3:80", "[fd00::1]:80", "192.168.0.1"]


@pytest.mark.parametrize("at", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "::", "10.1.2.3"])
def test_hosts(at: str) -> None:
    access = Access(at)
    assert {host(access, name) for name in LOCAL} == {200}
    assert {host(access, name) for name in FOREIGN} == {403}
    anywhere = at in ("0.0.0.0", "::")
    for name in ADDRESSES:
        own = at == "10.1.2.3" and name.startswith(at)
        assert host(access, name) == (200 if anywhere or own else 403), name
    assert host(access, socket.gethostname()) == (200 if anywhere else 403)
    assert host(access, None) == 400 and host(access, None, "1.0") == 200


def test_allowed_hosts() -> None:
    access = Access("127.0.0.1", ["Fraud.example", "fd00::7"])
    assert {host(access, name) for name in ("fraud.example", "FRAUD.example:443", "[fd00::7]:1", *LOCAL)} == {
        200
    }
    assert {host(access, name) for name in ("a.fraud.example", *FOREIGN, *ADDRESSES)} == {403}
    assert {host(Access("127.0.0.1", ["*"]), name) for name in (*LOCAL, *FOREIGN, *ADDRESSES)} == {200}


def test_a_service_that_is_flooded_with_names_stays_small() -> None:
    access = Access("0.0.0.0")
    for number in range(1000):
        assert host(access, f"10.0.{number // 250}.{number % 250}:{number}") == 200
    assert len(access._known) <= 64


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({b"content-type": b"application/json"}, True),
        ({b"content-type": b"Application/JSON; charset=utf-8"}, True),
        ({b"content-type": b"application/octet-stream"}, True),
        ({b"content-type": b"text/plain"}, False),
        ({b"content-type": b"text/plain;application/json"}, False),
        ({b"content-type": b"application/x-www-form-urlencoded"}, False),
        ({b"content-type": b"multipart/form-data; boundary=x"}, False),
        ({b"content-type": b"\xff"}, False),
        ({}, True),  # as tritonclient sends it
        ({b"origin": b"http://evil.example"}, False),
        ({b"sec-fetch-site": b"cross-site"}, False),
        ({b"origin": b"null", b"content-type": b""}, False),
        ({b"origin": b"http://evil.example", b"inference-header-content-length": b"9"}, True),  # asks first
    ],
)
@pytest.mark.parametrize("length", [{b"content-length": b"9"}, {b"transfer-encoding": b"chunked"}, {}])
def test_content_types(headers: dict[bytes, bytes], allowed: bool, length: dict[bytes, bytes]) -> None:
    try:
        check_content_type({**headers, **length})
    except Refused as refused:
        assert refused.status == 415 and not allowed and length
        assert "application/json" in refused.reason
    else:
        assert allowed or not length


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (None, 401), (b"", 401), (b"Bearer", 401), (b"Bearer ", 401), (b"Bearer x" + TOKEN.encode(), 401),
        (b"Bearer " + TOKEN.encode()[:-1], 401), (b"Basic " + TOKEN.encode(), 401), (TOKEN.encode(), 401),
        (b"Bearer \xff", 401), (b"Bearer " + TOKEN.encode(), 200), (b"bearer  " + TOKEN.encode(), 200),
    ],
)  # fmt: skip
@pytest.mark.parametrize("action", ["unload", "load"])
def test_tokens(packages: Path, action: str, sent: bytes | None, status: int) -> None:
    path = f"/v2/repository/models/m/{action}"
    headers = [] if sent is None else [(b"authorization", sent)]
    off = service({"m": packages / "scaler.tar"})
    answer = run(ask(off, "POST", path, [b"{}"], [*headers, JSON]))
    assert answer.status == 403 and "--allow-model-control" in answer.error
    on = service({"m": packages / "scaler.tar"}, access=Access(token=TOKEN))
    answer = run(ask(on, "POST", path, [b"{}"], [*headers, JSON]))
    assert answer.status == status
    assert (b"www-authenticate" in answer.headers) == (status == 401)
    changed = status == 200
    index = run(ask(on, "POST", "/v2/repository/index")).document[0]
    assert index["state"] == ("UNAVAILABLE" if changed and action == "unload" else "READY")
    assert index["version"] == ("2" if changed and action == "load" else "1")
    off.close()
    on.close()


def test_pages_of_other_sites(packages: Path) -> None:
    """What a page can send without asking first changes and computes nothing; it gets no leave to read."""
    app = service({"m": packages / "classes.tar"}, access=Access(token=TOKEN))
    tensor = {"name": "input", "shape": [9, 4], "datatype": "FP64", "data": numbers().tolist()}
    body = json.dumps({"inputs": [tensor]}).encode()
    page = [(b"origin", b"http://evil.example"), (b"content-length", b"%d" % len(body))]
    for kind in (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data", None):
        headers = page if kind is None else [*page, (b"content-type", kind)]
        for path, status in (("/v2/models/m/infer", 415), ("/v2/repository/models/m/unload", 401)):
            assert run(ask(app, "POST", path, [body], headers)).status == status
    asked = [*page, (b"access-control-request-method", b"POST")]
    answer = run(ask(app, "OPTIONS", "/v2/models/m/infer", [b""], asked))
    assert answer.status == 405 and not any(name.startswith(b"access-control") for name in answer.headers)
    rebound = [(b"host", b"evil.example"), JSON]
    for method, path in (("POST", "/v2/models/m/infer"), ("GET", "/v2/models/m"), ("GET", "/metrics")):
        answer = run(ask(app, method, path, [body], rebound))
        assert answer.status == 403 and "--allowed-host" in answer.error
    assert app.repository.ready
    app.close()


@pytest.mark.parametrize(
    ("arguments", "token", "text"),
    [
        (
            ["--allow-model-control"],
            None,
            "expected a token, by --control-token-file or in HBTVM_CONTROL_TOKEN",
        ),
        (
            ["--allow-model-control"],
            "short",
            "HBTVM_CONTROL_TOKEN: expected a token of at least 16 characters",
        ),
        (["--allow-model-control"], "sixteen characters with spaces", "without spaces"),
        (["--allow-model-control"], "é" * 16, "of ASCII"),
        (["--allow-model-control", "--control-token-file", "missing"], TOKEN, "missing"),
        (
            ["--allow-model-control", "--control-token-file", "empty"],
            TOKEN,
            "empty: expected a token of at least 16",
        ),
        (["--control-token-file", "empty"], None, "expected --allow-model-control, too"),
    ],
)
def test_what_is_no_token(
    arguments: list[str],
    token: str | None,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    monkeypatch.delenv("HBTVM_CONTROL_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("HBTVM_CONTROL_TOKEN", token)
    assert main(["serve", "m.tar", *arguments]) == 2
    assert text in " ".join(capsys.readouterr().err.split())
