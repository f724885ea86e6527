"""Run candidates on a remote device through TVM's RPC.

The device needs only TVM's runtime and RPC server. Kernels take plain arrays and run on one thread, or on a
GPU; times are those of whole tiles, without the threads and padding of `hbtvm.runtime`.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.compiler.candidates.tasks import PROGRAM
from hbtvm.errors import DeviceError, InputError
from hbtvm.runtime.package.signature import Signature
from hbtvm.tuning.measuring.fleet import Fleet, FleetOptions
from hbtvm.tuning.measuring.machine import RunnerError

Place = tuple[str, int, str]  # host and port of a tracker, and the key of its devices


class RemoteCandidate:
    """A kernel and its tables, loaded on a device.

    `session`: a `tvm.rpc.RPCSession`.
    `library_path`: the kernel's library on this machine.
    `signature`: the kernel's arguments. If it needs an epilogue, a GPU's library has a second function that
        sums the scores by rows (see `hbtvm.compiler.lowering.cuda.score_epilogue`).
    `tables`: the tables in argument order.
    `on_gpu`: whether the kernel runs on a GPU.
    """

    @classmethod
    def of(
        cls,
        session: Any,
        library_path: str,
        signature: Signature,
        tables: Sequence[np.ndarray],
        on_gpu: bool = False,
    ) -> RemoteCandidate:
        """Return the kernel that the session has loaded, or load it."""
        known = _known.setdefault(session, {})
        # A second upload would overwrite the mapped file and crash the server.
        if library_path not in known:
            known[library_path] = cls(session, library_path, signature, tables, on_gpu)
        return known[library_path]

    def __init__(
        self,
        session: Any,
        library_path: str,
        signature: Signature,
        tables: Sequence[np.ndarray],
        on_gpu: bool,
    ) -> None:
        self._signature, self._on_gpu = signature, on_gpu
        session.upload(library_path)
        self._module = session.load_module(os.path.basename(library_path))
        # A device handle keeps its session alive, and a live session occupies the device.
        self._session = weakref.ref(session)
        self._tables = [self._put(table) for table in tables]
        self._finishes = on_gpu and signature.needs_epilogue
        self._last: tuple[int, list[Any]] | None = None

    def run(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums of each row, as `hbtvm.runtime.native.executor.Executor.sums` does."""
        signature = self._signature
        arguments = self._arguments(rows)
        self._module["main"](*arguments)
        if self._finishes:
            scores, sums = self._finish_arguments(arguments)
            self._module["finish"](scores, sums)
            finished: np.ndarray = sums.numpy().reshape(-1, signature.outputs)[: len(rows)]
            return finished
        scores = arguments[-1].numpy().reshape(-1, signature.outputs, signature.row_tile)
        result: np.ndarray = scores.transpose(0, 2, 1).reshape(-1, signature.outputs)[: len(rows)]
        return result

    def seconds(self, rows: np.ndarray, number: int) -> float:
        """Return the seconds of `number` calls by the device's clock, epilogue included."""
        # Rows stay on the device between calls.
        if self._last is None or self._last[0] != id(rows):
            self._last = id(rows), self._arguments(rows)
        arguments = self._last[1]
        total = self._timed("main", arguments, number)
        if self._finishes:
            total += self._timed("finish", self._finish_arguments(arguments), number)
        return total

    def _timed(self, function: str, arguments: Sequence[Any], number: int) -> float:
        timer = self._module.time_evaluator(function, self._device, number=number, repeat=1)
        return float(timer(*arguments).results[0]) * number

    def _arguments(self, rows: np.ndarray) -> list[Any]:
        """Return the arguments: rows padded to whole tiles, the tables, and scores filled with NaN."""
        signature = self._signature
        tiles = -(-len(rows) // signature.row_tile)
        padded = np.zeros(signature.rows.sizes(tiles=tiles), signature.dtype)
        padded.reshape(-1, signature.n_features)[: len(rows)] = rows
        scores = np.full(signature.scores.sizes(tiles=tiles), np.nan, signature.scores.dtype)
        return [self._put(padded), *self._tables, self._put(scores)]

    def _finish_arguments(self, arguments: Sequence[Any]) -> tuple[Any, Any]:
        """Return the scores and the buffer of their sums."""
        signature = self._signature
        sums = np.full((arguments[0].shape[0], signature.row_tile, signature.groups, signature.width), np.nan)
        return arguments[-1], self._put(sums)

    def _put(self, array: np.ndarray) -> Any:
        import tvm

        return tvm.runtime.tensor(np.ascontiguousarray(array), self._device)

    @property
    def _device(self) -> Any:
        session = self._session()
        assert session is not None, "the session is over"
        return session.cuda() if self._on_gpu else session.cpu()


_known: weakref.WeakKeyDictionary[Any, dict[str, RemoteCandidate]] = weakref.WeakKeyDictionary()
"""Loaded kernels of each live session, by the library's local path."""


def place(tracker: str | None, key: str | None, threads: int | None) -> Place | None:
    """Return the tracker and key of a fleet from the user's options; None without a fleet.

    Raises `InputError` if the tracker or the key is missing, the tracker is not HOST:PORT, or `threads` is
    above 1.
    """
    if tracker is None and key is None:
        return None
    if not tracker or not key:
        raise InputError("a fleet needs both the tracker, as HOST:PORT, and the key of its devices")
    host, _, port = tracker.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError(f"expected the tracker as HOST:PORT, such as 10.0.0.5:9190, not {tracker!r}")
    if threads not in (None, 1):
        raise InputError(f"a fleet measures kernels on one thread, so threads must be 1, not {threads}")
    return host.strip("[]"), int(port), key


def fleet(place: Place, *, rehearse: bool) -> Fleet:
    """Return the machine that measures on a fleet.

    Raises `DeviceError` if the tracker has no device, or a library is not installed.
    """
    host, port, key = place
    try:
        return Fleet(FleetOptions(host, port, key, rehearse=rehearse), [PROGRAM])
    except RunnerError as error:
        raise DeviceError(str(error)) from error
    except ImportError as error:
        raise DeviceError(f"a fleet needs {error.name}: pip install 'hbtvm[fleet]'") from error
