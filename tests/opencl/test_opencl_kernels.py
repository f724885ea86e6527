"""Sampled configurations of every strategy for OpenCL, on a driver."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.building.cuda import build_code
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.reference import margins
from hbtvm.measuring.device import DeviceCandidate
from hbtvm.runtime.opencl import driver
from hbtvm.strategies import make_forest, strategies_on, workload_of
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import tolerance

pytestmark = pytest.mark.usefixtures("opencl")

ANY = resolve({"kind": "opencl"})
_SAMPLES = int(os.environ.get("HBTVM_OPENCL_SAMPLES", "2"))
"""Configurations of each strategy."""


@pytest.mark.parametrize("name", strategies_on(ANY))
def test_configurations_are_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, strategy = np.random.default_rng(3), strategies_on(ANY)[name]
    seen: set[tuple[Any, ...]] = set()
    while len(seen) < _SAMPLES:
        dtype: Any = str(rng.choice(["float32", "float64"]))
        ensemble = random_ensemble(
            rng,
            compare_dtype=dtype,
            trees=int(rng.integers(3, 40)),
            max_leaves=int(rng.choice([4, 8])),
            groups=int(rng.choice([1, 2])),
            missing=str(rng.choice(["mixed", "left"])),
            categories=name not in ("perfect_tree_traversal", "oblivious") and bool(rng.integers(2)),
            oblivious=name == "oblivious",
        )
        forest = make_forest(ensemble, dtype, "float32")
        workload = workload_of(forest, int(rng.choice([40, 1_000, 100_000])))
        if strategy.refuse(workload):
            continue
        space, default = strategy.space(workload, ANY), strategy.default(workload, ANY)
        assert space.contains(default)
        # Few configurations of small models are valid: a single draw often finds none.
        drawn = space.sample(rng, 20) if seen else [default]
        config = next((each for each in drawn if tuple(each.items()) not in seen), None)
        if config is None:
            continue
        seen.add(tuple(config.items()))
        parts = strategy.signature(workload, config).parts
        code, launch = build_code(strategy.module(workload, config), ANY, False, parts)
        entry = entry_of(forest, strategy, workload, config, code, launch)
        X = random_rows(rng, ensemble, 77, dtype)
        want = (margins(ensemble, X) - ensemble.base_score) * ensemble.divisor
        atol = max(1e-4, tolerance(ensemble, "float32")) * ensemble.divisor
        for doubles in (False, True):  # keys and pairs, then float64
            monkeypatch.setattr(driver.device(), "doubles", doubles)
            kernel = DeviceCandidate(entry, kind="opencl")
            np.testing.assert_allclose(kernel.run(X), want, rtol=0, atol=atol, err_msg=str(config))
            assert kernel.seconds(X, 2, 200) > 0
