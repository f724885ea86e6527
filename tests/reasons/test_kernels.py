"""Kernels of Shapley values against the reference, in sampled configurations."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from hbtvm.compiler.candidates.program import make_executor
from hbtvm.compiler.candidates.samples import error_scale, plain_sums
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.runtime.package.contents import check_contents
from hbtvm.schedules.space import Config
from hbtvm.strategies import ReasonsOperand, make_reasons, strategies_on, workload_of
from tests.ensembles import random_ensemble, random_rows
from tests.kernels import CPU, build_unchecked
from tests.reasons.coalitions import with_covers

QUADRATURE = strategies_on(CPU, "reasons")["quadrature"]


def values(operand: ReasonsOperand, config: Config, X: np.ndarray, rows: int) -> np.ndarray:
    """Return a kernel's sums, float64, shape (n, outputs * (players + 1))."""
    workload = workload_of(operand, rows)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "kernel.so"))
        build_unchecked(QUADRATURE, workload, config, CPU, path)
        function = tvm_ffi.load_module(path)["main"]
        kernel = make_executor(function, operand, QUADRATURE, workload, config, 1)
        return kernel.run(np.ascontiguousarray(X))


def reasons_of(seed: int, **form: Any) -> TreeReasons:
    rng = np.random.default_rng(seed)
    ensemble = with_covers(random_ensemble(rng, **form), rng)
    player = np.array([0, 1, 0, 2, 3, 4][: ensemble.n_features], np.int32)
    return TreeReasons(ensemble, player, 5)


FORMS: list[dict[str, Any]] = [
    {"trees": 9, "max_leaves": 14, "features": 6, "missing": "mixed"},
    {"trees": 4, "max_leaves": 24, "features": 6, "chain": True, "missing": "left"},
    {"trees": 6, "max_leaves": 9, "features": 6, "groups": 3, "compare_dtype": "float64"},
    {"trees": 5, "max_leaves": 9, "features": 6, "width": 3, "categories": True},
    {"trees": 3, "max_leaves": 1, "features": 6},
    {"trees": 16, "max_leaves": 4, "features": 6, "groups": 16},
]


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reference(form: int, dtype: Any) -> None:
    reasons = reasons_of(form, **FORMS[form])
    rng = np.random.default_rng(form)
    operand = make_reasons(reasons, reasons.compare_dtype, dtype)
    X = random_rows(rng, reasons.ensemble, 53, operand.row_dtype)
    expected = plain_sums(reasons, X)
    scale = error_scale(reasons, X)
    for rows in (1, 53):
        workload = workload_of(operand, rows)
        space = QUADRATURE.space(workload, CPU)
        configs = [QUADRATURE.default(workload, CPU), *space.sample(rng, 2)]
        for config in configs:
            assert space.contains(config)
            found = values(operand, config, X, rows)
            tolerance = (2e-6 if dtype == "float32" else 1e-13) * scale
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=str(config))


def test_every_configuration_of_a_small_model() -> None:
    reasons = reasons_of(7, trees=3, max_leaves=6, features=3)
    operand = make_reasons(reasons, "float32", "float32")
    X = random_rows(np.random.default_rng(7), reasons.ensemble, 37, "float32")
    expected, scale = plain_sums(reasons, X), error_scale(reasons, X)
    space = QUADRATURE.space(workload_of(operand, 37), CPU)
    for config in space.sample(np.random.default_rng(0), 12):
        np.testing.assert_allclose(values(operand, config, X, 37), expected, rtol=0, atol=2e-6 * scale)


def test_damaged_tables_are_refused() -> None:
    reasons = reasons_of(1, trees=4, max_leaves=8, features=6)
    operand = make_reasons(reasons, "float32", "float32")
    workload = workload_of(operand, 1)
    config = QUADRATURE.default(workload, CPU)
    signature = QUADRATURE.signature(workload, config)
    tables = [*QUADRATURE.shared(operand).values(), *QUADRATURE.tables(operand, config).values()]
    check_contents(signature, tables)
    names = [argument.name for argument in signature.tables]
    rng = np.random.default_rng(0)
    for name in ("split", "first"):
        at = names.index(name)
        refused = 0
        for _ in range(60):
            damaged = [table.copy() for table in tables]
            flat = damaged[at].reshape(-1)
            flat[rng.integers(flat.size)] = rng.choice([-1, 7, 99, 2**30])
            try:
                check_contents(signature, damaged)
            except ValueError:
                refused += 1
        assert refused > 40, name
