"""`make gpu-check` as far as it goes without a GPU: behind the stand-in for the driver, and its refusals."""

from __future__ import annotations

import sys

import emulated
import numpy as np
import pytest
from ensembles import random_ensemble
from test_cuda_target import NO_GPU

from benchmarks.gpu import __main__ as benchmark
from benchmarks.gpu import check
from benchmarks.gpu.report import table
from benchmarks.gpu.torch_forest import _paths, padded
from hbtvm import api
from hbtvm.compiler.target import resolve
from hbtvm.runtime import driver
from hbtvm.strategies import make_forest

needs_compiler = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


@needs_compiler
def test_its_steps_hold(capsys: pytest.CaptureFixture[str]) -> None:
    with emulated.machine():
        chosen = ("bitvector as lightgbm", "gemm as scikit-learn", "perfect_tree_traversal as xgboost")
        steps = check.steps(resolve("cuda"), rows=(1, 70))
        assert check.run(step for step in steps if step[0] in chosen) == 0
        assert check.run(iter([("a step", lambda: str(1 // 0))])) == 1
    assert capsys.readouterr().out.count("ok ") == 3


@needs_compiler
def test_the_benchmark_times_kernel_and_copies() -> None:
    with emulated.machine():
        model = check.models()["lightgbm"][0]
        made = api.compile(model, target="cuda", batch_sizes=(50,))
        X = check.higgs_like(50, 28, 1)[0]
        roofs = {"bandwidth": benchmark.copy_bandwidth(driver.gpu(), 1 << 16), "comparisons": 1e12}
        cell = benchmark.measure(made, X, {}, 1, roofs)
        # The stand-in's clock tells a millisecond for each run.
        assert cell["times"]["kernel"]["hbtvm"] == pytest.approx(1e-3)
        assert cell["rows_per_second"] == pytest.approx(50_000)
    cell = {"model": "lightgbm", "data": "higgs", "rows": 50, **cell}
    cell["times"]["kernel"]["FIL"] = 3e-3
    text = table({"gpu": "G", "driver": "13.0", "left_out": {"torch": "not here"}, "cells": [cell]})
    assert "FIL 3 ms" in text and "3.00×" in text and "Left out: torch (not here)" in text


@pytest.mark.skipif(not NO_GPU, reason="this machine has a GPU")
def test_without_a_gpu_they_say_what_is_needed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["check"])
    assert check.main() == 2
    said = capsys.readouterr().out
    assert "no NVIDIA GPU that can be used" in said and "without network needs" in said
    assert benchmark.main() == 2


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
        leaf = tests.astype(np.float32) @ paths["path"][tree].astype(np.float32) == paths["turns"][tree]
        assert (leaf.sum(1) == 1).all()
        np.testing.assert_array_equal(leaf @ paths["value"][tree], nodes["value"][tree, at])


@pytest.mark.gpu
@pytest.mark.skipif(NO_GPU, reason="this machine has no NVIDIA GPU with a driver")
def test_all_holds_on_this_machines_gpu() -> None:
    assert check.run(check.steps(resolve("cuda"), trials=8)) == 0
