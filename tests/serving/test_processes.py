"""A service of several processes: one port, shared metrics and changes, and a supervisor."""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.serving.metrics import Metrics
from hbtvm.serving.processes.board import Board
from hbtvm.serving.processes.peers import Peers, board_of
from tests.serving.conftest import ROOT, TOKEN, Server, serving, until
from tests.serving.models import CASES, numbers
from tests.serving.test_process import Begun, refuses, replace, request

CONTROL = {"authorization": f"Bearer {TOKEN}"}


def send(
    server: Server, path: str, body: Any = None, method: str = "POST", **headers: str
) -> tuple[int, str]:
    """Send a request by a connection of its own."""
    connection = http.client.HTTPConnection(server.address, timeout=20)
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    with response:
        return response.status, response.read().decode()


def statuses(server: Server, requests: int = 12) -> Counter[tuple[int, str]]:
    """Predict some times; return statuses and versions."""
    rows = {"rows": numbers().tolist(), "outputs": ["predict"]}
    found: Counter[tuple[int, str]] = Counter()
    for _ in range(requests):
        status, text = send(server, "/v2/models/m/predict", rows)
        found[status, json.loads(text).get("model_version", "")] += 1
        if status == 200:
            labels = [prediction["predict"] for prediction in json.loads(text)["predictions"]]
            assert labels == CASES["classes"].expected("predict").tolist()
    return found


def count(server: Server, name: str = "hbtvm_requests_total", **labels: str) -> float:
    text = send(server, "/metrics", method="GET")[1]
    inner = ",".join(f'{key}="{value}"' for key, value in {"model": "m", **labels}.items())
    match = re.search(rf"^{name}\{{{inner}\}} (\S+)", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def pids(server: Server) -> list[int]:
    server.logged("2 processes serve: ")
    match = re.search(r"processes serve: (\d+), (\d+)", server.log)
    assert match
    return [int(pid) for pid in match.groups()]


def sockets(pid: int) -> int:
    return sum(os.readlink(file).startswith("socket:") for file in Path(f"/proc/{pid}/fd").iterdir())


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_two_processes(packages: Path, tmp_path: Path) -> None:
    replace(tmp_path / "m.tar", (packages / "classes.tar").read_bytes())
    options = ["--processes", "2", "--watch", "0", "--threads", "1", "--allow-model-control"]
    with serving(tmp_path, "m.tar", *options) as server:
        first, second = pids(server)
        host, _, port = server.address.partition(":")
        with contextlib.ExitStack() as stack:
            before = [sockets(first), sockets(second)]
            for _ in range(40):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            until(lambda: sockets(first) > before[0] + 3 and sockets(second) > before[1] + 3)
        assert statuses(server) == {(200, "1"): 12}
        until(lambda: count(server, status="200") == 12)
        until(lambda: {count(server, status="200") for _ in range(6)} == {12})
        assert count(server, "hbtvm_loads_total", result="loaded") == 2

        # Changes are made in all processes before they are answered.
        assert send(server, "/v2/repository/models/m/unload", **CONTROL) == (200, "{}")
        assert statuses(server) == {(503, ""): 12}

        # A process that replaces another continues its counts, and knows what was unloaded.
        until(lambda: count(server, status="503") == 12)
        os.kill(second, signal.SIGKILL)
        server.logged(f"process {second} ended with signal 9; starting another in 0 s")
        until(lambda: count(server, "hbtvm_loads_total", result="loaded") == 3)
        assert set(statuses(server)) == {(503, "")}
        assert send(server, "/v2/repository/models/m/load", **CONTROL) == (200, "{}")
        assert statuses(server) == {(200, "1"): 12}  # the file is the same

        # All processes load a new file once, and agree on its version.
        os.utime(tmp_path / "m.tar", (1, 1))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: set(statuses(server)) == {(200, "2")}, lambda: server.log)
        until(lambda: count(server, status="200") >= 24)

        # Both processes finish requests that have begun.
        begun = [Begun(server, "/v2/models/m/infer", request(np.tile(numbers(), (10, 1)))) for _ in range(6)]
        server.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(server.address))
        for one in begun:
            one.end()
        assert {one.answer()[0] for one in begun} == {200}
        assert server.process.wait(20) == 0
        assert not is_alive(first)
        assert "Traceback" not in server.log


def test_processes_end_with_their_supervisor(packages: Path, tmp_path: Path) -> None:
    replace(tmp_path / "m.tar", (packages / "classes.tar").read_bytes())
    with serving(tmp_path, "m.tar", "--processes", "2", "--threads", "1") as server:
        children = pids(server)
        server.process.kill()
        until(lambda: not any(map(is_alive, children)))
        assert refuses(server.address)


def test_a_package_that_cannot_be_loaded(tmp_path: Path) -> None:
    """One process says so, once."""
    (tmp_path / "bad.tar").write_bytes(b"no package")
    done = subprocess.run(
        [sys.executable, "-m", "hbtvm", "serve", "bad.tar", "--processes", "3", "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.startswith("hbtvm: error: bad.tar") and done.stderr.count("\n") == 1, done.stderr


def _write(board: Board, ends: Any) -> None:
    number = 0
    while not ends.is_set():
        number += 1
        board.write(0, [number] * (number % 50))


def test_readers_of_the_board_see_whole_values() -> None:
    context = multiprocessing.get_context("fork")
    board, ends = Board(2, 1000), context.Event()
    assert board.read(0) is None
    writer = context.Process(target=_write, args=(board, ends))
    writer.start()
    seen = set()
    try:
        until(lambda: board.read(0) is not None)
        while len(seen) < 200:
            value = board.read(0)
            assert len(set(value)) <= 1
            seen.add(tuple(value))
    finally:
        ends.set()
        writer.join()
    assert board.read(1) is None
    with pytest.raises(ValueError, match="too long"):
        board.write(1, "x" * 1000)


def test_versions_of_files_are_the_same_in_all_processes() -> None:
    board = board_of(2, ["m"])
    one, other = Peers(board, 0, 2), Peers(board, 1, 2)
    assert one.version("m", (1, 1, 1)) == 1
    assert one.version("m", (2, 1, 1)) == 2
    assert other.version("m", (1, 1, 1)) == 1  # which it read before the file changed
    assert other.version("m", (2, 1, 1)) == 2
    assert other.version("m", (3, 1, 1)) == 3
    for state in range(4, 100):
        one.version("m", (state, 1, 1))
    assert other.version("m", (99, 1, 1)) == 99


def test_changes_reach_the_others() -> None:
    board, changes = board_of(2, ["m"]), list[tuple[str, str]]()
    one, other = Peers(board, 0, 2), Peers(board, 1, 2)
    one.join(Metrics(), lambda name, action: None)
    other.join(Metrics(), lambda name, action: changes.append((name, action)))
    other.publish()
    number = one.ask("m", "unload")
    assert not one.done("m", number)
    other.tick()
    until(lambda: bool(changes))
    until(lambda: other.publish() is None and one.done("m", number))
    assert changes == [("m", "unload")]
