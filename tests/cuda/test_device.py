"""Kernels on GPUs, through the runtime as it is on a machine with one (see `emulated`)."""

from __future__ import annotations

import os
import pickle
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.assemble import KernelChoice, assemble
from hbtvm.compiler.building import cuda as cuda_build
from hbtvm.compiler.candidates.tasks import forests_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import DeviceError, InputError, PackageError
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.reference import margins
from hbtvm.operators.base import Input
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.memory import Memory, Pinned
from hbtvm.runtime.cuda.model import DeviceModel
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import from_bytes, to_bytes
from hbtvm.strategies import strategies_on, workload_of
from tests import emulated
from tests.cuda_kernels import guarded
from tests.emulated import (
    DEPTH,
    FAILURE,
    LAUNCHES,
    MEMORY,
    PIECES,
    SM90,
    USED,
    Array,
    Cupy,
    Machine,
    package,
    whole_tiles_package,
)
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import tolerance
from tests.models import data
from tests.runtime_models import trained

GPU = resolve(SM90)
HEADER = Path("/usr/local/cuda/include/cuda.h")


pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


@pytest.mark.parametrize(
    ("name", "knobs", "old"),
    [
        *((name, {}, False) for name in strategies_on(GPU)),
        ("bitvector", {"persistent": 2, "tables": "kept", "resident": 2}, False),
        ("perfect_tree_traversal", {"tree_blocks": 4}, False),
        ("perfect_tree_traversal", {"tree_blocks": 4}, True),
        ("tree_traversal", {}, True),
    ],
)
def test_scores_are_the_references_whatever_the_chunks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, name: str, knobs: dict[str, Any], old: bool
) -> None:
    rng = np.random.default_rng(3)
    kinds = {"missing": "mixed", "categories": True, "groups": 2, "oblivious": name == "oblivious"}
    ensemble = random_ensemble(rng, trees=30, max_leaves=12, compare_dtype="float64", **kinds)
    forests = forests_of(ensemble, "float32", complete=False)
    raw = Input(ensemble.n_outputs)
    outputs = OutputSpec("booster", ensemble.n_outputs, dict.fromkeys(("response", "raw"), raw))
    graph = Graph("lightgbm", "Booster", InputSpec(ensemble.n_features), ensemble, outputs)
    strategy = strategies_on(GPU)[name]
    config = {**strategy.default(workload_of(forests[0], 5000), GPU), **knobs}
    if old:
        monkeypatch.setattr(cuda_build, "with_bounds", lambda module, parts: module)
    made = assemble(graph, forests, [KernelChoice(5000, name, config, None, 1, "default")], GPU, {})
    tile = made.kernels[0].signature.row_tile
    assert tile > 1
    assert made.kernels[0].signature.parts == knobs.get("tree_blocks", 1)
    written = to_bytes(made)
    made = from_bytes(written)
    for dtype, kernel in zip(("float32", "float64"), made.kernels, strict=True):
        X = random_rows(rng, ensemble, 5 * tile + 3, dtype)
        row = X[:1].nbytes + 16 * ensemble.n_outputs
        for chunk in (1, 2 * row * kernel.signature.row_tile, 1 << 25):
            model = DeviceModel(made, 0, chunk)
            for n in (1, tile, tile + 1, len(X)):
                got = model.kernels[np.dtype(dtype)].run(X[:n], None)
                allowed = tolerance(ensemble, kernel.value_dtype)
                np.testing.assert_allclose(got, margins(ensemble, X[:n]), rtol=0, atol=allowed)
        assert machine.get(DEPTH) == 0


@pytest.mark.parametrize("name", ["lgb_two", "sk_forest_three_nan", "xgb_real_base", "sk_isolation_nan"])
def test_a_package_predicts_as_the_library(machine: Machine, name: str) -> None:
    model = Model(from_bytes(to_bytes(package(name))))
    X = data()[0].astype(np.float32)
    for n in (1, 2, 200):
        want = trained(name)[0].predict(X[:n])
        got = model.predict(X[:n])
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(model.predict(X[:7].tolist()), model.predict(X[:7]))
    assert model.device == "cuda:0"
    again = pickle.loads(pickle.dumps(Model(package(name), device="cuda:1")))
    assert again.device == "cuda:1"
    np.testing.assert_array_equal(again.predict(X[:9]), model.predict(X[:9]))


