"""`hbtvm.tune`, `hbtvm.compile` and `hbtvm.load` from end to end, on real models and processes."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import joblib
import lightgbm as lgb
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.neighbors import KernelDensity

import hbtvm
import hbtvm.recursive as rec
from hbtvm import trials
from hbtvm.compiler.recursion.tree_gru import make_scorer
from hbtvm.compiler.targets.target import resolve
from hbtvm.errors import BuildError, InputError, InputTypeError, ModelError, TargetError, UnsupportedModel
from hbtvm.logs.store import Log
from hbtvm.recursive import known
from hbtvm.strategies import STRATEGIES
from hbtvm.tuning import session
from hbtvm.tuning.measuring.artifacts import KEPT, Artifacts
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.settings import Settings

pytestmark = pytest.mark.usefixtures("shared_workers")

X = np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)
Y = X[:, 0] * X[:, 1] + X[:, 2]


@pytest.fixture(scope="module")
def booster() -> lgb.Booster:
    data = lgb.Dataset(X, Y)
    return lgb.train({"num_leaves": 15, "verbose": -1, "num_threads": 1}, data, 30)


def test_search_keeps_a_log_that_the_next_run_carries_on_from(booster: lgb.Booster, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    found = hbtvm.search(booster, batch_sizes=(1, 64), trials=12, log=log, threads=1)
    records = Log(log).read().records
    assert found.result.trials == 12
    # The final's measurements are no trials, but they are kept.
    assert len(records) >= 12
    assert {record.workload["rows"] for record in records} == {1, 64}
    assert {record.strategy for record in records} == set(STRATEGIES) - {"oblivious"}
    assert all(record.tvm and record.hbtvm == hbtvm.__version__ for record in records)
    np.testing.assert_allclose(found.model.predict(X), booster.predict(X), rtol=1e-5, atol=1e-5)
    seconds = [kernel.seconds for kernel in found.model.package.kernels if kernel.dtype == "float32"]
    assert all(time is not None and time > 0 for time in seconds)

    again = hbtvm.search(booster, batch_sizes=(1, 64), trials=12, log=log, threads=1)
    assert again.result.resumed == 12
    assert again.result.trials == 12
    compiled = hbtvm.compile(booster, batch_sizes=(1, 64), log=log, threads=1)
    assert compiled.package.tuning["origins"] == ["log", "log"]


def test_searches_are_handed_what_scores_their_candidates(
    booster: lgb.Booster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels, in place of PyTorch: of models of either kind."""
    seen: list[Settings] = []

    class Enough(Exception):
        pass

    def tune(tasks: object, settings: Settings, machine: object = None) -> None:
        seen.append(settings)
        raise Enough

    monkeypatch.setattr(session, "tune", tune)
    weights = known.example_weights("tree_gru", 16, 20)
    for model in (booster, rec.Model(known.tree_gru(16, 2), weights)):
        with pytest.raises(Enough):
            hbtvm.search(model, trials=1)
    assert [settings.make_scorer for settings in seen] == [make_scorer] * 2


