"""A kernel runs in a package as it ran when the tuner timed it: the same calls, on as many threads."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from lightgbm import LGBMClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.compiler.assemble import KernelChoice, assemble
from hbtvm.compiler.candidates.program import make_executor
from hbtvm.runtime.executor import Executor
from hbtvm.runtime.model import Model
from hbtvm.runtime.threads import ThreadPool
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from tests.kernels import CPU
from tests.runtime_models import random_rows, trained

THREADS = 2


def trace(executor: Executor, rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The kernel's calls by shapes of rows and first table cut in tiles, and hand-offs: pieces, threads."""
    calls: list[Any] = []
    handed: list[tuple[int, int | None]] = []
    run = ThreadPool.run

    def noted(pool: ThreadPool, work: Any, count: int, threads: int | None = None) -> None:
        handed.append((count, threads))
        run(pool, work, count, threads)

    with monkeypatch.context() as patch:
        patch.setattr(ThreadPool, "run", noted)
        for name in ("_function", "_brief"):
            real = getattr(executor, name)

            def spy(*arguments: Any, real: Any = real) -> None:
                calls.append([tuple(one.shape) for one in arguments])
                real(*arguments)

            patch.setattr(executor, name, spy)
        executor.run(rows)
    return sorted(calls), handed


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_tuners_call_is_the_runtimes(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = trained("lgb_three_nan")[1]
    forest = make_forest(graph.anchor, "float32", "float32")
    sizes, shared = (1, 70, 3000), (("none", 1), ("rows", 1), ("rows", 4), ("trees", 1))
    how = STRATEGIES[strategy]
    for (rows, (parallel, grain)), seconds in zip(
        itertools.product(sizes, shared), itertools.cycle((2e-6, 3e-4, 0.1)), strict=False
    ):
        if rows == 1 and parallel == "rows":
            continue
        workload = workload_of(forest, rows, THREADS)
        config = {**how.serial_default(workload, CPU), "parallel": parallel, "grain": grain}
        choices = [
            KernelChoice(rows, strategy, config, seconds, THREADS, "tuned"),
            # Some rival that a model of times may prefer.
            KernelChoice(rows + 500, strategy, {**config, "parallel": "rows"}, 1e-5, THREADS, "tuned"),
        ]
        package = assemble(graph, [forest], choices, CPU, {})
        entry = package.kernels[0]
        assert (entry.threads, entry.parallel, entry.grain) == (THREADS, parallel, grain)
        # The loader takes a library that has the path of a loaded one for that one.
        path = tmp_path / f"{rows}-{parallel}-{grain}.so"
        path.write_bytes(entry.library)
        function = tvm_ffi.load_module(str(path))["main"]
        timed = make_executor(function, forest, how, workload, config, THREADS)
        model = Model.from_package(package, THREADS)
        model.warm_up()
        kernels: Any = next(iter((model._kernels or {}).values()))
        assert [tuple(step) for step in kernels.planner.plan(rows)] == [(0, 0, rows)]
        runs = kernels._executors[0]
        assert runs.parallelism.busy(rows, entry.signature.row_tile) == timed.parallelism.busy(
            rows, entry.signature.row_tile
        )
        X = random_rows(rows)
        assert trace(runs, X, monkeypatch) == trace(timed, X, monkeypatch)
        np.testing.assert_array_equal(runs.run(X), timed.run(X))


def test_what_frames_of_a_pipeline_run_is_tuned():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    model = make_pipeline(StandardScaler(), LGBMClassifier(n_estimators=3, verbose=-1)).fit(X, X[:, 0] > 0)
    found = hbtvm.search(model, batch_sizes=10, trials=3, threads=1).model
    timed = [kernel.dtype for kernel in found.package.kernels if kernel.seconds is not None]
    assert timed == ["float64"]
    assert found._prepared(X[:10]).dtype == np.float64
