"""A kernel runs in a package as it ran when the tuner timed it: on as many threads, to the last bit."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.compiler.assemble import KernelChoice, assemble
from hbtvm.compiler.candidates.program import make_executor
from hbtvm.runtime.model import Model
from hbtvm.runtime.native.library import load_kernel
from hbtvm.strategies import STRATEGIES, make_forest, workload_of
from tests.ensembles import random_ensemble
from tests.kernels import CPU
from tests.runtime_models import random_rows, trained

pytestmark = pytest.mark.usefixtures("shared_workers")

THREADS = 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_tuners_call_is_the_runtimes(strategy: str, tmp_path: Path) -> None:
    graph = trained("lgb_three_nan")[1]
    if strategy == "oblivious":
        rng, outputs = np.random.default_rng(0), graph.anchor.n_outputs
        kinds = {"groups": outputs, "features": graph.input.n_features, "missing": "mixed"}
        graph = replace(graph, anchor=random_ensemble(rng, trees=30, oblivious=True, **kinds))
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
        path = tmp_path / f"{rows}-{parallel}-{grain}.so"
        path.write_bytes(entry.library)
        timed = make_executor(load_kernel(str(path)), forest, how, workload, config, THREADS)
        model = Model.from_package(package, THREADS)
        model.warm_up()
        assert model._kernels.host is not None
        ((kernel, start, stop, threads),) = model._kernels.host.steps(rows)
        assert (kernel, start, stop) == (0, 0, rows)
        assert [threads] == [step[3] for step in timed.executor.steps(rows)]
        X = random_rows(rows)
        ensemble = graph.anchor
        raw = timed.run(X) / ensemble.divisor + ensemble.base_score
        np.testing.assert_array_equal(model._kernels.raw(X), raw)


def test_what_frames_of_a_pipeline_run_is_tuned():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    model = make_pipeline(StandardScaler(), LGBMClassifier(n_estimators=3, verbose=-1)).fit(X, X[:, 0] > 0)
    found = hbtvm.search(model, batch_sizes=10, trials=3, threads=1).model
    timed = [kernel.dtype for kernel in found.package.kernels if kernel.seconds is not None]
    assert timed == ["float64"]
    assert found._kernels.prepared(X[:10]).dtype == np.float64
