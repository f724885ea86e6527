"""Rows from the host through pinned buffers, on emulated GPUs whose copies from there happen late."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.execution import upload
from hbtvm.runtime.cuda.model import DeviceModel
from hbtvm.runtime.model import Model
from tests import emulated
from tests.emulated import DEPTH, FAILURE, MEMORY, PINNABLE, PINNED, USED, Machine, package
from tests.models import data

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))

PIECE = 1000
NAME = "xgb_three_vector"


@pytest.fixture
def small(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Return a machine on which calls of any size use threads; none of those may be left behind."""
    monkeypatch.setattr(upload, "PIECE_BYTES", PIECE)
    monkeypatch.setattr("hbtvm.runtime.cuda.execution.executor.LEAST_BYTES", 0)
    # Fewer rows would be read by the kernel itself.
    monkeypatch.setattr("hbtvm.runtime.cuda.execution.mapped.MAPPED_BYTES", 1)
    yield machine
    assert not [one for one in threading.enumerate() if one.name == "hbtvm-upload"]
    assert machine.get(DEPTH) == 0


def rows() -> np.ndarray:
    return np.tile(data()[0].astype(np.float32), (20, 1))


def held_by(machine: Machine) -> tuple[int, int]:
    """Bytes of pinned and of device memory."""
    gc.collect()
    return machine.get(PINNED), machine.get(USED)


def in_chunks(chunk: int) -> DeviceModel:
    """A model whose calls from the host are cut into chunks of so many bytes, or of a tile."""
    return DeviceModel(package(NAME), 0, chunk_bytes=chunk)


@pytest.fixture(scope="module")
def want() -> np.ndarray:
    """Scores of `rows` by rows that are copied as they lie."""
    with emulated.machine():
        return in_chunks(1 << 25).scores(rows())


@pytest.mark.parametrize("chunk", [1, 10_000, 1 << 25])
def test_rows_arrive_in_order(small: Machine, want: np.ndarray, chunk: int) -> None:
    model, X = in_chunks(chunk), rows()
    for n in (1, 129, 3000, len(X)):
        for _ in range(2):
            np.testing.assert_array_equal(model.scores(X[:n]), want[:n])


def test_one_lane_is_enough(small: Machine, want: np.ndarray) -> None:
    model, X = in_chunks(1 << 25), rows()
    row = X[:1].nbytes + 16 * want.shape[1]
    small.set(MEMORY, small.get(USED) + len(X) * row // 3)
    np.testing.assert_array_equal(model.scores(X), want)


def test_several_calls_at_once(small: Machine, want: np.ndarray) -> None:
    model, X = in_chunks(10_000), rows()
    wrong: list[int] = []

    def work(first: int) -> None:
        for n in range(first, len(X), 211):
            if not np.array_equal(model.scores(X[:n]), want[:n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in (1, 70, 140)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_buffers_are_few_and_are_used_again(small: Machine) -> None:
    before = held_by(small)
    model, X = in_chunks(10_000), rows()
    model.scores(X)
    held = held_by(small)
    executor = model.kernels[X.dtype].executor(len(X))
    assert len(X) > 3 * executor._spare[0].capacity
    sums = executor._spare[0].capacity * executor.work.outputs * 8
    assert held[0] - before[0] == 4 * PIECE + 2 * sums
    for n in (len(X), 400, len(X)):
        model.scores(X[:n])
    assert held_by(small) == held
    del model, executor
    gc.collect()
    assert held_by(small) == before


def test_without_pinned_memory_rows_are_copied_as_they_lie(small: Machine, want: np.ndarray) -> None:
    model, X = in_chunks(1000), rows()
    small.set(PINNABLE, small.get(PINNED) + 4 * PIECE - 1)
    np.testing.assert_array_equal(model.scores(X), want)


def failing(monkeypatch: pytest.MonkeyPatch, at: int, error: Any) -> None:
    """Make one copy of a piece call something."""
    send, count = upload._Buffer.send, iter(range(10**6))

    def failing_send(self: upload._Buffer, *given: Any) -> None:
        if next(count) == at:
            error()
        send(self, *given)

    monkeypatch.setattr(upload._Buffer, "send", failing_send)


@pytest.mark.parametrize("at", [0, 5])
def test_an_error_in_a_thread_is_the_calls(
    small: Machine, want: np.ndarray, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    before = held_by(small)
    model, X = in_chunks(10_000), rows()

    def error() -> None:
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        failing(patch, at, error)
        with pytest.raises(MemoryError, match="no more"):
            model.scores(X)
    executor = model.kernels[X.dtype].executor(len(X))
    assert not executor._spare_staging and not executor._spare
    np.testing.assert_array_equal(model.scores(X), want)
    del model, executor
    gc.collect()
    assert held_by(small) == before


def test_a_fault_of_the_device_is_the_calls(small: Machine, want: np.ndarray) -> None:
    model, X = in_chunks(10_000), rows()
    model.scores(X)
    small.set(FAILURE, 700)
    with pytest.raises(driver.CudaError, match="illegal memory access"):
        model.scores(X)
    small.set(FAILURE, 0)
    np.testing.assert_array_equal(model.scores(X), want)


def test_ctrl_c_ends_the_threads(small: Machine, want: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    before = held_by(small)
    model, X = in_chunks(10_000), rows()
    main = threading.main_thread().ident
    assert main is not None
    with monkeypatch.context() as patch:
        failing(patch, 9, lambda: signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            while True:  # the signal may come when the call is over
                model.scores(X)
    np.testing.assert_array_equal(model.scores(X), want)
    del model
    gc.collect()
    assert held_by(small) == before


def test_ctrl_c_while_threads_start_ends_those_that_did(
    small: Machine, want: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, X = in_chunks(10_000), rows()
    start, count = threading.Thread.start, iter(range(10))

    def interrupted(self: threading.Thread) -> None:
        if next(count) == 1:
            raise KeyboardInterrupt
        start(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.scores(X)
    np.testing.assert_array_equal(model.scores(X), want)


def test_few_rows_start_no_thread(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("threads for a few rows")

    monkeypatch.setattr(upload.PinnedUpload, "__init__", refuse)
    X = rows()
    Model(package(NAME)).predict(X)
    monkeypatch.setattr("hbtvm.runtime.cuda.execution.executor.LEAST_BYTES", X.nbytes)
    with pytest.raises(AssertionError, match="threads for a few rows"):
        Model(package(NAME)).predict(X)
