"""``hbtvm serve`` as a process: reloads under load, signals, and what it refuses to begin with."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hbtvm.serving.server import Signals
from tests.serving.conftest import ROOT, Server, serving, until
from tests.serving.models import CASES, numbers

WATCH = "0.02"


def request(rows: np.ndarray) -> bytes:
    tensor = {"name": "input", "shape": list(rows.shape), "datatype": "FP64", "data": rows.tolist()}
    return json.dumps({"inputs": [tensor]}).encode()


class Client:
    """One connection, kept alive."""

    def __init__(self, server: Server) -> None:
        self.connection = http.client.HTTPConnection(server.address, timeout=20)

    def __call__(self, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
        self.connection.request(method, path, body)
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode()

    def index(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self("POST", "/v2/repository/index")[1])[0]
        return found

    def failures(self) -> float:
        found = re.search(r'hbtvm_loads_total\{model="m",result="failed"\} (\S+)', self("GET", "/metrics")[1])
        assert found
        return float(found[1])


class Load:
    """Requests one after the other from another thread, for the length of a block.

    Attributes
    ----------
    statuses
        How often each came.
    answers
        How often each model's version came, with its labels.
    """

    def __init__(self, server: Server) -> None:
        self.statuses: Counter[int] = Counter()
        self.answers: Counter[tuple[str, tuple[object, ...]]] = Counter()
        self._server, self._ends = server, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        client, body = Client(self._server), request(numbers())
        while not self._ends.is_set():
            status, told = client("POST", "/v2/models/m/infer", body)
            self.statuses[status] += 1
            if status == 200:
                found = json.loads(told)
                self.answers[found["model_version"], tuple(found["outputs"][0]["data"])] += 1

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def replace(path: Path, content: bytes) -> None:
    """As programs that deploy models do."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    os.replace(temporary, path)


@pytest.fixture
def deployed(packages: Path, tmp_path: Path) -> Iterator[tuple[Path, Server]]:
    """Return a model's file, and a service that looks at it all the time."""
    path = tmp_path / "m.tar"
    replace(path, (packages / "classes.tar").read_bytes())
    with serving(tmp_path, "m.tar", "--watch", WATCH, "--threads", "1") as server:
        yield path, server
        assert server.stop() == 0


def test_reload_under_load(deployed: tuple[Path, Server], packages: Path) -> None:
    path, server = deployed
    client, kinds = Client(server), ("classes", "binary")
    with Load(server) as load:
        for version in range(2, 8):
            replace(path, (packages / f"{kinds[(version + 1) % 2]}.tar").read_bytes())
            until(lambda: client.index()["version"] == str(version), lambda: server.log)  # noqa: B023
        replace(path, b"no package")
        until(lambda: client.failures() == 1)
        assert client.index()["state"] == "READY" and client.index()["version"] == "7"
        reason = client.index()["reason"]
        assert "m.tar" in reason
        server.logged(f"{reason} (version 7 stays)")
        whole = (packages / "classes.tar").read_bytes()
        replace(path, whole[: len(whole) // 2])
        until(lambda: client.failures() == 2)
        path.unlink()
        until(lambda: client.failures() == 3)
        assert "m.tar" in client.index()["reason"] and client.index()["version"] == "7"
        seen = sum(load.answers.values())
        until(lambda: sum(load.answers.values()) > seen + 20)
        assert client.failures() == 3  # what was found once is not tried, nor logged, again and again
        assert server.log.count("version 7 stays") == 3
        replace(path, whole)
        until(lambda: client.index()["version"] == "8")
        assert client.index()["reason"] == ""
        assert client("GET", "/v2/health/ready")[0] == 200
    assert set(load.statuses) == {200}
    # Each version answered as its own model does, and no other.
    for version, labels in load.answers:
        wanted = CASES[kinds[(int(version) + 1) % 2 if version != "8" else 0]].expected("predict")
        assert list(labels) == wanted.tolist(), version


def test_hangup_loads_anew(packages: Path, tmp_path: Path) -> None:
    replace(tmp_path / "m.tar", (packages / "classes.tar").read_bytes())
    with serving(tmp_path, "m.tar", "--watch", "0", "--access-log") as server:
        client = Client(server)
        for version in ("2", "3"):
            server.process.send_signal(signal.SIGHUP)
            until(lambda: client.index()["version"] == version, lambda: server.log)  # noqa: B023
        replace(tmp_path / "m.tar", b"")
        server.process.send_signal(signal.SIGHUP)
        server.logged("version 3 stays")
        assert client("POST", "/v2/models/m/infer", request(numbers()))[0] == 200
        assert server.stop(signal.SIGINT) == 0
        assert "POST /v2/models/m/infer" in server.log


class Begun:
    """A request that the service has begun to read: it lacks its last bytes."""

    def __init__(self, server: Server, path: str, body: bytes) -> None:
        host, port = server.address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n"
            "expect: 100-continue\r\n\r\n"
        )
        self._socket.sendall(head.encode())
        assert self._socket.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        self._socket.sendall(body[:-100])
        self._rest = body[-100:]

    def end(self) -> None:
        """Send the rest."""
        self._socket.sendall(self._rest)

    def answer(self) -> tuple[int, bytes]:
        answer = http.client.HTTPResponse(self._socket, method="POST")
        answer.begin()
        with self._socket:
            return answer.status, answer.read()


def test_signals_while_packages_are_loaded() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with pytest.raises(SystemExit) as ended:
                signal.raise_signal(number)
            assert ended.value.code == 128 + number
        signals.listening = True
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert signals.reload and signals.stop == 2
    assert signal.getsignal(signal.SIGTERM) is before


def test_stop_answers_what_is_at_hand(packages: Path, tmp_path: Path) -> None:
    with serving(tmp_path, str(packages / "classes.tar"), "--workers", "1") as server:
        body = request(np.tile(numbers(), (4000, 1)))
        # Some are computed, or wait for it, when the signal comes; the others end after it.
        requests = [Begun(server, "/v2/models/classes/infer", body) for _ in range(5)]
        for one in requests[:3]:
            one.end()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(server.address))
        for one in requests[3:]:
            one.end()
        for one in requests:
            status, told = one.answer()
            assert status == 200 and len(json.loads(told)["outputs"][0]["data"]) == 36_000
        assert server.process.wait(20) == 0
        assert server.log == ""


