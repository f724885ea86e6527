"""The servers that are compared, each one process on one core."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.serve.load import Payload

MODEL = "m"
SERVERS = ("raw", "starlette", "hbtvm", "mlserver")
TITLES = {
    "raw": "an ASGI function, constant",
    "starlette": "a Starlette route, constant",
    "hbtvm": "hbtvm serve",
    "mlserver": "MLServer",
}
PEER_PACKAGES = ("mlserver", "mlserver-lightgbm", "mlserver-sklearn")


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def peer_interpreter(folder: Path) -> str:
    """The interpreter of MLServer's environment, which is made if it is not there."""
    python = folder / "mlserver" / "bin" / "python"
    if not python.exists():
        print(f"making {python.parents[1]} ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEER_PACKAGES], check=True)
    return str(python.absolute())


@dataclass
class Server:
    """A server's process.

    Attributes
    ----------
    name
        One of `SERVERS`.
    command, folder, environment
        How it is started.
    port
        Where it listens.
    core
        The CPU that it runs on.
    """

    name: str
    command: list[str]
    folder: Path
    port: int
    core: int
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where predictions are asked for."""
        return f"http://127.0.0.1:{self.port}/v2/models/{MODEL}/infer"

    def start(self, log: IO[Any], payload: Payload) -> None:
        """Start it, and wait for its first answer.

        Raises
        ------
        RuntimeError
            If there is none within a minute.
        """
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env={**os.environ, **one_thread, **self.environment},
            stdout=log,
            stderr=log,
            preexec_fn=lambda: os.sched_setaffinity(0, {self.core}),
        )
        end = time.monotonic() + 60
        while True:
            try:
                self.ask(payload)
                return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise RuntimeError(f"{self.name} does not answer: {error}") from error
                time.sleep(0.1)

    def ask(self, payload: Payload) -> bytes:
        """One request's answer."""
        request = urllib.request.Request(self.url, payload.body, payload.headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: bytes = answer.read()
        return found

    def stop(self) -> None:
        """End it."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def made(name: str, folder: Path, core: int, environments: Path) -> Server:
    """A server of the files in a folder: ``m.tar``, ``m.txt``, and ``answer``, which is the constant one."""
    port = free_port()
    root = str(Path(__file__).parents[2])
    here = {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    if name == "hbtvm":
        command = [sys.executable, "-m", "hbtvm", "serve", f"{MODEL}.tar", "--port", str(port),
                   "--watch", "0.1"]  # fmt: skip
        return Server(name, command, folder, port, core, here)
    if name == "mlserver":
        python = peer_interpreter(environments)
        _write_settings(folder / "mlserver", folder / f"{MODEL}.txt", port)
        command = [str(Path(python).with_name("mlserver")), "start", "mlserver"]
        return Server(name, command, folder, port, core)
    command = [sys.executable, "-m", "benchmarks.serve.constant", name, str(port), "answer"]
    return Server(name, command, folder, port, core, here)


def _write_settings(folder: Path, model: Path, port: int) -> None:
    """MLServer without processes beside its own: handing a small model's requests to them takes longer."""
    folder.mkdir(exist_ok=True)
    settings = {
        "host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_port": free_port(),
        "parallel_workers": 0, "debug": False, "use_structured_logging": False,
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings))
    model_settings = {
        "name": MODEL,
        "implementation": "mlserver_lightgbm.LightGBMModel",
        "parameters": {"uri": str(model.absolute())},
    }
    (folder / "model-settings.json").write_text(json.dumps(model_settings))
