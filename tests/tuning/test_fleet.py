"""Measuring on many devices through TVM's RPC tracker: three servers on loopback, one of them killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tvm
from tvm import rpc

import hbtvm
from hbtvm import api
from hbtvm.compiler.building.cpu import compile_module, link_library
from hbtvm.compiler.candidates.fleet import RemoteCandidate, place
from hbtvm.compiler.lowering.cuda.score_epilogue import with_epilogue
from hbtvm.errors import DeviceError, InputError
from hbtvm.graph.trees.reference import margins
from hbtvm.logs.store import Log
from hbtvm.strategies import make_forest, strategies_on, workload_of
from hbtvm.tuning.measuring.fleet import Fleet, FleetOptions, registered
from hbtvm.tuning.measuring.machine import Attempt, BuiltLibrary, RunnerError
from hbtvm.tuning.measuring.messages import LOST, NO_DEVICE, Failure, Measured
from tests import models
from tests.cuda_kernels import CPU, GPU, serial
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import tolerance

WITHOUT_TORCH = str(Path(__file__).resolve().parents[1] / "without_torch")
"""On the search path of TVM's own processes, which start in half the time then."""

MAGIC = 0x2F271


@contextmanager
def tracker(servers: list[str], magic: int = MAGIC) -> Iterator[int]:
    """Something that answers as a tracker does when it is asked for its devices; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4)
                    connection.sendall(struct.pack("<i", magic))
                    if magic == MAGIC and connection.recv(4096):
                        listed = [{"key": f"server:{key}", "addr": ["127.0.0.1", 1]} for key in servers]
                        data = json.dumps([0, {"queue_info": {}, "server_info": listed}]).encode()
                        connection.sendall(struct.pack("<i", len(data)) + data)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_devices_are_counted_by_key() -> None:
    with tracker(["zen4", "pi", "zen4"]) as port:
        assert registered("127.0.0.1", port) == {"zen4": 2, "pi": 1}


def test_no_device_is_one_clear_sentence() -> None:
    with tracker(["pi", "pi"]) as port, pytest.raises(RunnerError) as error:
        Fleet(FleetOptions("127.0.0.1", port, "zen4"))
    assert f"the RPC tracker at 127.0.0.1:{port} has no device with key 'zen4' (it has: pi (2))" in str(
        error.value
    )
    with tracker([], magic=1) as port, pytest.raises(RunnerError, match="it is not an RPC tracker"):
        Fleet(FleetOptions("127.0.0.1", port, "zen4"))
    with pytest.raises(RunnerError, match="does not answer: Connection refused"):
        Fleet(FleetOptions("127.0.0.1", port, "zen4"))
    with pytest.raises(DeviceError, match="Connection refused"):
        api.search(models.ZOO["sk_tree_two"](), rpc_tracker=f"127.0.0.1:{port}", rpc_key="zen4")


def test_how_a_fleet_is_named() -> None:
    assert place(None, None, 4) is None
    assert place("10.0.0.5:9190", "zen4", None) == ("10.0.0.5", 9190, "zen4")
    assert place("[::1]:9190", "zen4", 1) == ("::1", 9190, "zen4")
    for given, words in (
        (("10.0.0.5:9190", None, None), "needs both"),
        ((None, "zen4", None), "needs both"),
        (("10.0.0.5", "zen4", None), "HOST:PORT"),
        (("10.0.0.5:99999", "zen4", None), "HOST:PORT"),
        (("10.0.0.5:9190", "zen4", 2), "threads must be 1"),
    ):
        with pytest.raises(InputError, match=words):
            place(*given)


class Scripted:
    """A worker whose replies are given; what it is asked, it notes."""

    def __init__(self, replies: list[Any]) -> None:
        self.replies = replies
        self.asked = 0
        self.connection, self._other = socket.socketpair()
        self._other.send(b"x")  # there always is news
        self.remaining = 1.0
        self.ready = True

    def submit(self, job: Any) -> None:
        self.asked += 1

    def poll(self) -> Any:
        return self.replies.pop(0)

    def kill(self) -> None: ...

    def close(self) -> None:
        self.connection.close()
        self._other.close()


def attempt() -> Attempt:
    from hbtvm.tuning.measuring.messages import Candidate, Timing

    return Attempt(Candidate("no:program", {}, {}), BuiltLibrary("x.so", None), Timing())


def outcomes(replies: list[Any], attempts: int = 1, keys: tuple[str, ...] = ("a",)) -> list[Any]:
    with tracker(list(keys)) as port:
        fleet = Fleet(FleetOptions("127.0.0.1", port, "a", patience=0.3))
        worker = Scripted(replies)
        fleet._workers.append(worker)  # type: ignore[arg-type]
        try:
            return [result for _, result in fleet.measure_all(attempt() for _ in range(attempts))]
        finally:
            fleet.close()


def test_a_lost_trial_is_given_to_another_device_once() -> None:
    good = Measured(0.1, (1.0,))
    assert outcomes([Failure(LOST, "gone"), good]) == [good]
    assert outcomes([Failure(NO_DEVICE, "none came"), Failure(LOST, "gone"), good, good], 2) == [good, good]
    [crash] = outcomes([Failure(LOST, "gone"), Failure(LOST, "gone again")])
    assert (crash.kind, "gone again" in crash.message) == ("crash", True)
    wrong = Failure("wrong_result", "row 3")
    assert outcomes([wrong, good], 2) == [wrong, good]


def test_no_device_left_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fleet, "devices", property(lambda self: 0))
    with pytest.raises(RunnerError, match="no device with key 'a' is left"):
        outcomes([])


# --- with real trackers and servers ---------------------------------------------------------------


@contextmanager
def real_fleet(folder: Path, devices: int) -> Iterator[tuple[int, list[subprocess.Popen[bytes]]]]:
    """A tracker, and servers with key ``loop``; gives the tracker's port and the servers."""
    path = os.pathsep.join([WITHOUT_TORCH, *(entry for entry in sys.path if entry)])
    started: list[subprocess.Popen[bytes]] = []

    def start(module: str, *more: str) -> None:
        with open(folder / f"{len(started)}.txt", "wb") as out:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", module, "--host", "127.0.0.1", *more],
                    stdout=out,
                    stderr=out,
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,
                )
            )

    def begin() -> int | None:
        """Start all; None where one of them does not come up, say because its port was taken meanwhile."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        start("tvm.exec.rpc_tracker", "--port", str(port), "--port-end", str(port + 1))
        for _ in range(devices):
            start("tvm.exec.rpc_server", "--tracker", f"127.0.0.1:{port}", "--key", "loop")
        end = time.monotonic() + 45
        while time.monotonic() < end and all(process.poll() is None for process in started):
            with suppress(OSError):
                if registered("127.0.0.1", port)["loop"] == devices:
                    return port
            time.sleep(0.2)
        return None

    try:
        for _ in range(3):
            port = begin()
            if port is not None:
                break
            for process in started:
                kill(process)
            said = [(folder / f"{i}.txt").read_text(errors="replace")[-300:] for i in range(len(started))]
            started.clear()
        else:
            raise AssertionError(f"the servers did not start: {said}")
        yield port, started[1:]
    finally:
        for process in started:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a server and the processes it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.timeout(280)
def test_three_devices_one_killed_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tornado")
    before = set(psutil.Process().children(recursive=True))
    trained = models.ZOO["xgb_three"]()
    with real_fleet(tmp_path, 3) as (port, servers):
        log = Log(tmp_path / "log.jsonl")

        def progress(event: Any) -> None:
            if event.trial == 3:
                kill(servers[0])

        search = api.search(
            trained,
            batch_sizes=(7,),
            trials=10,
            log=log,
            rpc_tracker=f"127.0.0.1:{port}",
            rpc_key="loop",
            progress=progress,
        )
        result = search.result
        assert (result.stopped, result.trials) == ("trials", 10)
        # Other load may slow a candidate beyond its limit, but no candidate fails because its device is gone.
        assert set(result.failures) <= {"timeout"}
        records = log.read().records
        assert {record.session for record in records} == {"rpc:loop"}
        assert all("parallel" not in record.config for record in records)
        X = models.data()[0]
        np.testing.assert_allclose(search.model.predict(X), hbtvm.compile(trained).predict(X), rtol=1e-5)

        # And when all are gone, the best so far comes back all the same.
        def last(event: Any) -> None:
            if event.trial == 13:
                for server in servers:
                    kill(server)

        impatient = FleetOptions("127.0.0.1", port, "loop", patience=3.0)
        monkeypatch.setattr("hbtvm.compiler.candidates.fleet.FleetOptions", lambda *given, **more: impatient)
        search = api.search(
            trained,
            batch_sizes=(7,),
            trials=40,
            log=log,
            rpc_tracker=f"127.0.0.1:{port}",
            rpc_key="loop",
            progress=last,
        )
        assert search.result.stopped == "devices"
        assert "no device with key 'loop' is left" in search.result.warnings[0]
        assert search.result.groups["7 rows"].best is not None
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler on this machine")
def test_a_gpus_sums_in_parts_are_added_on_the_device(tmp_path: Path) -> None:
    """A library as a fleet's GPUs get it, but of loops in place of threads, on this machine as the device."""
    ensemble = random_ensemble(np.random.default_rng(6), trees=40, groups=2)
    forest, strategy = make_forest(ensemble, "float32", "float32"), strategies_on(GPU)["tree_traversal"]
    workload = workload_of(forest, 100)
    config = {**strategy.default(workload, GPU), "row_tile": 8, "row_threads": 4, "tree_blocks": 3}
    made = with_epilogue(strategy.module(workload, config), 2, 3)
    functions = {}
    for name in ("main", "finish"):
        alone = tvm.IRModule({"main": made[name].with_attr("global_symbol", "main")})
        functions[name] = serial(alone)["main"].with_attr("global_symbol", name)
    path = str(tmp_path / "kernel.so")
    link_library(compile_module(tvm.IRModule(functions), CPU), path)
    session = rpc.LocalSession()
    session.cuda = session.cpu
    tables = [*strategy.shared(forest).values(), *strategy.tables(forest, config).values()]
    kernel = RemoteCandidate.of(session, path, strategy.signature(workload, config), tables, on_gpu=True)
    X = random_rows(np.random.default_rng(1), ensemble, 50, "float32")
    got = kernel.run(X) / ensemble.divisor + ensemble.base_score
    np.testing.assert_allclose(got, margins(ensemble, X), rtol=0, atol=tolerance(ensemble, "float32"))
    assert kernel.seconds(X, 3) > 0