def test_a_winner_is_packed_as_it_was_timed(booster: lgb.Booster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the search has built is built again."""
    libraries: dict[str, bytes] = {}
    real = Artifacts.collect

    def collect(self: Artifacts) -> list[BuiltLibrary]:
        kept = real(self)
        libraries.update(self._contents)
        return kept

    def refuse(*_: object) -> None:
        raise AssertionError("a kernel was built once more")

    monkeypatch.setattr(Artifacts, "collect", collect)
    monkeypatch.setattr("hbtvm.compiler.assemble.build_kernel", refuse)
    found = hbtvm.search(booster, batch_sizes=(1, 64), trials=14, threads=1, dtype="float64")
    packed = [kernel.library for kernel in found.model.package.kernels]
    assert len(packed) == 2 and set(packed) <= set(libraries.values())
    assert len(libraries) <= 2 * KEPT
    assert all(kernel.object.startswith(b"\x7fELF") for kernel in found.model.package.kernels)
    np.testing.assert_allclose(found.model.predict(X.astype(float)), booster.predict(X), rtol=1e-10)


def test_two_kernels_for_two_types_of_rows(booster: lgb.Booster) -> None:
    model = hbtvm.compile(booster, batch_sizes=(8,), threads=1)
    assert [kernel.dtype for kernel in model.package.kernels] == ["float32", "float64"]
    exact = hbtvm.compile(booster, batch_sizes=(8,), threads=1, dtype="float64")
    assert [(k.dtype, k.value_dtype) for k in exact.package.kernels] == [("float64", "float64")]
    forest = RandomForestRegressor(3, random_state=0).fit(X, Y)
    exact = hbtvm.compile(forest, batch_sizes=(8,), threads=1, dtype="float64")
    assert [(k.dtype, k.value_dtype) for k in exact.package.kernels] == [("float32", "float64")]


def test_one_batch_size_gives_the_same_bits_however_rows_are_split(booster: lgb.Booster) -> None:
    for strategy in ("bitvector", "tree_traversal"):
        model = hbtvm.compile(booster, batch_sizes=100, threads=2, strategies=strategy)
        whole = model.predict(X)
        for rows in (1, 7, 130):
            parts = [model.predict(X[i : i + rows]) for i in range(0, len(X), rows)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_a_package_round_trip(booster: lgb.Booster, tmp_path: Path) -> None:
    path = tmp_path / "model.tar"
    model = hbtvm.compile(booster, batch_sizes=(1, 100), threads=2)
    model.save(path)
    loaded = hbtvm.load(path, threads=1)
    np.testing.assert_array_equal(loaded.predict(X), hbtvm.load(path).predict(X))
    np.testing.assert_allclose(loaded.predict(X), booster.predict(X), rtol=1e-5, atol=1e-5)


def test_deep_forests_have_a_strategy_too() -> None:
    labels = np.array(["a", "b", "c"])[np.digitize(Y, [-0.5, 0.5])]
    forest = RandomForestClassifier(5, random_state=0).fit(X, labels)
    model = hbtvm.compile(forest, batch_sizes=(100,), threads=1)
    np.testing.assert_array_equal(model.predict(X), forest.predict(X))
    rows = np.random.default_rng(0).normal(size=(2000, X.shape[1]))
    noise = RandomForestClassifier(5, random_state=0).fit(rows, rows[:, 0] * rows[:, 1] > rows[:, 2])
    assert max(tree.get_n_leaves() for tree in noise) > 128
    with pytest.raises(InputError, match=r"no strategy can hold this model.*leaves"):
        hbtvm.compile(noise, strategies=["bitvector"])


def test_compiling_for_another_machine(booster: lgb.Booster, tmp_path: Path) -> None:
    path, other = tmp_path / "old.tar", {"kind": "llvm", "mcpu": "x86-64-v3"}
    hbtvm.compile(booster, target=other, batch_sizes=(32,), threads=1).save(path)
    assert hbtvm.load(path).package.target["features"] == resolve(other)["features"]


def test_a_target_this_machine_cannot_run(
    booster: lgb.Booster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("hbtvm.runtime.cpu.host_features", lambda: frozenset({"sse4.2", "popcnt"}))
    target = '{"kind": "llvm", "mcpu": "x86-64-v3"}'
    with pytest.raises(TargetError, match=r"this machine lacks .*avx2.*compile without a search"):
        hbtvm.tune(booster, target=target)
    model = hbtvm.compile(booster, target=target, batch_sizes=(32,), threads=1)
    model.save(tmp_path / "model.tar")
    with pytest.raises(hbtvm.errors.PackageError, match=r"avx2, .*this machine lacks"):
        model.predict(X)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batch_sizes": ()}, InputError, "batch_sizes is empty; expected whole numbers of rows in a list"),
        ({"batch_sizes": (0, 5)}, InputError, "a batch size is 0; expected a whole number of at least 1"),
        ({"batch_sizes": "100"}, InputTypeError, "batch_sizes is '100', a str; expected whole numbers"),
        ({"batch_sizes": 3.5}, InputTypeError, "batch_sizes is 3.5, a float; expected whole numbers"),
        ({"batch_sizes": (1, 3.5)}, InputTypeError, "a batch size is 3.5, a float; expected a whole number"),
        ({"batch_sizes": ["1"]}, InputTypeError, "a batch size is '1', a str; expected a whole number"),
        ({"batch_sizes": True}, InputTypeError, "a batch size is True, a bool; expected a whole number"),
        ({"threads": 0}, InputError, "threads is 0; expected a whole number of at least 1, such as 2"),
        ({"threads": 2**63}, InputError, "threads is larger than 65,535; expected a whole number up to that"),
        ({"batch_sizes": 2**31}, InputError, "a batch size is larger than 2,147,483,647; expected a whole"),
        ({"threads": "2"}, InputTypeError, "threads is '2', a str; expected a whole number of at least 1"),
        ({"dtype": "float16"}, InputError, "dtype is 'float16'; expected 'float32' or 'float64'"),
        ({"target": 5}, InputTypeError, "target is 5; expected 'cpu', 'cuda', 'opencl' or a TVM target"),
        ({"strategies": 5}, InputTypeError, "strategies is 5, an int; expected names in a list"),
        ({"strategies": [5]}, InputTypeError, "expected names in a list, such as"),
        ({"log": 5}, InputTypeError, "log is an int; expected the path of a file"),
        ({"seed": -1}, InputError, "seed is -1; expected a whole number of at least 0"),
        ({"seed": "x"}, InputTypeError, "seed is 'x', a str; expected a whole number"),
        ({"trials": 2.0}, InputTypeError, "trials is 2.0, a float; expected a whole number"),
        ({"time_budget": "60"}, InputTypeError, "time_budget is '60', a str; expected a number of seconds"),
        ({"time_budget": float("nan")}, InputError, "time_budget is nan; expected a number of seconds"),
        ({"transfer": "no"}, InputTypeError, "transfer is 'no', a str; expected True or False"),
        ({"progress": 1}, InputTypeError, "progress is an int; expected a function"),
        ({"diversity": 0}, InputError, "diversity is 0; expected a whole number of at least 1"),
        ({"epsilon": "much"}, InputTypeError, "epsilon is 'much', a str; expected a number from 0 to 1"),
        ({"epsilon": 2}, InputError, "epsilon is 2; expected a number from 0 to 1"),
        ({"strategies": ["magic"]}, InputError, "no strategy 'magic'; expected one of bitvector"),
        ({"target": "abacus"}, TargetError, "'abacus' is not known"),
        ({"target": '{"kind": "cuda", "arch": "sm_61"}'}, TargetError, "'sm_61' is too old"),
        ({"target": '{"kind": '}, TargetError, "not valid JSON"),
        ({"target": {"kind": "llvm", "mcpu": "z80"}}, TargetError, "no CPU named 'z80'"),
        ({"trials": 0}, InputError, "trials is 0; expected a whole number of at least 1"),
        ({"time_budget": -1}, InputError, "time_budget is -1; expected a number of seconds above 0"),
        ({"explorer": "magic"}, InputError, "no explorer 'magic'; expected one of annealing"),
    ],
)
def test_bad_options_are_named(
    booster: lgb.Booster, options: dict, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        hbtvm.search(booster, **options)


def test_unknown_options_are_named() -> None:
    for function in (hbtvm.search, hbtvm.tune, hbtvm.compile):
        with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got an unexpected .*'trails'$"):
            function("m.pkl", trails=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^export\(\) got an unexpected keyword argument 'trails'"):
        trials.export("m.pkl", "t.tar", trails=3)


@pytest.mark.parametrize(
    "option", [{"time_budget": 9.0}, {"rpc_key": "a"}, {"rpc_tracker": "h:1"}, {"sample": object()}]
)
def test_an_export_refuses_options_of_measuring(option: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"an export measures nothing, so it takes no {next(iter(option))}"):
        trials.export("m.pkl", tmp_path / "t.tar", **option)
    with pytest.raises(InputError, match="trials is 0"):
        trials.export("m.pkl", tmp_path / "t.tar", trials=0)


def test_options_of_numpy_and_single_ones(booster: lgb.Booster) -> None:
    model = hbtvm.compile(booster, batch_sizes=np.int64(8), threads=np.int32(1), strategies="gemm")  # type: ignore[arg-type]
    kernels = [kernel for kernel in model.package.kernels if kernel.dtype == "float32"]
    assert [(kernel.rows, kernel.strategy, kernel.threads) for kernel in kernels] == [(8, "gemm", 1)]
    model = hbtvm.compile(booster, batch_sizes=np.array([8, 16]), threads=1)  # type: ignore[arg-type]
    assert sorted({kernel.rows for kernel in model.package.kernels}) == [8, 16]


def test_models_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"KernelDensity .* GaussianMixture compiles"):
        hbtvm.compile(KernelDensity().fit(X))
    with pytest.raises(ModelError, match=r"nowhere\.pkl"):
        hbtvm.compile(tmp_path / "nowhere.pkl")


def test_no_compiler_is_said_at_the_start(booster: lgb.Booster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match=r"no C\+\+ compiler was found.*apt-get install g\+\+"):
        hbtvm.search(booster)


def test_interrupting_returns_the_best_so_far(booster: lgb.Booster) -> None:
    seen = []

    def interrupt(trial: hbtvm.api.Progress) -> None:
        seen.append(trial)
        if len(seen) == 3:
            raise KeyboardInterrupt

    found = hbtvm.search(booster, batch_sizes=(1, 64), trials=50, threads=1, progress=interrupt)
    assert found.result.interrupted
    assert found.result.trials == 3
    np.testing.assert_allclose(found.model.predict(X), booster.predict(X), rtol=1e-5, atol=1e-5)


def test_a_killed_run_loses_only_what_was_in_flight(booster: lgb.Booster, tmp_path: Path) -> None:
    model, log = tmp_path / "model.txt", tmp_path / "log.jsonl"
    booster.save_model(model)
    options = f"batch_sizes=(64,), trials=100, log={str(log)!r}, threads=1"
    script = f"import hbtvm; hbtvm.tune({str(model)!r}, {options})"
    run = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not (log.exists() and len(log.read_bytes().splitlines()) >= 3):
            assert run.poll() is None, "the run ended early"
            assert time.monotonic() < deadline, "nothing was logged"
            time.sleep(0.05)
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    records = len(Log(log).read().records)
    assert records >= 3
    found = hbtvm.search(model, batch_sizes=(64,), trials=records + 2, log=log, threads=1)
    assert found.result.resumed == records


def test_importing_hbtvm_imports_no_compiler() -> None:
    heavy = ("tvm", "lightgbm", "xgboost", "sklearn")
    script = f"import sys, hbtvm; hbtvm.load; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_completion_lists_the_interface_only() -> None:
    assert dir(hbtvm) == sorted(hbtvm.__all__)


def test_the_public_interface_only_grows() -> None:
    """Names and options that programs rely on; adding to them is fine."""
    common = {"target", "batch_sizes", "threads", "log", "dtype", "strategies", "max_bytes"}
    search = common | {"trials", "time_budget", "transfer", "seed", "progress"}
    assert {"Model", "compile", "load", "search", "tune"} <= set(hbtvm.__all__)
    assert {"model", *search} <= set(inspect.signature(hbtvm.search).parameters)
    assert {"model", *common} <= set(inspect.signature(hbtvm.compile).parameters)
    assert list(inspect.signature(hbtvm.load).parameters)[:2] == ["path", "threads"]
    methods = {"predict", "predict_proba", "decision_function", "score_samples", "save", "summary"}
    assert methods <= set(dir(hbtvm.Model))


def test_the_size_of_compressed_files_is_an_option(tmp_path: Path) -> None:
    path = tmp_path / "m.joblib"
    joblib.dump(RandomForestRegressor(2, max_depth=2).fit(X, Y), path, compress=3)
    with pytest.raises(ModelError, match="expands to more than 100 bytes"):
        hbtvm.compile(path, max_bytes=100)
    with pytest.raises(InputError, match="max_bytes"):
        hbtvm.compile(path, max_bytes=0)