def test_tables_are_there_once_and_leave_with_the_model(machine: Machine) -> None:
    before = machine.get(USED)
    model = Model(package("lgb_two"))
    model.warm_up()
    loaded = machine.get(USED) - before
    tables = {id(t): t for kernel in model.package.kernels for t in kernel.tables}
    executors = len(model.package.kernels)
    assert loaded == sum(max(table.nbytes, 1) for table in tables.values()) + 16 * executors
    X = data()[0].astype(np.float32)
    model.predict(X)
    held = machine.get(PIECES)
    for _ in range(3):
        model.predict(X)
    assert machine.get(PIECES) == held
    del model
    assert machine.get(USED) == before


def test_little_memory_makes_small_chunks_and_none_a_sentence(machine: Machine) -> None:
    X = np.tile(data()[0].astype(np.float32), (40, 1))
    model = Model(package("xgb_three_vector"))
    want = model.predict(X)
    model = Model(package("xgb_three_vector"))
    model.warm_up()
    row = X[:1].nbytes + 16 * model.package.output.n_outputs
    machine.set(MEMORY, machine.get(USED) + len(X) * row // 3)
    launches = machine.get(LAUNCHES)
    np.testing.assert_array_equal(model.predict(X), want)
    assert machine.get(LAUNCHES) - launches > 2
    model = Model(package("xgb_three_vector"))
    model.warm_up()
    machine.set(MEMORY, machine.get(USED) + 100)
    with pytest.raises(DeviceError, match=r"cuda:0 \(Emulated GPU\) is out of memory: .* MiB are needed"):
        model.predict(X)
    machine.set(MEMORY, 100)
    with pytest.raises(DeviceError, match="out of memory"):
        Model(package("xgb_three_vector")).warm_up()


def test_a_fault_is_told_and_its_memory_not_used_again(machine: Machine) -> None:
    model = Model(package("lgb_two"))
    X = data()[0].astype(np.float32)
    want = model.predict(X)
    machine.set(FAILURE, 700)
    with pytest.raises(driver.CudaError, match="illegal memory access") as caught:
        model.predict(X)
    assert caught.value.lasting
    machine.set(FAILURE, 0)
    np.testing.assert_array_equal(model.predict(X), want)
    assert machine.get(DEPTH) == 0


def test_errors_that_lose_the_context() -> None:
    lost = {code for code in range(1, 1000) if driver.CudaError("", code).lasting}
    assert {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999} == lost


@pytest.mark.skipif(not HEADER.is_file(), reason="there is no CUDA toolkit on this machine")
def test_errors_that_lose_the_context_are_those_of_the_toolkit() -> None:
    codes = HEADER.read_text().partition("typedef enum cudaError_enum")[2].partition("CUresult;")[0]
    told = re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*CUDA_ERROR_\w+\s*=\s*(\d+)", codes, re.DOTALL)
    lost = {int(code) for text, code in told if "relaunched" in text or "cannot be used anymore" in text}
    assert {700, 710, 719} <= lost
    assert {code for code in lost if not driver.CudaError("", code).lasting} == set()


@pytest.mark.parametrize("code", [201, 709])
def test_a_device_that_was_reset_is_told(machine: Machine, code: int) -> None:
    model = Model(package("lgb_two"))
    X = data()[0].astype(np.float32)
    model.predict(X)
    machine.set(FAILURE, code)
    with pytest.raises(driver.CudaError, match="start this process anew"):
        model.predict(X)
    machine.set(FAILURE, 0)


def test_several_threads_at_once(machine: Machine) -> None:
    model = Model(package("sk_forest_three_nan"))
    X = data()[0].astype(np.float32)
    want = model.predict(X, "proba")
    wrong: list[int] = []

    def work(first: int) -> None:
        for n in range(first, len(X), 7):
            if not np.array_equal(model.predict(X[: n + 1], "proba"), want[: n + 1]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_rows_on_the_device_give_scores_there_without_waiting(cupy: type[Cupy], machine: Machine) -> None:
    stream = int(machine.stream())
    cupy.cuda.stream = stream
    for name in ("lgb_two", "lgb_three_ova"):
        model = Model(package(name))
        X = data()[0].astype(np.float32)
        for n in (1, 65, len(X)):
            scores = model.predict(Array(X[:n]), "raw")
            assert type(scores) is Array and scores.device.id == 0
            assert np.isnan(scores.array).all()  # nobody has waited yet
            np.testing.assert_array_equal(cupy.asnumpy(scores), model.predict(X[:n], "raw"))


@pytest.mark.parametrize("old", [False, True])
def test_rows_on_the_device_may_begin_anywhere(cupy: type[Cupy], machine: Machine, old: bool) -> None:
    model = Model((whole_tiles_package if old else package)("lgb_three_ova"))
    X = np.tile(data()[0].astype(np.float32), (3, 1))
    want = model.predict(X, "raw")
    memory = guarded((X.size + 8,), np.dtype(np.float32))
    first = -(memory.ctypes.data // 4) % 4  # in elements, to 16 bytes
    for offset in (first, first + 1):
        rows = memory[offset : offset + X.size].reshape(X.shape)
        rows[:] = X
        for n in (1, 64, 640, 700):
            np.testing.assert_array_equal(cupy.asnumpy(model.predict(Array(rows[:n]), "raw")), want[:n])


@pytest.mark.parametrize(
    ("name", "rows", "text"),
    [
        ("lgb_two", Array(np.zeros((3, 4), np.float32), device=1), "on cuda:0, where the model is"),
        ("lgb_two", Array(np.zeros((3, 5), np.float32)), r"got shape \(3, 5\)"),
        ("lgb_two", Array(np.zeros(4, np.float32)), r"got shape \(4,\)"),
        ("lgb_two", Array(np.zeros((0, 4), np.float32)), "at least one row"),
        ("lgb_two", Array(np.zeros((3, 4), "M8[s]")), "expected numbers"),
        ("sk_forest_three_nan", Array(np.full((3, 4), np.inf, np.float32)), "the rows have infinity"),
    ],
)
def test_rows_on_the_device_that_do_not_fit(cupy: type[Cupy], name: str, rows: Array, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Model(package(name)).predict(rows)


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        (emulated.DEVICES, 0, "compiled for an NVIDIA GPU .sm_90., but .* no GPU that it can use"),
        (emulated.CAPABILITY, 61, "compiled for sm_90, and runs on GPUs from sm_75 on, but cuda:0 is a"),
        (
            emulated.UNREADABLE,
            222,
            "driver, for CUDA 13.0, is new enough, .* compile the model again",
        ),
    ],
)
def test_a_machine_that_cannot_run_it_says_why(machine: Machine, setting: int, value: int, text: str) -> None:
    model = Model(package("lgb_two"))
    machine.set(setting, value)
    with pytest.raises(PackageError, match=text):
        model.warm_up()


def test_portable_code_runs_on_other_gpus(machine: Machine) -> None:
    machine.set(emulated.CAPABILITY, 86)
    X = data()[0]
    np.testing.assert_array_equal(Model(package("lgb_two")).predict(X), trained("lgb_two")[0].predict(X))


def test_devices_have_names(machine: Machine) -> None:
    made = package("lgb_two")
    assert Model(made, device=1).device == "cuda:1"
    with pytest.raises(PackageError, match="there is no cuda:7; this machine has 2 GPU"):
        Model(made, device="cuda:7").warm_up()
    with pytest.raises(DeviceError, match="device is 'cuda:x'"):
        Model(made, device="cuda:x")
    with pytest.raises(PackageError, match="can't run on the CPU"):
        Model(made, device="cpu")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_told(machine: Machine) -> None:
    model = Model(package("lgb_two"))
    X = data()[0]
    model.predict(X)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        text = "nothing"
        try:
            model.predict(X)
        except BaseException as error:
            text = str(error)
        os.write(writing, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "forked process can't use the GPU" in os.read(reading, 1000).decode()
    model.predict(X)


def test_memory_of_a_process_is_its_own(machine: Machine) -> None:
    gpu = driver.gpu()
    with gpu.current():
        memory, pinned = Memory.of(gpu, np.arange(5)), Pinned(gpu, 16)
    assert memory.size == 40 and pinned.array.shape == (16,)
    used: Any = machine.get(USED)
    del memory
    assert machine.get(USED) == used - 40
