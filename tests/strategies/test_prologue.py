"""Every strategy behind arithmetic that its kernel computes, held against plain numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.candidates.tasks import refusal
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.prologue import UNCHANGED, Constants, Prologue
from hbtvm.graph.trees.reference import margins
from hbtvm.runtime.package.contents import check_contents
from hbtvm.schedules.workload import prologue_of, row_dtype_of
from hbtvm.strategies import STRATEGIES, make_forest, strategies_on, workload_of
from tests.ensembles import random_ensemble
from tests.kernels import CPU, raw_scores, tolerance

COLUMNS: dict[str, Constants] = {
    "standard": (0.3, 1.7, 1.0, 0.0),
    "tiny": (1e9 + 0.1, 1e-3, 1.0, 0.0),
    "min_max": (0.0, 1.0, 0.37, -0.1),
    "everything": (-12.7, 0.3, 3.1, 7e-3),
}
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1e39, 1.0, 0.3]


def prologue_for(kinds: list[str], features: int, last: bool) -> Prologue:
    """The arithmetic of `features` columns; the `last` is that of codes."""
    columns = [COLUMNS[kinds[i % len(kinds)]] for i in range(features)]
    return Prologue.of([*columns[:-1], UNCHANGED] if last else columns)


def rows_for(rng: np.random.Generator, ensemble: TreeEnsemble, prologue: Prologue, n: int) -> np.ndarray:
    """float64 rows at and beside what becomes thresholds, and special values."""
    X = rng.normal(size=(n, ensemble.n_features)) * 2
    shift, divisor, factor, offset = prologue.constants
    thresholds = ensemble.threshold[(ensemble.left >= 0) & np.isfinite(ensemble.threshold)]
    at = rng.choice(np.append(thresholds, 0.0), X.shape)
    # Between two float32 numbers: the float64 number whose result rounds to one or the other.
    at += rng.choice([-0.5, 0.0, 0.5], X.shape) * np.spacing(at.astype(np.float32))
    near = (at - offset) / factor * divisor + shift
    for _ in range(2):
        near = np.nextafter(near, near + rng.choice([-1.0, 0.0, 1.0], X.shape))
    X = np.where(rng.random(X.shape) < 0.6, near, X)
    special = rng.random(X.shape) < 0.15
    X[special] = rng.choice(SPECIAL, int(special.sum()))
    if ensemble.category_sets:
        X[:, -1] = rng.choice([*range(-2, 75), np.nan, -0.5, 1e9], n)
    return X


CASES: dict[str, dict[str, Any]] = {
    "right": {"missing": "right"},
    "mixed": {"missing": "mixed", "categories": True, "groups": 2},
    "as_number": {"missing": "as_number"},
    "left": {"missing": "left", "width": 2},
}
KINDS = {
    "right": ["standard", "tiny"],
    "mixed": ["everything", "standard"],
    "as_number": ["min_max"],
    "left": ["everything", "min_max", "standard"],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", STRATEGIES)
def test_scores_are_the_references(name: str, case: str) -> None:
    rng = np.random.default_rng(len(case))
    ensemble = random_ensemble(rng, max_leaves=20, oblivious=name == "oblivious", **CASES[case])
    prologue = prologue_for(KINDS[case], ensemble.n_features, bool(ensemble.category_sets))
    forest = make_forest(ensemble, "float32", "float32", prologue=prologue)
    X = rows_for(rng, ensemble, prologue, 400)
    expected = margins(ensemble, prologue.reference(X))
    strategy = STRATEGIES[name]
    for rows in (1, 100):
        workload = workload_of(forest, rows)
        config = strategy.default(workload, CPU)
        signature = strategy.signature(workload, config)
        assert (signature.dtype, row_dtype_of(workload)) == ("float64", "float64")
        tables = (*strategy.shared(forest).values(), *strategy.tables(forest, config).values())
        signature.check_tables(tables)
        check_contents(signature, tables)
        for one in [config, *strategy.space(workload, CPU).sample(rng, 1)]:
            got = raw_scores(name, ensemble, forest, one, X, rows)
            np.testing.assert_allclose(
                got, expected, rtol=0, atol=tolerance(ensemble, "float32"), err_msg=str(one)
            )


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_product_is_rounded_before_the_sum(name: str, rows: int) -> None:
    """A product less its own rounded value is 0, not the rounding error, wherever it is computed."""
    rng = np.random.default_rng(0)
    features = 20
    one = random_ensemble(rng, trees=30, max_leaves=8, features=features, oblivious=name == "oblivious")
    ensemble = replace(one, threshold=np.zeros(one.n_nodes))
    factor, x = rng.random(features) + 0.5, rng.normal(size=features)
    prologue = Prologue.of([(0.0, 1.0, f, -v) for f, v in zip(factor, factor * x, strict=True)])
    assert prologue.operations == ("multiply", "add")
    forest = make_forest(ensemble, "float32", "float32", prologue=prologue)
    X = np.repeat(x[None], 100, 0)
    strategy = STRATEGIES[name]
    config = strategy.default(workload_of(forest, rows), CPU)
    got = raw_scores(name, ensemble, forest, config, X, rows)
    expected = margins(ensemble, np.zeros((100, features), np.float32))
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(ensemble, "float32"))
    # With the errors, which one operation for both would leave, rows would end elsewhere.
    errors = (x.astype(np.longdouble) * factor - factor * x).astype(np.float32)
    assert np.any(errors > 0)
    assert np.abs(margins(ensemble, errors[None]) - expected[:1]).max() > 1e-3


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("missing", ["mixed", "right"])
def test_wide_rows_are_transposed_first(missing: str, mcpu: str) -> None:
    from hbtvm.runtime.cpu import missing_features

    target = resolve({"kind": "llvm", "mcpu": mcpu})
    if missing_features(target):
        pytest.skip("this machine lacks features")
    rng = np.random.default_rng(4)
    ensemble = random_ensemble(
        rng, trees=40, max_leaves=30, features=171, missing=missing, categories=missing == "mixed"
    )
    prologue = prologue_for(["everything", "standard"], 171, missing == "mixed")
    for whole in (False, True):
        forest = make_forest(ensemble, "float32", "float32", missing=not whole, prologue=prologue)
        X = rows_for(rng, ensemble, prologue, 130)
        if whole:
            X[np.isnan(X)] = 1.0
        expected = margins(ensemble, prologue.reference(X))
        for name in ("bitvector", "gemm", "tree_traversal"):
            workload = workload_of(forest, 100)
            config = STRATEGIES[name].default(workload, target)
            got = raw_scores(name, ensemble, forest, config, X, 100, target=target)
            np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance(ensemble, "float32"))


def test_workloads_tell_what_is_computed() -> None:
    ensemble = random_ensemble(np.random.default_rng(0))
    bare = workload_of(make_forest(ensemble, "float32", "float32"), 10)
    assert prologue_of(bare) is None and row_dtype_of(bare) == "float32"
    for kind, told in (("standard", "subtract divide"), ("min_max", "multiply add")):
        prologue = prologue_for([kind], 4, False)
        own = workload_of(make_forest(ensemble, "float32", "float32", prologue=prologue), 10)
        assert own == {**bare, "prologue": told}
    cast = workload_of(make_forest(ensemble, "float32", "float32", prologue=Prologue.of([UNCHANGED] * 4)), 1)
    assert prologue_of(cast) == () and row_dtype_of(cast) == "float64"
    with pytest.raises(ValueError, match="not float64"):
        make_forest(ensemble, "float64", "float64", prologue=prologue)


def test_kernels_for_gpus_compute_no_arithmetic() -> None:
    ensemble = random_ensemble(np.random.default_rng(0))
    target = resolve({"kind": "cuda", "arch": "sm_90"})
    prologue = prologue_for(["standard"], 4, False)
    for one, refused in ((None, False), (prologue, True)):
        workload = workload_of(make_forest(ensemble, "float32", "float32", prologue=one), 100)
        for name, strategy in strategies_on(target).items():
            unfit = refused or name == "oblivious"  # the trees' levels make several tests
            assert (refusal(strategy, workload, target) is not None) == unfit