def refuses(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return True
    return False


def test_connections_that_end_early(deployed: tuple[Path, Server]) -> None:
    server = deployed[1]
    host, port = server.address.split(":")
    body = request(numbers())
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nhost: localhost\r\n"
    for sent in (
        head + b"content-length: 100000\r\n\r\n" + body,
        head + b"transfer-encoding: chunked\r\n\r\n5\r\n{\"inp",
        head + b"conte",
        head + b"content-length: %d\r\n\r\n" % len(body) + body,
        b"\x16\x03\x01 no HTTP at all\r\n\r\n",
    ):  # fmt: skip
        for _ in range(10):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(sent)
    assert Client(server)("POST", "/v2/models/m/infer", body)[0] == 200
    assert "Traceback" not in server.log


def test_bodies_without_a_length(deployed: tuple[Path, Server]) -> None:
    server = deployed[1]
    body = request(numbers())

    def chunked(parts: list[bytes]) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(server.address, timeout=20)
        connection.request("POST", "/v2/models/m/infer", iter(parts), encode_chunked=True,
                           headers={"transfer-encoding": "chunked"})  # fmt: skip
        answer = connection.getresponse()
        return answer.status, answer.read()

    assert chunked([body[i : i + 50] for i in range(0, len(body), 50)])[0] == 200
    status, told = chunked([b" " * (1 << 20)] * 17)
    assert status == 413 and b"too long" in told
    assert Client(server)("POST", "/v2/models/m/infer", body)[0] == 200


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["classes.tar", "x=classes.tar", "x=binary.tar"], 2, "there are two models x; give them names"),
        (["missing.tar"], 2, "missing.tar"),
        (["bad.tar"], 2, "bad.tar is not a tar archive"),
        (["pipe"], 2, "pipe is not a regular file"),
        (["a b=classes.tar"], 2, "a model's name has letters"),
        (["classes.tar", "--port", "99999"], 2, "expected at most 65535"),
        (["classes.tar", "--watch", "-1"], 2, "expected at least 0"),
        (["classes.tar", "--host", "no.such.host.invalid"], 1, "no.such.host.invalid:0"),
        (["classes.tar", "--port", "TAKEN"], 1, "Address already in use"),
    ],
)
def test_what_cannot_begin(
    packages: Path, tmp_path: Path, arguments: list[str], status: int, text: str
) -> None:
    for name in ("classes", "binary"):
        (tmp_path / f"{name}.tar").symlink_to(packages / f"{name}.tar")
    (tmp_path / "bad.tar").write_bytes(b"no package")
    os.mkfifo(tmp_path / "pipe")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = [one.replace("TAKEN", str(taken.getsockname()[1])) for one in arguments]
        given += [] if "--port" in given else ["--port", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "hbtvm", "serve", *given],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stdout) == (status, ""), done
    assert text in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
    assert done.stderr.startswith("hbtvm: error: ") and done.stderr.count("error") == 1, done.stderr
