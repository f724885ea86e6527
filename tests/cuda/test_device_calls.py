"""How few of the driver's functions a call on a GPU takes, and that its scores are the same."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hbtvm.errors import DeviceError
from hbtvm.operators.base import Input
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.execution.mapped import MAPPED_BYTES
from hbtvm.runtime.cuda.memory import Event
from hbtvm.runtime.cuda.model import DeviceModel
from hbtvm.runtime.cuda.timing import Resident
from hbtvm.runtime.model import Model
from tests import emulated
from tests.cuda_kernels import guarded
from tests.emulated import DEPTH, FAILURE, LAUNCHES, Array, Cupy, Machine, later, package
from tests.models import data
from tests.runtime_models import trained

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


@pytest.fixture
def calls(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the driver's functions that are called, by name."""
    counts = Counter[str]()

    def counted(name: str, function: Any) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            counts[name] += 1
            return int(function(*arguments))

        return call

    functions = driver.gpu().driver._functions
    for name, function in list(functions.items()):
        monkeypatch.setitem(functions, name, counted(name, function))
    return counts


@pytest.mark.parametrize("name", ["lgb_two", "xgb_three_vector"])
def test_one_row_takes_three_calls_where_the_device_is_current(calls: Counter[str], name: str) -> None:
    X, model = data()[0][:1].astype(np.float32), Model(package(name))
    with driver.gpu().current():
        want = model.predict(X)
        calls.clear()
        got = model.predict(X)
    del calls["cuCtxPopCurrent_v2"]  # of the test's own context
    assert calls == {"cuCtxGetCurrent": 1, "cuLaunchKernel": 1, "cuStreamSynchronize": 1}
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(got, trained(name)[0].predict(X))


def test_the_device_is_made_current_where_it_is_not(machine: Machine) -> None:
    model = Model(package("lgb_two"))
    X = data()[0][:1].astype(np.float32)
    want = model.predict(X)
    assert machine.get(DEPTH) == 0
    np.testing.assert_array_equal(model.predict(X), want)
    with driver.gpu(1).current():  # another library's device
        np.testing.assert_array_equal(model.predict(X), want)


@pytest.mark.parametrize("name", ["lgb_two", "xgb_three_vector", "lgb_three_ova"])
def test_a_few_rows_are_computed_as_many_are(machine: Machine, name: str) -> None:
    X = data()[0].astype(np.float32)
    few = MAPPED_BYTES // X[:1].nbytes
    model, whole = Model(package(name)), Model(package(name))
    whole.warm_up()
    for one in whole._kernels.on_device.kernels.values():
        for executor in one._executors:
            executor._few = 0  # through copies
    for n in (1, 2, 63, min(few, len(X)), min(few + 1, len(X))):
        np.testing.assert_array_equal(model.predict(X[:n], "raw"), whole.predict(X[:n], "raw"))


def test_a_fault_in_one_row_is_told_and_its_memory_not_used_again(machine: Machine) -> None:
    model = Model(package("lgb_two"))
    X = data()[0][:1].astype(np.float32)
    want = model.predict(X)
    machine.set(FAILURE, 700)
    with pytest.raises(driver.CudaError, match="illegal memory access"):
        model.predict(X)
    machine.set(FAILURE, 0)
    executor = model._kernels.on_device.kernels[X.dtype].executor(1)
    assert not executor._mapped
    np.testing.assert_array_equal(model.predict(X), want)


