"""Clients that mean harm, over real sockets: each is bounded in memory and time, and told what is wrong.

The service has little memory and short times. Each attack sends or asks for many times what may be held, so
that a service that holds it fails by far.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import OneHotEncoder

import hbtvm
from tests.serving.conftest import ROOT, Server, serving, until

LIMIT = 64 << 20
"""Bytes of ``--max-memory``."""

SLACK = 64 << 20
"""Bytes that a service may take beside them."""

WIDTH = 250
"""Columns of an answer's row; a row of a request takes a byte."""

SENT = 60 << 20
"""Bytes that are sent without end."""

HEAD = b"POST /v2/models/wide/infer HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
GET = b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a package whose answers are 2,000 times as long as its requests."""
    path = tmp_path_factory.mktemp("wide") / "wide.tar"
    rows = np.arange(WIDTH, dtype=float).reshape(-1, 1)
    hbtvm.compile(OneHotEncoder(handle_unknown="ignore").fit(rows), batch_sizes=1, threads=1).save(path)
    return path


@pytest.fixture(scope="module")
def server(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a service with short times."""
    limits = ["--max-memory", "64M", "--max-request", "8M", "--header-timeout", "1", "--body-timeout", "2"]
    limits += ["--idle-timeout", "2", "--write-timeout", "1", "--watch", "0"]
    with serving(tmp_path_factory.mktemp("attacked"), str(wide), *limits) as found:
        assert ask(found, binary(9))[0] == 200
        yield found
        assert found.log == ""
        assert found.stop() == 0


@pytest.fixture(scope="module")
def idle(server: Server) -> int:
    """Return the bytes that the service takes before it is attacked."""
    return memory(server)


@pytest.fixture
def bounded(server: Server, idle: int) -> Iterator[Server]:
    """Return the service; its memory stays within the limit, and it answers afterwards."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    yield server
    assert memory(server, "VmHWM") - idle < LIMIT + SLACK
    until(lambda: ask(server, GET)[0] == 200)


def memory(server: Server, what: str = "VmRSS") -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found
    return int(found[1]) << 10


def connect(server: Server) -> socket.socket:
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def connected(server: Server) -> int:
    """Return how many connections the service has not closed."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    port = f":{int(server.address.split(':')[1]):04X}"
    return sum(line.split()[1].endswith(port) and line.split()[3] == "01" for line in lines)


def received(connection: socket.socket) -> bytes:
    """All that comes until the connection ends, in whatever way."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 20):
            parts.append(part)
    return b"".join(parts)


def ask(server: Server, request: bytes) -> tuple[int, bytes]:
    """Status and body of one answer."""
    with connect(server) as connection:
        connection.sendall(request.replace(b"\r\nhost", b"\r\nconnection: close\r\nhost", 1))
        head, _, body = received(connection).partition(b"\r\n\r\n")
        return int(head.split()[1]), body


def binary(rows: int) -> bytes:
    """A request of so many rows of a byte, answered by 2,000 bytes for each."""
    tensor = {"name": "input", "shape": [rows, 1], "datatype": "UINT8"}
    return _request({"inputs": [{**tensor, "parameters": {"binary_data_size": rows}}],
                     "parameters": {"binary_data_output": True}}, bytes(rows))  # fmt: skip


def text(rows: int) -> bytes:
    """As `binary`, in JSON."""
    tensor = {"name": "input", "shape": [rows, 1], "datatype": "UINT8", "data": [1] * rows}
    return _request({"inputs": [tensor]})


def _request(told: object, tail: bytes = b"") -> bytes:
    body = json.dumps(told, separators=(",", ":")).encode()
    extra = b"inference-header-content-length: %d\r\n" % len(body) if tail else b""
    return HEAD + extra + b"content-length: %d\r\n\r\n" % (len(body) + len(tail)) + body + tail


@pytest.mark.parametrize("request_", [binary(900_000), text(900_000)], ids=["binary", "json"])
def test_answers_beyond_all_memory(bounded: Server, request_: bytes) -> None:
    """1.8 GB in binary, 0.9 GB in JSON: refused before they are made."""
    status, body = ask(bounded, request_)
    assert status == 413 and b"ask for fewer rows" in body


def test_a_long_answer_in_json(bounded: Server) -> None:
    """Beyond the limit only if each number were long: it comes, a part at a time."""
    status, body = ask(bounded, text(30_000))
    assert status == 200 and body.count(b",") > 30_000 * (WIDTH - 1)


def test_json_of_many_small_objects(bounded: Server) -> None:
    body = b'{"inputs":[' + b"{}," * (2 << 20) + b"{}]}"
    status, told = ask(bounded, HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert status == 413 and b"more than 67,108,864 bytes of memory" in told


def test_answers_that_no_client_reads(bounded: Server) -> None:
    """15 of 20 MB: those that find no room are refused, the others' connections end, and memory is free."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(bounded)) for _ in range(15)]
        for client in clients:
            client.sendall(binary(10_000))
        until(lambda: not connected(bounded))
        assert ask(bounded, binary(20_000))[0] == 200
        # The system delivers what it had taken of an answer; the rest is lost.
        answers = [received(client) for client in clients]
        assert any(b" 429 " in answer[:20] for answer in answers)
        assert all(len(answer) < 20_000_000 for answer in answers)


