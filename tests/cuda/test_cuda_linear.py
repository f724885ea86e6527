"""CUDA kernels of linear models: run on the CPU as they are, and compiled without a GPU."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import hbtvm
from hbtvm.compiler.building.cuda_source import cuda_source, machine_code
from hbtvm.compiler.candidates.samples import error_scale, plain_sums, sample_rows
from hbtvm.schedules.cuda import linear as linear_cuda
from hbtvm.schedules.space import Config
from hbtvm.strategies import make_linear, strategies_on, workload_of
from hbtvm.strategies.trees.forest import DType
from tests import emulated
from tests.cuda_kernels import GPU, NO_NVCC, serial_sums, usage
from tests.cuda_kernels import emulated as emulated_sums
from tests.emulated import SM90
from tests.knobs import assert_knobs_matter
from tests.models import data, targets
from tests.strategies.test_linear import CASES, random_linear

LINEAR = strategies_on(GPU, "linear")["linear"]


def sums(operand: Any, config: Config, X: np.ndarray, rows: int, emulate: bool) -> np.ndarray:
    """Return the sums, float64 (n, O), of a kernel built for calls of `rows` rows, run on the CPU."""
    tables = list(LINEAR.tables(operand, config).values())
    run = emulated_sums if emulate else serial_sums
    return run(LINEAR, workload_of(operand, rows), config, tables, X)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_sums_are_the_references(case: str, dtype: DType) -> None:
    rng = np.random.default_rng(len(case))
    linear = random_linear(rng, **CASES[case])
    X = sample_rows(linear, 150, dtype)
    for rows, nan in ((1, True), (100_000, False), (3000, True)):
        given = X if nan else np.nan_to_num(X, nan=3.0)
        operand = make_linear(linear, dtype, nan)
        workload = workload_of(operand, rows)
        space = LINEAR.space(workload, GPU)
        default = LINEAR.default(workload, GPU)
        assert space.contains(default)
        for config in [default, *space.sample(rng, 1)]:
            np.testing.assert_allclose(
                sums(operand, config, given, rows, False),
                plain_sums(linear, given),
                rtol=0,
                atol=1e-13 * error_scale(linear, given),
                err_msg=str(config),
            )


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")
@pytest.mark.parametrize("columns", ["shared", "global"])
def test_the_cuda_source_itself_gives_the_references_sums(columns: str) -> None:
    linear = random_linear(np.random.default_rng(2), numbers=7, codes=3, outputs=4)
    operand = make_linear(linear, "float64")
    X = sample_rows(linear, 100, "float64")
    space = LINEAR.space(workload_of(operand, 3000), GPU)
    config: Config = {**LINEAR.default(workload_of(operand, 3000), GPU), "columns": columns}
    config = {**config, "row_tile": 64, "row_threads": 32, "output_tile": 2}
    assert space.contains(config)
    np.testing.assert_allclose(
        sums(operand, config, X, 3000, True),
        plain_sums(linear, X),
        rtol=0,
        atol=1e-13 * error_scale(linear, X),
    )


@pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))
@pytest.mark.parametrize("target", ["yes_no", "names"])
def test_a_model_on_a_device_predicts_as_the_library(machine: emulated.Machine, target: str) -> None:
    X = np.tile(data()[0], (3, 1))
    library = LogisticRegression().fit(data()[0], targets(target))
    model = hbtvm.compile(library, target=SM90, batch_sizes=(1, 5000))
    assert model.device == "cuda:0"
    assert {kernel.strategy for kernel in model.package.kernels} == {"linear"}
    for dtype in ("float32", "float64"):
        rows = X.astype(dtype)
        for n in (1, 33, len(X)):
            np.testing.assert_allclose(
                model.predict_proba(rows[:n]), library.predict_proba(rows[:n]), rtol=1e-9
            )
            np.testing.assert_array_equal(model.predict(rows[:n]), library.predict(rows[:n]))


@pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))
@pytest.mark.parametrize("rows", [1, 1000, 1_000_000])
def test_a_sample_compiles(rows: int) -> None:
    operand = make_linear(random_linear(np.random.default_rng(3), 14, codes=8, outputs=3), "float64")
    workload = workload_of(operand, rows)
    config = LINEAR.default(workload, GPU)
    code, printed = machine_code(cuda_source(LINEAR.module(workload, config), GPU), GPU, "-Xptxas=-v")
    assert code[:4] == b"\x7fELF"
    used, said = usage(printed), linear_cuda.needs(workload, config)
    assert used["shared"] <= said.shared
    assert used["spills"] == used["stack"] == 0


def test_rows_too_wide_for_shared_memory_are_read_where_they_lie() -> None:
    operand = make_linear(random_linear(np.random.default_rng(3), 4000), "float64")
    workload = workload_of(operand, 100_000)
    config = LINEAR.default(workload, GPU)
    assert config["columns"] == "global"
    assert LINEAR.space(workload, GPU).contains(config)


@pytest.mark.parametrize("rows", [1, 10_000])
def test_every_knob_is_a_choice(rows: int) -> None:
    operand = make_linear(random_linear(np.random.default_rng(7), 8, codes=4, outputs=6), "float64")
    tied = {"row_tile", "row_threads"}
    assert_knobs_matter(LINEAR, workload_of(operand, rows), GPU, 30, tied)
