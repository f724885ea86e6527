"""A library's model in a process of its own, whose crash or hang ends in an error here."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from hbtvm.comparison.library import Live, from_file
from hbtvm.errors import HbtvmError, InputError, ModelError
from hbtvm.frontends.files import kind_of_file, located
from hbtvm.tuning.measuring.worker_process import last_line
from hbtvm.words.printable import shown

TIMEOUT = 300.0  # seconds for a call of the library
_SAFE = ("json", "ubjson", "lightgbm", "catboost", "onnx", "treelite", "ydf", "spark")
"""Kinds of model files that run no code."""

# The child takes the parent's search path before its first import, and the current folder last, for a user's
# modules that a pickle names.
_BOOT = (
    "import os, sys; sys.path[:] = [*filter(None, sys.argv[2].split('\\n')), os.getcwd()]; "
    "from hbtvm.comparison.process import serve; serve(int(sys.argv[1]))"
)


def needs_trust(path: str | os.PathLike[str]) -> bool:
    """Return whether loading a model file with its library can run any program."""
    return _kind(path) not in _SAFE


def require_trust(path: str | os.PathLike[str], trust: bool) -> None:
    """Raise `InputError` if a file is a pickle, and the user does not trust it."""
    if not trust and needs_trust(path):
        kind = "file of skops" if _kind(path) == "skops" else "pickle"
        raise InputError(
            f"{path}: to call the library, this {kind} has to be loaded, which can run any program; if it is "
            "a file that you trust, say so with --trust (in Python: trust=True)"
        )


def _kind(path: str | os.PathLike[str]) -> str:
    try:
        return kind_of_file(located(path))
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{path}: the file can't be read ({error.strerror}).") from error


class Remote:
    """A model file, loaded by its library in another process; see `hbtvm.comparison.library.Library`.

    `path`: a pickle, a file of skops, XGBoost, LightGBM, CatBoost or ONNX, a folder of Spark or YDF, or
        an MLflow folder that holds one of them.
    `wanted`, `threads`: as for `hbtvm.comparison.library.Live`.
    `trust`: whether a pickle may be loaded, which can run any program.
    `timeout`: seconds of a call after which the process is killed.
    Raises `InputError` if a pickle is not trusted. Raises `ModelError` if the file can't be read. Raises
    `HbtvmError` if the process fails.
    """

    def __init__(
        self,
        path: str,
        wanted: Sequence[str],
        threads: int,
        *,
        trust: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        require_trust(path, trust)
        self._path, self._timeout = path, timeout
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        ours, theirs = socket.socketpair()
        places = "\n".join(os.path.abspath(entry) for entry in sys.path if entry)
        counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, str(theirs.fileno()), places],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **counts},
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        try:
            self.title, self.outputs = self._call(
                "open", str(located(path)), _kind(path), tuple(wanted), threads
            )
        except BaseException:
            self.close()
            raise

    def take(self, X: Any) -> None:
        """See `Library`."""
        self._call("take", X)

    def result(self, output: str) -> Any:
        """See `Library`."""
        return self._call("result", output)

    def prepare(self, output: str, rows: int) -> float:
        """See `Library`."""
        seconds: float = self._call("prepare", output, rows)
        return seconds

    def seconds(self, output: str, rows: int, calls: int) -> float:
        """See `Library`."""
        seconds: float = self._call("seconds", output, rows, calls)
        return seconds

    def close(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        self._output.close()

    def _call(self, name: str, *arguments: Any) -> Any:
        what = f"{self._path}: the library's process"
        during = (
            "loading the model" if name == "open" else f"{arguments[0]}" if name != "take" else "the rows"
        )
        try:
            self._connection.send((name, arguments))
            if not self._connection.poll(self._timeout):
                raise HbtvmError(
                    f"{what} did not answer within {self._timeout:g} seconds ({during}); compare fewer rows, "
                    "or allow more time with --timeout"
                )
            good, value = self._connection.recv()
        except (EOFError, OSError) as error:
            raise HbtvmError(f"{what} {self._how_it_ended()} ({during})") from error
        if not good:
            raise value
        return value

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        code = self._process.poll()
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"crashed with {signal.Signals(-code).name}"
        else:
            how = f"exited with status {code}"
        last = last_line(self._output.fileno())
        return f"{how}: {shown(last, 200)}" if last else how


def serve(descriptor: int) -> None:
    """Answer calls until the parent closes the connection: the process's main function."""
    os.set_inheritable(descriptor, False)
    model: Live | None = None
    with Connection(descriptor) as connection:
        while True:
            try:
                name, arguments = connection.recv()
            except (EOFError, OSError):
                return
            try:
                if name == "open":
                    path, kind, wanted, threads = arguments
                    model = Live(_loaded(path, kind), wanted, threads)
                    answer: Any = (model.title, model.outputs)
                else:
                    answer = getattr(model, name)(*arguments)
                connection.send((True, answer))
            except HbtvmError as error:
                connection.send((False, error))
            except Exception as error:
                connection.send((False, HbtvmError(f"the library failed: {_sentence(error)}")))


def _loaded(path: str, kind: str) -> Any:
    try:
        return from_file(path, kind)
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{path}: its library can't load it, since {error.name} is not installed; install it, or run "
            "hbtvm check where the model was trained"
        ) from error
    except Exception as error:
        raise ModelError(f"{path}: its library can't load it: {_sentence(error)}") from error


def _sentence(error: Exception) -> str:
    reason = next(iter(str(error).splitlines()), "") or "no message"
    return f"{type(error).__name__}: {shown(reason, 300)}"
