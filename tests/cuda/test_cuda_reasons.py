"""CUDA kernels of Shapley values: their unchanged source run on the CPU, and compiled without a GPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import hbtvm
from hbtvm.compiler.building.cuda_source import cuda_source, machine_code
from hbtvm.compiler.candidates.program import TreeProgram, write_study
from hbtvm.compiler.candidates.samples import error_scale, plain_sums
from hbtvm.compiler.candidates.tasks import make_tasks, usable
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.runtime.package.contents import check_contents
from hbtvm.runtime.package.file import from_bytes, to_bytes
from hbtvm.schedules.reasons import cuda as reasons_cuda
from hbtvm.schedules.space import Config
from hbtvm.strategies import make_reasons, strategies_on, workload_of
from hbtvm.strategies.reasons.operand import ReasonsOperand
from tests import emulated
from tests.cuda_kernels import GPU, NO_NVCC, usage
from tests.cuda_kernels import emulated as emulated_sums
from tests.emulated import SM90, Array, Cupy
from tests.ensembles import random_ensemble, random_rows
from tests.knobs import assert_knobs_matter
from tests.reasons.coalitions import with_covers

QUADRATURE = strategies_on(GPU, "reasons")["quadrature"]
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")


def reasons_of(seed: int, **form: Any) -> TreeReasons:
    """Return the Shapley values of a random forest; its first two columns are one player."""
    rng = np.random.default_rng(seed)
    ensemble = with_covers(random_ensemble(rng, **form), rng)
    player = np.maximum(np.arange(ensemble.n_features, dtype=np.int32) - 1, 0)
    return TreeReasons(ensemble, player, ensemble.n_features - 1)


def tables_of(operand: ReasonsOperand, config: Config) -> list[np.ndarray]:
    return [*QUADRATURE.shared(operand).values(), *QUADRATURE.tables(operand, config).values()]


def assert_reference(operand: ReasonsOperand, config: Config, rows: int, X: np.ndarray) -> None:
    """Check a kernel for calls of `rows` rows against the reference, with barriers and warps."""
    workload = workload_of(operand, rows)
    assert QUADRATURE.space(workload, GPU).contains(config), config
    found = emulated_sums(QUADRATURE, workload, config, tables_of(operand, config), X)
    tolerance = (1e-6 if operand.value_dtype == "float32" else 1e-13) * error_scale(operand.reasons, X)
    expected = plain_sums(operand.reasons, X)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=str(config))


FORMS: dict[str, dict[str, Any]] = {
    "plain": {"trees": 9, "max_leaves": 14, "features": 6, "missing": "mixed"},
    "chain": {"trees": 5, "max_leaves": 24, "features": 6, "chain": True, "missing": "left"},
    "groups": {"trees": 7, "max_leaves": 9, "features": 6, "groups": 3, "compare_dtype": "float64"},
    "wide": {"trees": 6, "max_leaves": 9, "features": 6, "width": 3, "categories": True},
    "oblivious": {"trees": 5, "max_leaves": 8, "features": 4, "oblivious": True},
    "leaves": {"trees": 3, "max_leaves": 1, "features": 6},
}


@needs_compiler
@pytest.mark.parametrize("form", FORMS)
def test_the_cuda_source_gives_the_references_values(form: str) -> None:
    reasons, rng = reasons_of(len(form), **FORMS[form]), np.random.default_rng(len(form))
    for value_dtype, rows in (("float32", 1), ("float64", 3000)):
        operand = make_reasons(reasons, reasons.compare_dtype, value_dtype)  # type: ignore[arg-type]
        X = random_rows(rng, reasons.ensemble, 53, operand.row_dtype)
        workload = workload_of(operand, rows)
        space = QUADRATURE.space(workload, GPU)
        for config in (QUADRATURE.default(workload, GPU), *space.sample(rng, 1)):
            assert_reference(operand, config, rows, X)


CHOICES: dict[str, dict[str, Any]] = {
    "two rows each": {"row_tile": 64, "row_threads": 32, "tree_threads": 2, "outputs": 3, "classes": 2},
    "trees shared by threads": {"row_tile": 4, "row_threads": 4, "tree_threads": 4, "tree_blocks": 2},
    "sums in global memory": {"row_tile": 64, "row_threads": 32, "sums": "global", "tree_blocks": 4},
}


@needs_compiler
@pytest.mark.parametrize("choice", CHOICES)
def test_each_way_to_share_work(choice: str) -> None:
    reasons = reasons_of(2, trees=12, max_leaves=9, features=5, width=3, missing="mixed")
    operand = make_reasons(reasons, "float32", "float32")
    X = random_rows(np.random.default_rng(1), reasons.ensemble, 100, "float32")
    config = {**QUADRATURE.default(workload_of(operand, 3000), GPU), "tree_threads": 1, "tree_blocks": 1}
    assert_reference(operand, {**config, **CHOICES[choice]}, 3000, X)


@needs_compiler
def test_paths_with_more_levels_than_bits_of_a_word() -> None:
    reasons = reasons_of(3, trees=1, max_leaves=150, features=150, chain=True)
    operand = make_reasons(reasons, "float32", "float32")
    workload = workload_of(operand, 100)
    assert int(workload["points"]) > 32  # type: ignore[typeddict-item] # nor does a thread unroll them
    X = random_rows(np.random.default_rng(3), reasons.ensemble, 20, "float32")
    assert_reference(operand, QUADRATURE.default(workload, GPU), 100, X)


@needs_compiler
def test_values_that_are_too_many_for_a_thread() -> None:
    reasons = reasons_of(4, trees=6, max_leaves=30, features=400)
    operand = make_reasons(reasons, "float32", "float32")
    config = QUADRATURE.default(workload_of(operand, 100), GPU)
    assert config["sums"] == "global"
    X = random_rows(np.random.default_rng(4), reasons.ensemble, 20, "float32")
    assert_reference(operand, config, 100, X)


def test_rows_that_are_wide_have_small_tiles() -> None:
    reasons = reasons_of(5, trees=40, max_leaves=200, features=4000)
    operand = make_reasons(reasons, "float64", "float64")
    for rows in (1, 100_000):
        workload = workload_of(operand, rows)
        assert QUADRATURE.space(workload, GPU).contains(QUADRATURE.default(workload, GPU))


@pytest.mark.skipif(NO_NVCC is not None, reason=str(NO_NVCC))
@pytest.mark.parametrize("rows", [1, 100_000])
def test_a_sample_compiles(rows: int) -> None:
    reasons = reasons_of(6, trees=100, max_leaves=31, features=28, missing="left")
    operand = make_reasons(reasons, "float32", "float32")
    workload = workload_of(operand, rows)
    config = QUADRATURE.default(workload, GPU)
    code, printed = machine_code(cuda_source(QUADRATURE.module(workload, config), GPU), GPU, "-Xptxas=-v")
    assert code[:4] == b"\x7fELF"
    used, said = usage(printed), reasons_cuda.needs(workload, config)
    assert used["shared"] <= said.shared
    assert used["spills"] == 0
    assert 0 < used["stack"] < 1024  # the stack of a walk and the sums, alone


@pytest.mark.parametrize("rows", [1, 3000])
def test_every_knob_is_a_choice(rows: int) -> None:
    reasons = reasons_of(7, trees=40, max_leaves=9, features=6, width=2)
    workload = workload_of(make_reasons(reasons, "float32", "float32"), rows)
    assert_knobs_matter(QUADRATURE, workload, GPU, 30, set(), {"carveout", "resident", "classes"})


def test_damaged_tables_are_refused() -> None:
    reasons = reasons_of(8, trees=4, max_leaves=8, features=6)
    operand = make_reasons(reasons, "float32", "float32")
    workload = workload_of(operand, 100)
    config = QUADRATURE.default(workload, GPU)
    signature, tables = QUADRATURE.signature(workload, config), tables_of(operand, config)
    check_contents(signature, tables)
    names = [argument.name for argument in signature.tables]
    rng = np.random.default_rng(0)
    for name in ("step", "first"):
        at = names.index(name)
        for bad in (-1, 2**30):
            damaged = [table.copy() for table in tables]
            flat = damaged[at].reshape(-1)
            flat[rng.integers(flat.size)] = bad
            with pytest.raises(ValueError, match=name):
                check_contents(signature, damaged)


RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(300, 3)), columns=["a", "b", "c"])
FRAME["city"] = RNG.choice(["Lyon", "Nice", "Paris"], 300)
FRAME.loc[RNG.random(300) < 0.1, "a"] = np.nan
LABEL = np.digitize(FRAME["b"] * FRAME["c"] + FRAME["a"].fillna(0.5), [-0.5, 0.5])


def steps() -> Any:
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city"]),
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["a", "b", "c"]),
    )


MODELS = {
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=5, num_leaves=9, verbose=-1, n_jobs=1),
    "xgboost": xgboost.XGBRegressor(n_estimators=5, max_depth=4, n_jobs=1),
    "forest": RandomForestClassifier(5, max_depth=4, random_state=0),
    "linear": LogisticRegression(),
}


@pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))
@pytest.mark.parametrize("name", MODELS)
def test_a_package_on_a_device_explains_as_on_the_cpu(machine: emulated.Machine, name: str) -> None:
    library = make_pipeline(steps(), MODELS[name]).fit(FRAME, LABEL)
    model = hbtvm.compile(library, target=SM90, batch_sizes=100, explain=True)
    loaded = hbtvm.Model.from_package(from_bytes(to_bytes(model.package)), device="cuda:1")
    assert loaded.views["reasons"].device == "cuda:1"
    expected = hbtvm.compile(library, batch_sizes=100, threads=1, explain=True).explain(FRAME)
    for rows in (1, 150):
        found = loaded.explain(FRAME[:rows])
        assert found.feature_names == ("a", "b", "c", "city")
        largest = np.abs(expected.values).max()
        np.testing.assert_allclose(found.values, expected.values[:rows], rtol=0, atol=3e-6 * largest)
        np.testing.assert_allclose(found.base_values, expected.base_values[:rows], rtol=1e-12)


@pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))
def test_rows_on_the_device_are_explained(cupy: type[Cupy], machine: emulated.Machine) -> None:
    X = FRAME[["b", "c"]].to_numpy()
    library = RandomForestClassifier(3, max_depth=3, random_state=0).fit(X, LABEL > 1)
    model = hbtvm.compile(library, target=SM90, batch_sizes=100, explain=True)
    for background in (None, X[:10]):
        expected = model.explain(X[:20], background=background)
        there = None if background is None else Array(background)
        found = model.explain(Array(X[:20]), background=there)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.data, X[:20])


@pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))
def test_candidates_are_checked_on_the_device(machine: emulated.Machine, tmp_path: Path) -> None:
    reasons = reasons_of(9, trees=5, max_leaves=9, features=6)
    operand = make_reasons(reasons, "float32", "float32")
    write_study(tmp_path, reasons, [operand], 50)
    able, _ = usable(operand, None, GPU)
    (task,) = make_tasks(operand, able, GPU, (50,), 1, tmp_path)
    program, path = TreeProgram(task.payload), str(tmp_path / "kernel.so")
    assert program.build(task.initial[0], path) == program.build(task.initial[0], path)
    assert program.load(task.initial[0], path).check() is None
