"""Models of several kernels on a GPU: one behind the other, columns between them on the device."""

from __future__ import annotations

import functools
import gc
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

import hbtvm
from hbtvm.cli.main import main
from hbtvm.compiler.building.cuda import build_code
from hbtvm.compiler.candidates.program import TreeProgram
from hbtvm.compiler.candidates.tasks import forests_of
from hbtvm.errors import DeviceError, InputError, PackageError
from hbtvm.frontends import from_object
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.model import DeviceModel
from hbtvm.runtime.gpu.launch import GATHER
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import Package, from_bytes, to_bytes
from hbtvm.strategies import strategies_on, workload_of
from tests import emulated
from tests.cuda.test_cuda_pipelines import columns as encoded
from tests.cuda.test_cuda_pipelines import data as frame
from tests.cuda.test_device_dlpack import Strange
from tests.cuda_kernels import GPU, NO_NVCC
from tests.emulated import FAILURE, LAUNCHES, MEMORY, SM90, USED, Array, Cupy, Machine, on_host
from tests.fake_tuning import InProcess

pytestmark = [
    pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER)),
    pytest.mark.filterwarnings("ignore"),
]

RNG = np.random.default_rng(3)
X = RNG.normal(size=(200, 5))
Y = X @ np.arange(5.0) + X[:, 0] ** 2
LABELS = np.array(["low", "mid", "top"])[np.digitize(Y, [-2.0, 2.0])]
NEW = RNG.normal(size=(300, 5))


def forest(**given: Any) -> RandomForestClassifier:
    return RandomForestClassifier(4, max_depth=3, random_state=0, **given)


MODELS: dict[str, Callable[[], Any]] = {
    # Trees of all columns in the rows' own type, then a network of rows and of what they make.
    "voting": lambda: VotingRegressor([("r", Ridge()), ("f", RandomForestRegressor(3, max_depth=3))]).fit(
        X, Y
    ),
    # A network, and trees that compare in float32.
    "projected": lambda: make_pipeline(PCA(3), forest()).fit(X, LABELS),
    # The same with trees that read what the network makes as it lies there.
    "boosted": lambda: make_pipeline(
        PCA(3), lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1)
    ).fit(X, LABELS),
    # Two stages, and trees that read columns of both and of the rows.
    "stacked": lambda: StackingClassifier(
        [("f", forest()), ("l", LogisticRegression())], final_estimator=forest(), cv=2, passthrough=True
    ).fit(X, LABELS),
    # Each tree reads what those before it made.
    "chain": lambda: RegressorChain(DecisionTreeRegressor(max_depth=2), order=[0, 1, 2]).fit(
        X, np.stack([Y, Y**2, X[:, 1]], axis=1)
    ),
    "calibrated": lambda: CalibratedClassifierCV(forest(), cv=2).fit(X, LABELS),
}


@functools.cache
def fitted(name: str) -> Any:
    return MODELS[name]()


@functools.cache
def package(name: str) -> Package:
    """Return a model's package, written and read again; within `machine` only."""
    made = hbtvm.compile(fitted(name), target=SM90, batch_sizes=(40,)).package
    data = to_bytes(made)
    assert to_bytes(from_bytes(data)) == data
    return from_bytes(data)


