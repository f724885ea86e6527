"""Kernels of linear models, held against the plain-numpy meaning of the model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from hbtvm.compiler.candidates.program import make_executor
from hbtvm.compiler.candidates.samples import error_scale, plain_sums, sample_rows
from hbtvm.compiler.entries import entry_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.networks.network import Linear
from hbtvm.operators.base import Input
from hbtvm.operators.products import LinearSum
from hbtvm.runtime.cpu import missing_features
from hbtvm.runtime.package.contents import check_contents
from hbtvm.schedules.space import Config
from hbtvm.strategies import STRATEGIES, LinearOperand, make_linear, strategies_on, workload_of
from hbtvm.strategies.trees.forest import DType
from tests.kernels import CPU, build_unchecked
from tests.knobs import assert_knobs_matter

LINEAR = strategies_on(CPU, "linear")["linear"]

CASES: dict[str, dict[str, Any]] = {
    "numbers": {"numbers": 14},
    "one_number": {"numbers": 1},
    "many_numbers": {"numbers": 119, "outputs": 3},
    "shuffled": {"numbers": 6, "codes": 8, "shuffled": True},
    "codes": {"numbers": 0, "codes": 3},
    "one_code": {"numbers": 0, "codes": 1, "outputs": 5},
    "mixed": {"numbers": 7, "codes": 5, "outputs": 2},
    "classes": {"numbers": 9, "codes": 2, "outputs": 10},
    "nothing": {"numbers": 0},
}


def random_linear(
    rng: np.random.Generator, numbers: int, codes: int = 0, outputs: int = 1, shuffled: bool = False
) -> Linear:
    """A model whose columns are all used, and one more if `shuffled`, and whose shifts are far from 0."""
    features = max(1, numbers + codes + shuffled)
    order = rng.permutation(features) if shuffled else np.arange(features)
    tables = [rng.normal(size=(int(rng.integers(1, 20)), outputs)) for _ in range(codes)]
    sums = LinearSum(
        Input(features),
        order[:numbers].astype(np.int32),
        rng.normal(size=numbers) * 50 if shuffled or codes else np.zeros(numbers),
        rng.normal(size=(numbers, outputs)),
        rng.normal(size=(numbers, outputs)),
        order[numbers : numbers + codes].astype(np.int32),
        tuple(map(len, tables)),
        np.concatenate([np.zeros((0, outputs)), *tables]),
    )
    return Linear(sums, rng.normal(size=outputs))


def sums(
    operand: LinearOperand,
    config: Config,
    X: np.ndarray,
    rows: int,
    threads: int = 1,
    target: dict[str, Any] = CPU,
) -> np.ndarray:
    """Return the sums, float64 (n, O), of a kernel built for calls of `rows` rows."""
    workload = workload_of(operand, rows, threads)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "kernel.so"))
        build_unchecked(LINEAR, workload, config, target, path)
        function = tvm_ffi.load_module(path)["main"]
        executor = make_executor(function, operand, LINEAR, workload, config, threads)
        executor.executor.check()
        return executor.run(np.ascontiguousarray(X))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_sums_are_the_references(case: str, dtype: DType) -> None:
    rng = np.random.default_rng(len(case))
    linear = random_linear(rng, **CASES[case])
    X = sample_rows(linear, 150, dtype)
    assert np.isnan(X).any() == bool(CASES[case]["numbers"] or case == "nothing")
    tolerance = 1e-13 * error_scale(linear, X)
    for nan in (True, False):
        given = X if nan else np.nan_to_num(X, nan=3.0)
        operand = make_linear(linear, dtype, nan)
        for rows in (1, 100) if nan else (100,):
            workload = workload_of(operand, rows)
            assert LINEAR.refuse(workload) is None
            space = LINEAR.space(workload, CPU)
            default = LINEAR.default(workload, CPU)
            assert space.contains(default)
            for config in [default, *space.sample(rng, 1)]:
                got = sums(operand, config, given, rows)
                np.testing.assert_allclose(
                    got, plain_sums(linear, given), rtol=0, atol=tolerance, err_msg=str(config)
                )


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("read", ["direct", "transposed"])
def test_other_targets_give_the_same_sums(mcpu: str, read: str) -> None:
    target = resolve({"kind": "llvm", "mcpu": mcpu})
    lacking = missing_features(target)
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    linear = random_linear(np.random.default_rng(1), numbers=13, codes=2, outputs=2)
    operand = make_linear(linear, "float64")
    X = sample_rows(linear, 70, "float64")
    space = LINEAR.space(workload_of(operand, 64), target)
    lookup = next(knob for knob in space.knobs if knob.name == "lookup").choices[-1]
    lanes = next(knob for knob in space.knobs if knob.name == "lanes").choices[-1]
    wanted: Config = {"axis": "rows", "row_tile": 32, "lanes": lanes, "vectors": 2, "read": read}
    config = {
        **LINEAR.default(workload_of(operand, 64), target),
        **wanted,
        "lookup": lookup,
        "output_tile": 2,
    }
    assert space.contains(config)
    got = sums(operand, config, X, 64, target=target)
    np.testing.assert_allclose(got, plain_sums(linear, X), rtol=0, atol=1e-13 * error_scale(linear, X))


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("fills", [True, False])
def test_dot_products_are_the_references_sums(mcpu: str, fills: bool) -> None:
    """Vectors along a row, with terms that fill no vector, shifts, and missing or infinite numbers."""
    target = resolve({"kind": "llvm", "mcpu": mcpu})
    lacking = missing_features(target)
    if lacking:
        pytest.skip(f"this machine lacks {', '.join(lacking)}")
    rng = np.random.default_rng(12)
    linear = random_linear(rng, numbers=23, outputs=3)
    linear.sums.shift[:] = rng.normal(size=23) * 50
    cases: tuple[tuple[DType, int], ...] = (("float32", 1), ("float64", 2))
    for dtype, vectors in cases:
        operand = make_linear(linear, dtype, fills)
        X = sample_rows(linear, 77, dtype)
        if not fills:
            X = np.nan_to_num(X, nan=3.0)
        X[5, 20], X[6, 22] = np.inf, -np.inf
        workload = workload_of(operand, 64)
        config: Config = {
            **LINEAR.default(workload, target), "axis": "rows", "row_tile": 16, "read": "rows",
            "vectors": vectors, "unroll": 1, "output_tile": 1,
        }  # fmt: skip
        assert LINEAR.space(workload, target).contains(config)
        got = sums(operand, config, X, 64, target=target)
        atol = 1e-13 * error_scale(linear, np.where(np.isinf(X), 0, X))
        np.testing.assert_allclose(got, plain_sums(linear, X), rtol=0, atol=atol, err_msg=str(config))


def test_dot_products_are_the_default_of_few_outputs() -> None:
    target = resolve({"kind": "llvm", "mcpu": "x86-64-v3"})
    for outputs, codes, read in ((1, 0, "rows"), (4, 0, "rows"), (5, 0, "transposed"), (1, 1, "transposed")):
        linear = random_linear(np.random.default_rng(5), 20, codes=codes, outputs=outputs)
        workload = workload_of(make_linear(linear, "float32"), 10_000)
        assert LINEAR.default(workload, target)["read"] == read


def test_threads_change_no_sum() -> None:
    linear = random_linear(np.random.default_rng(6), numbers=20, codes=3, outputs=2)
    operand = make_linear(linear, "float64")
    X = sample_rows(linear, 7777, "float64")
    workload = workload_of(operand, 7777, threads=2)
    assert workload["threads"] == 2
    config: Config = {**LINEAR.default(workload, CPU), "parallel": "rows", "grain": 1}
    assert LINEAR.space(workload, CPU).contains(config)
    got = sums(operand, config, X, 7777, threads=2)
    np.testing.assert_allclose(got, plain_sums(linear, X), rtol=0, atol=1e-13 * error_scale(linear, X))
    assert workload_of(operand, 100, threads=2)["threads"] == 1


def test_codes_that_are_none_stay_in_their_table() -> None:
    linear = random_linear(np.random.default_rng(2), numbers=0, codes=2)
    X = np.array([[-5.0, 1e30], [np.nan, -np.inf], [1e9, np.inf], [0.0, 0.0]])
    tables = np.split(linear.sums.entries, np.cumsum(linear.sums.sizes)[:-1])
    last = [len(table) - 1 for table in tables]
    codes = np.array([[0, last[1]], [0, 0], [last[0], last[1]], [0, 0]])
    expected = sum(table[codes[:, c]] for c, table in enumerate(tables))
    operand = make_linear(linear, "float64")
    workload = workload_of(operand, 100)
    default = LINEAR.default(workload, CPU)
    for knobs in ({}, {"lanes": 4, "vectors": 1, "lookup": "gather"}):
        config: Config = {**default, **knobs}
        if LINEAR.space(workload, CPU).contains(config):
            np.testing.assert_allclose(sums(operand, config, X, 100), expected, rtol=1e-14)


def test_numbers_without_weight_are_left_out() -> None:
    linear = random_linear(np.random.default_rng(4), numbers=8, outputs=2)
    linear.sums.weight[[0, 2, 3, 5, 6, 7]] = 0
    linear.sums.missing[[0, 2, 3, 5, 6]] = 0
    assert make_linear(linear, "float64").sums.feature.tolist() == [1, 4, 7]
    operand = make_linear(linear, "float64", nan=False)
    assert operand.sums.feature.tolist() == [1, 4]
    X = np.nan_to_num(sample_rows(linear, 70, "float64"))
    config = LINEAR.default(workload_of(operand, 64), CPU)
    np.testing.assert_allclose(sums(operand, config, X, 64), plain_sums(linear, X), rtol=1e-12, atol=1e-12)
    linear.sums.weight[0] = 1
    linear.sums.weight[2:4] = 1
    assert make_linear(linear, "float64", nan=False).sums.attributes()["in_order"]


@pytest.mark.parametrize("rows", [1, 100, 10_000])
def test_every_knob_is_a_choice(rows: int) -> None:
    operand = make_linear(random_linear(np.random.default_rng(7), 8, codes=4, outputs=6), "float64")
    tied = {"row_tile", "lanes", "vectors", "axis", "output_tile"}
    # How a lookup fetches a vector is no matter of loops.
    assert_knobs_matter(LINEAR, workload_of(operand, rows), CPU, 60, tied, unseen={"lookup"})


def test_tables_that_lead_elsewhere_are_refused() -> None:
    operand = make_linear(random_linear(np.random.default_rng(3), 2, codes=3, shuffled=True), "float64")
    workload = workload_of(operand, 10)
    entry = entry_of(operand, LINEAR, workload, LINEAR.default(workload, CPU))
    check_contents(entry.signature, entry.tables)
    names = [argument.name for argument in entry.signature.tables]
    wrong = {"feature": 6, "code_feature": -1, "code_first": 100, "code_last": 50.0}
    for name, value in {**wrong, "code_last ": np.nan, "code_last  ": 0.5}.items():
        tables = [table.copy() for table in entry.tables]
        tables[names.index(name.strip())][-1] = value
        with pytest.raises(ValueError, match="holds values that its kernel does not accept"):
            check_contents(entry.signature, tables)


def test_families_do_not_mix() -> None:
    operand = make_linear(random_linear(np.random.default_rng(3), 2), "float64")
    workload = workload_of(operand, 10)
    assert workload["family"] == "linear"  # type: ignore[typeddict-item]
    assert "linear" not in STRATEGIES
    assert strategies_on({"kind": "llvm"}, "of tomorrow") == {}
    trees: Any = {"rows": 1, "trees": 3}
    assert "no trees" in str(LINEAR.refuse(trees))