@pytest.mark.parametrize("name", ["lgb_two", "lgb_three_ova"])
def test_rows_on_the_device_are_computed_by_one_kernel(
    cupy: type[Cupy], machine: Machine, calls: Counter[str], name: str
) -> None:
    made = package(name)
    model = Model(made)
    X = np.tile(data()[0].astype(np.float32), (8, 1))
    want = model.predict(X, "raw")
    model._kernels.on_device = DeviceModel(made, 0, chunk_bytes=1)
    tile = model._kernels.on_device.kernels[X.dtype].executor(len(X)).work.row_tile
    # What lies behind the rows is not read.
    memory = guarded(X.shape, np.dtype(np.float32))
    memory[:] = X
    cupy.cuda.stream = machine.stream()
    executor = model._kernels.on_device.kernels[X.dtype].executor(len(X))
    for n in (len(X) // tile * tile, len(X) // tile * tile - 1):
        rows = memory[len(X) - n :]
        assert rows.ctypes.data % 16 == 0
        raw = Cupy.empty((n, made.output.n_outputs), np.float64)
        with driver.gpu().current():
            calls.clear()
            executor.run_on_device(rows.ctypes.data, n, raw.array.ctypes.data, cupy.cuda.stream)
            assert calls == {"cuStreamIsCapturing": 1, "cuLaunchKernel": 1}
        np.testing.assert_array_equal(cupy.asnumpy(raw).reshape(want[:n].shape), want[len(X) - n :])


@pytest.mark.parametrize("name", ["lgb_three_ova", "xgb_three_softmax", "sk_hist_two_nan"])
def test_an_output_takes_one_more_launch_than_raw_scores(
    cupy: type[Cupy], machine: Machine, calls: Counter[str], name: str
) -> None:
    model = Model(package(name))
    X, spec = data()[0].astype(np.float32), model.package.output
    model.warm_up()
    with driver.gpu().current():
        for output in filter(spec.by_any_library, (None, *spec.outputs)):
            is_raw = isinstance(spec.nodes[spec.name_of(output)], Input)
            for n in (1, len(X)):
                model.predict(Array(X[:n]), output)  # lays out the launch
                calls.clear()
                got = model.predict(Array(X[:n]), output)
                assert calls == {"cuCtxGetCurrent": 1, "cuLaunchKernel": 1 if is_raw else 2}, output
                np.testing.assert_allclose(cupy.asnumpy(got), model.predict(X[:n], output), rtol=1e-12)


@pytest.mark.parametrize("name", ["lgb_two", "xgb_three_vector"])
def test_as_many_runs_are_timed_as_are_asked_for(machine: Machine, calls: Counter[str], name: str) -> None:
    model = Model(package(name))
    model.warm_up()
    X = data()[0].astype(np.float32)
    kernel = model._kernels.on_device.kernels[X.dtype].executor(len(X)).work.kernel
    resident, each = Resident(kernel, X), 1 + (kernel.signature.parts > 1)
    for number in (1, 63, 64, 200):
        calls.clear()
        before = machine.get(LAUNCHES)
        seconds = resident.seconds(number)
        assert machine.get(LAUNCHES) - before == number * each
        # The emulated clock counts what is queued.
        assert seconds == pytest.approx(number * each * 1e-3)
        assert calls["cuGraphLaunch"] == number // 64


def test_rows_of_another_stream_are_ready_once_the_callers_waits_for_it(
    cupy: type[Cupy], machine: Machine
) -> None:
    model = Model(package("lgb_two"))
    X = data()[0].astype(np.float32)
    want = model.predict(2 * X, "raw")
    cupy.cuda.stream, made_in = machine.stream(), machine.stream()
    own, cupy.cuda.stream = cupy.cuda.stream, made_in
    rows = later(lambda: 2 * X)
    with driver.gpu().current():
        made = Event(driver.gpu())
        made.record(made_in)
        made.hold(own)
    cupy.cuda.stream = own
    scores = model.predict(rows, "raw")
    assert np.isnan(rows.array).all() and np.isnan(scores.array).all()  # neither stream was waited for
    np.testing.assert_array_equal(cupy.asnumpy(scores), want)


def test_a_capture_is_refused_and_left_as_it_was(cupy: type[Cupy], machine: Machine) -> None:
    model = Model(package("lgb_two"))
    X = data()[0].astype(np.float32)
    want = model.predict(X, "raw")
    stream = machine.stream()
    cupy.cuda.stream = stream
    gpu = driver.gpu()
    with gpu.current():
        gpu.driver.call("cuStreamBeginCapture_v2", stream, 1)
        with pytest.raises(DeviceError, match="captured into a CUDA graph"):
            model.predict(Array(X), "raw")
        gpu.driver.call("cuStreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))
    np.testing.assert_array_equal(cupy.asnumpy(model.predict(Array(X), "raw")), want)
    assert machine.get(DEPTH) == 0