def test_pipelines_that_no_client_reads(bounded: Server) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(bounded)) for _ in range(20)]

        def send(client: socket.socket) -> None:
            client.settimeout(5)
            with contextlib.suppress(OSError):
                client.sendall(GET * 20_000)

        threads = [threading.Thread(target=send, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_pipelines_are_answered_in_order(server: Server) -> None:
    with connect(server) as connection:
        kinds = [GET, binary(3), GET.replace(b"live", b"nothing"), text(2)] * 50
        connection.sendall(b"".join(kinds) + GET.replace(b"\r\nhost", b"\r\nconnection: close\r\nhost"))
        told = received(connection)
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"200", b"404", b"200"] * 50 + [b"200"]


_CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
_X = b"x" * (1 << 16)

ENDLESS = {
    "path": (414, b"GET /", _X),
    "name": (431, b"GET /v2 HTTP/1.1\r\n", _X),
    "value": (431, b"GET /v2 HTTP/1.1\r\nname: ", _X),
    "headers": (431, b"GET /v2 HTTP/1.1\r\n", b"a: b\r\n" * 10_000),
    "short headers": (431, b"GET /v2 HTTP/1.1\r\n", b"a:\r\n" * 10_000),
    "method": (400, b"GET", _X),
    "empty lines": (431, b"", b"\r\n" * 30_000),
    "trailer": (431, _CHUNKED + b"0\r\nname: ", _X),
    "trailer's name": (431, _CHUNKED + b"0\r\n", _X),
    "trailers": (431, _CHUNKED + b"0\r\n", b"a: b\r\n" * 10_000),
    "extension": (431, _CHUNKED + b"5;", _X),
    "body": (413, _CHUNKED, b"10000\r\n" + _X + b"\r\n"),
    "body of GET": (
        200,
        _CHUNKED.replace(b"POST", b"GET").replace(b"/infer", b""),
        b"10000\r\n" + _X + b"\r\n",
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_goes_on_without_end(bounded: Server, name: str) -> None:
    status, head, rest = ENDLESS[name]
    with connect(bounded) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head)
            for _ in range(SENT // len(rest)):
                connection.sendall(rest)
        told = received(connection)
    assert told.startswith(b"HTTP/1.1 %d " % status), told[:200]
    if status != 200:
        assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]


LATE = [
    (b"", b""),
    (b"\r\n", b"408"),
    (b"GET /v2", b"408"),
    (b"GET /v2 HTTP/1.1\r\nhost: local", b"408"),
    (GET, b"200"),
    (GET + GET[:20], b"200"),
    (HEAD + b"content-length: 90\r\n\r\n", b"408"),
    (HEAD + b"content-length: 90\r\n\r\n{", b"408"),
    (_CHUNKED + b"5\r\n{", b"408"),
    (HEAD.replace(b"/infer", b"/nothing") + b"content-length: 90\r\n\r\n", b"405"),
    (HEAD.replace(b"POST", b"GET").replace(b"/infer", b"") + b"content-length: 90\r\n\r\n", b"200"),
]


def test_connections_that_wait_are_closed(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in LATE]
        for client, (sent, _) in zip(clients, LATE, strict=True):
            client.sendall(sent)
        # (A head that comes byte by byte is late all the same.)
        with connect(server) as slow:
            for byte in GET[:50]:
                slow.sendall(bytes((byte,)))
                time.sleep(0.03)
            assert received(slow)[9:12] == b"408"
        told = [received(client) for client in clients]  # to their ends
    assert [each[9:12] for each in told] == [status for _, status in LATE]


def test_more_connections_than_files(wide: Path, tmp_path: Path) -> None:
    """Those that wait make room for others, the oldest first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        starting = serving(tmp_path, str(wide), "--watch", "0")
        server = starting.__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(connect(server)) for _ in range(300)]
            for client in clients[::3]:
                with contextlib.suppress(ConnectionError):
                    client.sendall(b"GET /v2 HT")
            for _ in range(5):
                assert ask(server, GET)[0] == 200
            assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 200
        assert "Traceback" not in server.log
    finally:
        starting.__exit__(None, None, None)


def test_too_many_connections_that_are_busy(wide: Path, tmp_path: Path) -> None:
    """Others are told so; and requests that never arrive hold the service's end no longer than its grace."""

    def busy() -> None:
        client = stack.enter_context(connect(server))
        client.sendall(HEAD + b"expect: 100-continue\r\ncontent-length: 90\r\n\r\n")
        assert b" 100 " in client.recv(100)

    options = ["--watch", "0", "--max-connections", "3", "--grace", "1"]
    with serving(tmp_path, str(wide), *options) as server:
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                busy()
            told = received(stack.enter_context(connect(server)))
            assert told.startswith(b"HTTP/1.1 503 ") and b"too many connections" in told
        until(lambda: received_from(server).startswith(b"HTTP/1.1 200"))
        with contextlib.ExitStack() as stack:
            busy()
            assert server.stop() == 0
        assert server.log == ""


def received_from(server: Server) -> bytes:
    with connect(server) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(GET.replace(b"\r\nhost", b"\r\nconnection: close\r\nhost"))
        return received(connection)


def test_clients_that_close_early(server: Server) -> None:
    """Whatever they have read of their answer, and whenever the service sees it, nothing is logged."""
    unread = GET[:-2] + b"content-length: 900000\r\n\r\n" + bytes(100_000)
    requests = (binary(5_000), text(5_000), binary(9), GET * 99, unread, HEAD + b"content-length: 9\r\n\r\n{")
    endings = itertools.product(requests, (0, 1, 1000), ("reset", "close", "half"))
    for request, read, ending in endings:
        with connect(server) as connection:
            if ending == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            if not read:  # the service sees all at once: the request and its client's end
                server.process.send_signal(signal.SIGSTOP)
            connection.sendall(request)
            if ending == "half":
                connection.shutdown(socket.SHUT_WR)
            if read and request[-1:] != b"{":
                connection.recv(read)
        server.process.send_signal(signal.SIGCONT)
    assert ask(server, binary(9))[0] == 200
    assert server.log == ""


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGTERM, 0.0), (signal.SIGINT, 0.03)])
def test_signals_from_listening_on(wide: Path, tmp_path: Path, number: int, seconds: float) -> None:
    """Of a service whose port is known beforehand: told to stop as soon as somebody can connect."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "hbtvm", "serve", str(wide), "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        until(lambda: _listens(port) or process.poll() is not None)
        time.sleep(seconds)
        process.send_signal(number)
        _, told = process.communicate(timeout=20)
        assert (process.returncode, told) == (0, b"")
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_a_package_that_blocks(wide: Path, tmp_path: Path) -> None:
    """In place of one of two packages: the other one is watched all the same, and the service ends."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.tar").write_bytes(wide.read_bytes())
    with serving(tmp_path, "a.tar", "b.tar", "--watch", "0.02") as server:
        os.mkfifo(tmp_path / "new")
        os.replace(tmp_path / "new", tmp_path / "a.tar")
        server.logged("a.tar is not a regular file. (version 1 stays)")
        (tmp_path / "new").write_bytes(b"no package")
        os.replace(tmp_path / "new", tmp_path / "b.tar")
        server.logged("b.tar is not a tar archive. (version 1 stays)")
        assert ask(server, binary(9).replace(b"models/wide", b"models/a"))[0] == 200
        assert server.stop() == 0
