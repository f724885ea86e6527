"""`python -m benchmarks.gpu` without a GPU: behind the emulated driver, and its refusals."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from benchmarks.common import higgs_like
from benchmarks.gpu import __main__ as benchmark
from benchmarks.gpu import bundle
from benchmarks.gpu import peers as peers_of
from benchmarks.gpu.clock import KINDS, Calls
from benchmarks.gpu.peers import peers
from benchmarks.gpu.report import table
from benchmarks.gpu.torch_forest import _paths, padded
from hbtvm import api
from hbtvm.runtime.cuda import driver
from hbtvm.strategies import make_forest
from tests import emulated
from tests.cuda.test_cuda_target import NO_GPU
from tests.ensembles import random_ensemble

needs_compiler = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


@needs_compiler
@pytest.mark.parametrize("output", ["predictions", "margins"])
def test_the_benchmark_times_all_alike(
    output: str, cupy: type[emulated.Cupy], machine: emulated.Machine
) -> None:
    model = bundle.models(12)["xgboost"][0]  # it has a base score
    made = api.compile(model, target="cuda", batch_sizes=(50,))
    X = higgs_like(50, 28, 1)[0]
    roofs = {"bandwidth": benchmark.copy_bandwidth(driver.gpu(), 1 << 16), "comparisons": 1e12}
    want = made.predict(X, peers_of.OUTPUTS[output])

    def other(rows: np.ndarray) -> Calls:
        # The emulated clock tells a millisecond for each thing that is queued.
        def queued() -> None:
            for _ in range(8):
                emulated.later(lambda: rows)

        return Calls(queued, lambda: want.copy())

    def wrong(rows: np.ndarray) -> Calls:
        return Calls(lambda: None, lambda: want + 1)

    others: dict[str, peers_of.Make] = {"FIL": other, "torch": wrong}
    cell = benchmark.measure(made, X, others, output, 1, roofs)
    launches = cell["times"]["queued"]["hbtvm"] * 1e3
    assert list(cell["times"]) == list(KINDS) and cell["times"]["queued"]["FIL"] == pytest.approx(8e-3)
    # A kernel at least, and what adds the base score.
    assert launches == pytest.approx(round(launches)) and launches >= 2
    assert all(time > 0 for times in cell["times"].values() for time in times.values())
    assert cell["errors"]["torch"].startswith("ValueError: 100.0% of its scores differ")
    assert cell["rows_per_second"] == pytest.approx(50e3 / launches)


@needs_compiler
def test_the_benchmark_says_that_rows_need_a_library(
    machine: emulated.Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu"])
    monkeypatch.setitem(sys.modules, "cupy", None)  # type: ignore[arg-type]
    for torch, text in (
        (None, "neither of which is installed"),
        (_torch_of_cpus(), "torch that sees the GPU"),
    ):
        monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
        assert benchmark.main() == 2
        assert text in capsys.readouterr().out


def _torch_of_cpus() -> types.ModuleType:
    made = types.ModuleType("torch")
    vars(made)["cuda"] = types.SimpleNamespace(is_available=lambda: False)
    return made


def test_the_tables_ratios_are_of_the_same_time() -> None:
    times = {"queued": {"hbtvm": 1e-3, "FIL": 3e-3, "XGBoost": 2e-3}}
    times |= {"waited": {"hbtvm": 2e-3, "FIL": 3e-3}, "host": {"hbtvm": 4e-3, "FIL": 2e-3}}
    cell = {"model": "lightgbm", "data": "higgs", "rows": 50, "times": times, "rows_per_second": 5e4}
    cell |= {"share_of_bandwidth": 0.25, "share_of_comparisons": 0.5, "errors": {"XGBoost": "no memory"}}
    results = {"gpu": "G", "driver": "13.0", "output": "margins", "left_out": {"torch": "not here"}}
    text = table(results | {"cells": [cell]})
    line = next(line for line in text.splitlines() if "50 " in line)
    cells = [one.strip() for one in line.strip("|").split("|")]
    assert cells[2:8] == ["1 ms", "XGBoost 2 ms, 2.00×", "2 ms", "FIL 3 ms, 1.50×", "4 ms", "FIL 2 ms, 0.50×"]
    assert cells[8:] == ["5e+04", "25%", "50%"]
    assert "Left out: torch (not here)" in text and "Failed: XGBoost (no memory)" in text
    assert "margins, base score included" in text and all(what in text for what in KINDS.values())
    alone = table(results | {"cells": [{**cell, "times": {kind: {"hbtvm": 1e-3} for kind in KINDS}}]})
    assert "| – " in alone


def test_the_roof_of_comparisons_is_half_the_lanes() -> None:
    gpu = types.SimpleNamespace(multiprocessors=132, clock=1.755e9)
    assert benchmark.comparisons(gpu) == 132 * 64 * 1.755e9  # type: ignore[arg-type]


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert benchmark.main() == 2
    assert "NVIDIA driver" in capsys.readouterr().out


def test_the_tables_of_the_torch_peers_mean_the_forest() -> None:
    """Walked and multiplied in numpy, as torch does on a GPU."""
    ensemble = random_ensemble(np.random.default_rng(5), trees=4, max_leaves=9)
    forest = make_forest(ensemble, "float32", "float32")
    nodes = padded(forest)
    paths = _paths(nodes)
    X = np.random.default_rng(6).normal(size=(30, ensemble.n_features)).astype(np.float32)
    columns = X[:, forest.column_feature]
    for tree in range(4):
        at = np.zeros(len(X), int)
        for _ in range(forest.depth):
            left = columns[np.arange(len(X)), nodes["column"][tree, at]] <= nodes["threshold"][tree, at]
            at = np.where(left, nodes["left"][tree, at], nodes["right"][tree, at])
        tests = columns[:, paths["column"][tree]] <= paths["threshold"][tree]
        leaf = tests.astype(np.float32) @ paths["path"][tree].astype(np.float32) == paths["left_counts"][tree]
        assert (leaf.sum(1) == 1).all()
        np.testing.assert_array_equal(leaf @ paths["value"][tree], nodes["value"][tree, at])


@pytest.fixture(scope="module", params=["lightgbm", "xgboost", "three classes"])
def boosted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Any]:
    """A library, a model's file, and hbtvm's model of it for the CPU."""
    import lightgbm
    import xgboost

    X, y = higgs_like(2_000, 28, 0)
    path = tmp_path_factory.mktemp("peers") / "model"
    if request.param == "lightgbm":
        path = path.with_suffix(".txt")
        options: dict[str, Any] = {"objective": "binary", "num_leaves": 15, "verbose": -1}
        lightgbm.train(options, lightgbm.Dataset(X, y), 12).save_model(path)
    else:
        path = path.with_suffix(".json")
        options = {"objective": "binary:logistic", "max_depth": 5}
        if request.param == "three classes":
            options, y = {"objective": "multi:softprob", "num_class": 3, "max_depth": 5}, y + (X[:, 0] > 1)
        xgboost.train(options, xgboost.DMatrix(X, y), 12).save_model(path)
    library = "lightgbm" if request.param == "lightgbm" else "xgboost"
    return library, str(path), api.compile(path, batch_sizes=(100,), threads=1)


def agree(made: Calls, model: Any, X: np.ndarray, output: str = "predictions") -> None:
    want = model.predict(X, peers_of.OUTPUTS[output])
    benchmark.compare(made.host(), want)
    benchmark.compare(np.asarray(made.device()), want)


OUTPUTS = pytest.mark.parametrize("output", list(peers_of.OUTPUTS))


@OUTPUTS
def test_xgboost_as_a_peer_means_the_model(boosted: tuple[str, str, Any], output: str) -> None:
    library, path, model = boosted
    X = higgs_like(70, 28, 2)[0]
    found = peers(library, path, output, "cpu")[0]
    assert ("XGBoost" in found) == (library == "xgboost")
    if library == "xgboost":
        agree(found["XGBoost"](X), model, X, output)


@OUTPUTS
def test_torch_as_a_peer_means_the_model(boosted: tuple[str, str, Any], output: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    library, path, model = boosted
    X = higgs_like(70, 28, 2)[0]
    found, left_out = peers(library, path, output, "cpu")
    assert {"torch GEMM", "torch TT"} <= set(found), left_out
    for name in found:
        if name.startswith("torch"):
            agree(found[name](X), model, X, output)


def test_what_cannot_take_part_is_left_out_with_a_reason(
    boosted: tuple[str, str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("nvforest", "cuml", "cuml.fil", "cupy"):
        monkeypatch.setitem(sys.modules, module, None)
    library, path, _ = boosted
    left_out = peers(library, path, "predictions", "cuda")[1]
    assert "cuml" in left_out["forest_inference"]
    # XGBoost's wheels for CPUs alone say so; of others, CuPy is missing.
    assert ("xgboost" in left_out) == (library == "xgboost")
    assert "gives no margins" in peers(library, path, "margins", "cpu")[1]["forest_inference"]


class Forest:
    """What `nvforest.load_model` and `cuml.fil.ForestInference.load` give, as their documentation has it."""

    def __init__(self, model: Any, in_place: bool, tuned: bool = False) -> None:
        self.model, self.in_place, self.tuned = model, in_place, tuned

    def optimize(
        self, *, data: Any = None, batch_size: int = 1024, predict_method: str = "predict"
    ) -> Forest | None:
        assert data is not None and hasattr(self, predict_method)
        if not self.in_place:
            return type(self)(self.model, False, True)
        self.tuned = True
        return None

    def predict(self, X: np.ndarray) -> np.ndarray:
        assert self.tuned and self.in_place  # else it would give classes
        return np.asarray(self.model.predict(X))

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        assert self.tuned and not self.in_place  # else it is for what was loaded as a classifier
        shares = np.asarray(self.model.predict(X))
        return shares if shares.ndim > 1 else shares[:, None]


def test_forest_inference_is_called_as_documented(
    boosted: tuple[str, str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    library, path, model = boosted
    kind = {"lightgbm": "lightgbm", "xgboost": "xgboost_json"}[library]
    X = higgs_like(70, 28, 2)[0]

    def load_model(file: str, *, model_type: str, device: str, precision: str) -> Forest:
        assert (file, model_type, device, precision) == (path, kind, "cpu", "single")
        return Forest(model, in_place=False)

    class ForestInference:
        @classmethod
        def load(cls, file: str, *, model_type: str) -> Forest:
            assert (file, model_type) == (path, kind)
            return Forest(model, in_place=True)

    for name, modules in {
        "nvForest": {"nvforest": {"load_model": load_model}},
        "FIL": {"nvforest": None, "cuml": {}, "cuml.fil": {"ForestInference": ForestInference}},
    }.items():
        for module, content in modules.items():
            made = None if content is None else types.ModuleType(module)
            vars(made).update(content) if content else None
            monkeypatch.setitem(sys.modules, module, made)
        found, left_out = peers(library, path, device="cpu")
        assert name in found, left_out
        agree(found[name](X), model, X)


def test_a_peer_of_another_model_is_noticed() -> None:
    want = np.linspace(-1, 1, 1000)
    benchmark.compare(want[:, None] + 1e-6, want)
    benchmark.compare(np.stack([1 - want, want], axis=1), want)
    few = want.copy()
    few[:5] += 1
    benchmark.compare(few, want)
    with pytest.raises(ValueError, match=r"100.0% of its scores differ, by up to 0.5"):
        benchmark.compare(want + 0.5, want)