def same(got: Any, want: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(got, want)


def numbers(model: Model, rows: Any) -> Any:
    """Return probabilities, or a regressor's response: what depends on the last bit of scores."""
    return model.predict(rows, "proba" if "proba" in model.package.output.outputs else None)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the driver's functions that are called from now on."""
    made: list[str] = []
    call = driver.Driver.call

    def noted(self: driver.Driver, name: str, *arguments: Any) -> None:
        made.append(name)
        call(self, name, *arguments)

    monkeypatch.setattr(driver.Driver, "call", noted)
    return made


@pytest.mark.parametrize("name", MODELS)
def test_they_predict_as_the_library(machine: Machine, name: str) -> None:
    library, model = fitted(name), Model(package(name))
    assert model.device == "cuda:0" and model.package.stages
    for dtype in ("float64", "float32"):
        rows = NEW.astype(dtype)
        for n in (1, 33, len(rows)):
            same(np.asarray(model.predict(rows[:n])), np.asarray(library.predict(rows[:n])))
            if hasattr(library, "predict_proba"):
                same(model.predict_proba(rows[:n]), library.predict_proba(rows[:n]))
    same(model.predict(NEW[:3].tolist()), library.predict(NEW[:3]))


@pytest.mark.parametrize("name", ["voting", "stacked"])
def test_they_give_what_their_kernels_give_on_a_cpu(machine: Machine, name: str) -> None:
    # In float64 sums differ by their order only, and no tree's decision does.
    library, X32 = fitted(name), NEW.astype(np.float32)
    gpu = hbtvm.compile(library, target=SM90, batch_sizes=(40,), dtype="float64")
    cpu = hbtvm.compile(library, batch_sizes=(40,), dtype="float64", threads=1)
    assert len(gpu.package.stages) == len(cpu.package.stages)
    for rows in (NEW, X32):
        same(numbers(gpu, rows), numbers(cpu, rows), 1e-12, 1e-12)


@pytest.mark.parametrize("name", ["boosted", "projected", "stacked"])
def test_columns_between_kernels_stay_on_the_device(machine: Machine, calls: list[str], name: str) -> None:
    model = Model(package(name))
    want = numbers(model, NEW)
    for n in (1, len(NEW)):
        calls.clear()
        before = machine.get(LAUNCHES)
        np.testing.assert_array_equal(numbers(model, NEW[:n]), want[:n])
        launches = machine.get(LAUNCHES) - before
        copies = [one for one in calls if one.startswith("cuMemcpy")]
        assert copies == ["cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"]
        assert calls.count("cuStreamSynchronize") == 1
        assert not [one for one in calls if one.startswith("cuMemAlloc")]
    # A kernel, and what gathers its rows: not where they lie as it reads them.
    gathers = {"boosted": 0, "projected": 1, "stacked": 3}[name]
    assert launches == len(model.package.stages) + 1 + gathers


@pytest.mark.parametrize("name", ["boosted", "projected", "stacked", "chain"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_on_the_device_give_scores_there(
    cupy: type[Cupy],
    machine: Machine,
    calls: list[str],
    name: str,
    dtype: str,
) -> None:
    model, rows = Model(package(name)), NEW.astype(dtype)
    want = numbers(model, rows)
    cupy.cuda.stream = int(machine.stream())
    for n in (1, 65, len(rows)):
        calls.clear()
        scores = numbers(model, Array(rows[:n]))
        assert type(scores) is Array and np.isnan(scores.array).all()  # nobody has waited yet
        assert "cuStreamSynchronize" not in calls
        assert not [one for one in calls if one in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2")]
        np.testing.assert_allclose(cupy.asnumpy(scores), want[:n], rtol=1e-14)  # numpy's exponentials


def test_rows_at_any_address(cupy: type[Cupy], machine: Machine) -> None:
    for name in ("projected", "boosted", "calibrated"):
        model = Model(package(name))
        want = numbers(model, NEW)
        for offset in range(2):
            memory = np.zeros(NEW.size + 2)
            rows = memory[(-(memory.ctypes.data // 8) % 2) + offset :][: NEW.size].reshape(NEW.shape)
            rows[:] = NEW
            for n in (64, 256, 300):
                got = cupy.asnumpy(numbers(model, Array(rows[:n])))
                np.testing.assert_allclose(got, want[:n], rtol=1e-14)


def test_probabilities_and_other_libraries(cupy: type[Cupy], machine: Machine) -> None:
    model = Model(package("calibrated"))
    want = model.predict_proba(NEW)
    np.testing.assert_array_equal(cupy.asnumpy(model.predict_proba(Array(NEW))), want)
    np.testing.assert_array_equal(on_host(model.predict_proba(Strange(NEW))), want)
    assert model.predict(Array(NEW)).tolist() == fitted("calibrated").predict(NEW).tolist()
    for name in ("voting", "projected"):
        model, wrong = Model(package(name)), np.where(np.arange(300)[:, None] == 17, np.nan, NEW)
        with pytest.raises(InputError, match="row 17"):
            model.predict(wrong)
        with pytest.raises(InputError, match="the rows have NaN"):
            model.predict(Array(wrong))
        with pytest.raises(InputError, match="expected numbers"):
            model.predict(Array(np.zeros((3, 5), "M8[s]")))


@pytest.mark.parametrize("name", ["projected", "stacked", "calibrated"])
def test_chunks_change_nothing(machine: Machine, name: str) -> None:
    rows = np.tile(NEW, (3, 1))
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        given = np.ascontiguousarray(rows, dtype)
        want = DeviceModel(package(name), 0).kernels[dtype].run(given, None)
        for chunk in (1, 1 << 16):
            before = machine.get(LAUNCHES)
            model = DeviceModel(package(name), 0, chunk)
            np.testing.assert_array_equal(model.kernels[dtype].run(given, None), want)
            assert machine.get(LAUNCHES) - before > 3


def test_the_nearest_kernels_of_all_stages_run(machine: Machine) -> None:
    made = hbtvm.compile(fitted("projected"), target=SM90, batch_sizes=(1, 5000)).package
    both = Model(made)
    for n in (1, 300):
        one = Model(replace(made, kernels=_only(made.kernels, n), stages=_stages(made, n)))
        np.testing.assert_array_equal(numbers(both, NEW[:n]), numbers(one, NEW[:n]))
    # A stage may have been tuned for other numbers of rows than the next.
    mixed = Model(replace(made, stages=_stages(made, 1)))
    same(numbers(mixed, NEW), numbers(both, NEW))


def _only(kernels: Any, rows: int) -> Any:
    return tuple(one for one in kernels if (one.rows == 1) == (rows == 1))


def _stages(made: Package, rows: int) -> Any:
    return tuple(replace(stage, kernels=_only(stage.kernels, rows)) for stage in made.stages)


def test_tables_and_memory(machine: Machine) -> None:
    gc.collect()
    before = machine.get(USED)
    model = Model(package("stacked"))
    want = numbers(model, NEW)
    held = machine.get(USED)
    np.testing.assert_array_equal(numbers(model, NEW), want)
    assert machine.get(USED) == held > before
    del model
    gc.collect()
    assert machine.get(USED) == before
    many, model = np.tile(NEW, (40, 1)), Model(package("stacked"))
    model.warm_up()
    machine.set(MEMORY, machine.get(USED) + many.nbytes // 2)
    np.testing.assert_array_equal(numbers(model, many), np.tile(want, (40, 1)))
    model = Model(package("stacked"))
    model.warm_up()
    machine.set(MEMORY, machine.get(USED) + 1000)
    with pytest.raises(DeviceError, match=r"cuda:0 \(Emulated GPU\) is out of memory: .* MiB are needed"):
        model.predict(many)


def test_a_fault_is_told(machine: Machine) -> None:
    model = Model(package("stacked"))
    want = numbers(model, NEW)
    machine.set(FAILURE, 700)
    with pytest.raises(driver.CudaError, match="illegal memory access"):
        numbers(model, NEW)
    machine.set(FAILURE, 0)
    np.testing.assert_array_equal(numbers(model, NEW), want)


def test_several_threads_at_once(machine: Machine) -> None:
    model = Model(package("stacked"))
    want = numbers(model, NEW)
    wrong: list[int] = []

    def work(first: int) -> None:
        for n in range(1 + first, len(NEW), 29):
            if not np.array_equal(numbers(model, NEW[:n]), want[:n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_pipeline_in_front(cupy: type[Cupy], machine: Machine) -> None:
    rows, target = frame()
    model = StackingClassifier([("f", forest()), ("l", LogisticRegression())], cv=2)
    library = make_pipeline(encoded(OneHotEncoder(handle_unknown="ignore")), model).fit(rows, target)
    compiled = hbtvm.compile(library, target=SM90, batch_sizes=(40,))
    assert compiled.package.stages and compiled.package.parts.feeds
    same(compiled.predict(rows), library.predict(rows))
    for n in (1, 150):
        same(compiled.predict_proba(rows[:n]), library.predict_proba(rows[:n]))
    same(compiled.predict_proba(rows[:1].iloc[0].to_dict()), library.predict_proba(rows[:1]))
    with pytest.raises(InputError, match="read in host memory"):
        compiled.predict(Array(np.zeros((3, 4), np.float32)))


def test_damaged_packages_are_refused(machine: Machine) -> None:
    made = package("projected")
    stage = made.stages[0]
    bare = replace(stage, kernels=tuple(replace(one, launch=None) for one in stage.kernels))
    made.validate()
    with pytest.raises(ValueError, match="a kernel is not for 'cuda'"):
        replace(made, stages=(bare,)).validate()
    # Kernels of other releases may lack what gathers columns.
    alone = hbtvm.compile(forest().fit(X, LABELS), target=SM90, batch_sizes=(40,)).package.kernels
    with pytest.raises((PackageError, DeviceError)):
        Model(replace(package("calibrated"), stages=_with(package("calibrated"), alone))).warm_up()


def _with(made: Package, kernels: Any) -> Any:
    code = kernels[0].library
    return tuple(
        replace(stage, kernels=tuple(replace(one, library=code) for one in stage.kernels))
        for stage in made.stages
    )


def test_all_commands_take_them(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hbtvm.tuning.session.Pool", lambda *_: InProcess(program=TreeProgram))
    monkeypatch.chdir(tmp_path)
    library = fitted("calibrated")
    joblib.dump(library, "model.joblib")
    command = ["tune", "model.joblib", "--target", "cuda", "--trials", "3", "--batch-size", "40"]
    assert main([*command, "--strategy", "bitvector"]) == 0
    capsys.readouterr()
    for told in ("model.joblib", "model.tar"):
        assert main(["inspect", told]) == 0
    said = capsys.readouterr().out
    assert "bitvector" in said and "fused" in said
    assert main(["inspect", "model.tar", "--json"]) == 0
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    assert {kernel["strategy"] for kernel in stage["kernels"]} == {"bitvector"}
    np.save("new.npy", NEW)
    compared = ["--model", "model.joblib", "--trust", "--data", "new.npy"]
    assert main(["report", "hbtvm-tuning.jsonl", "--package", "model.tar", *compared]) == 0
    out = capsys.readouterr().out
    assert "as fast as the library" in out and "the package agrees with the library" in out
    model = hbtvm.load("model.tar")
    same(model.predict_proba(NEW), library.predict_proba(NEW))
    assert "GPU" in model.summary()


@pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))
def test_what_gathers_columns_compiles() -> None:
    tree = forest(n_jobs=1).fit(X, Y > 0)
    operand = forests_of(from_object(tree).anchor, "float32", complete=False)[0]
    strategy = strategies_on(GPU)["tree_traversal"]
    workload = workload_of(operand, 40)
    module = strategy.module(workload, strategy.default(workload, GPU))
    for gathers in (False, True):
        code, _ = build_code(module, GPU, portable=False, gathers=gathers)
        assert (GATHER.encode() in code) == gathers
