"""Sparse rows mean what they mean to each library."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from scipy import sparse
from sklearn.ensemble import RandomForestRegressor

from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from hbtvm.runtime.model import Model
from hbtvm.runtime.rows import sparse as sparse_module
from hbtvm.runtime.rows.inputs import Inputs
from tests import emulated
from tests.runtime_models import compiled, kernel, package, trained

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
MODELS = {
    "xgb_two_nan": ("float32",), "xgb_missing_zero": ("float32",), "xgb_three_vector": ("float32",),
    "lgb_two": ("float32", "float64"), "lgb_zero_missing_nan": ("float32", "float64"),
    "lgb_three_cat": ("float32", "float64"), "sk_forest_two": ("float32",), "sk_boost_three": ("float32",),
    "sk_isolation_some": ("float32",), "sk_tree_pair": ("float32",),
}  # fmt: skip
OUTPUTS = {
    "predict": None,
    "predict_proba": "proba",
    "decision_function": "decision",
    "score_samples": "score",
}


def rows(n: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Rows that are mostly zero, some of them wholly."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * 2
    X[:, 2] = rng.integers(0, 12, n)
    X[rng.random(X.shape) < 0.6] = 0
    X[::9] = 0
    return X.astype(dtype)


def theirs(name: str, method: str, X: Any) -> Any:
    """What the library itself predicts of sparse rows; None where it has no such method."""
    model = trained(name)[0]
    if not hasattr(model, method):
        return None
    if name.startswith("lgb") and X.dtype.kind != "f":
        X = X.astype(np.float64)
    return getattr(model, method)(sparse.csr_matrix(X) if name.startswith("lgb") else X)


def same(got: Any, want: Any) -> None:
    assert np.shape(got) == np.shape(want)
    if np.asarray(want).dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_predicts_as_the_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_module, "_TILE_BYTES", 16 * 37 * 4)
    ours = Model(compiled(name, MODELS[name]))
    for n, dtype in ((1, np.float64), (36, np.float32), (300, np.float64), (300, np.int64), (75, np.int8)):
        X = sparse.csr_matrix(rows(n, dtype))
        for method, output in OUTPUTS.items():
            want = theirs(name, method, X)
            if want is not None:
                same(ours.predict(X, output), want)
                same(getattr(ours, method)(sparse.csr_array(X)), want)


@pytest.mark.parametrize("kind", [*FORMATS])
@pytest.mark.parametrize("name", ["xgb_two_nan", "lgb_two", "sk_forest_two"])
def test_every_format_is_read(name: str, kind: str) -> None:
    ours, X = Model(compiled(name)), sparse.csr_matrix(rows(60, np.float32))
    want = ours.predict(X)
    for one in (X.asformat(kind), sparse.coo_array(X).asformat(kind)):
        before = one.copy()
        np.testing.assert_array_equal(ours.predict(one), want)
        assert (one != before).nnz == 0


def explicit() -> sparse.csr_matrix:
    """Explicit zeros and missing values, unsorted indices, duplicates; 64-bit indices."""
    made = sparse.csr_matrix((6, 4), dtype=np.float32)
    made.data = np.float32([0, 1.5, np.nan, 0, 0.25, 0.5, -1, 2, 0, 0])
    made.indices = np.int64([1, 0, 3, 0, 2, 2, 0, 3, 2, 1])
    made.indptr = np.int64([0, 2, 3, 4, 6, 6, 10])
    assert not made.has_canonical_format
    return made


@pytest.mark.parametrize("name", ["xgb_two_nan", "xgb_missing_zero", "lgb_three_nan", "lgb_zero_missing_nan"])
def test_explicit_entries(name: str) -> None:
    X = explicit()
    before = [X.data.copy(), X.indices.copy(), X.indptr.copy()]
    got = Model(compiled(name, ("float32", "float64") if name.startswith("lgb") else ("float32",))).predict(X)
    for kept, now in zip(before, (X.data, X.indices, X.indptr), strict=True):
        np.testing.assert_array_equal(kept, now)
    summed = explicit()
    summed.sum_duplicates()
    want = theirs(name, "predict", summed)
    same(got, want)
    # In dense rows, zeros are absent entries to LightGBM, and missing values are to XGBoost.
    dense = summed.toarray()
    if name.startswith("xgb"):
        stored = np.zeros(dense.shape, bool)
        stored[summed.nonzero()] = True
        for i in range(len(dense)):
            stored[i, summed.indices[summed.indptr[i] : summed.indptr[i + 1]]] = True
        dense = np.where(stored, dense, np.float32(np.nan))
    same(got, trained(name)[0].predict(dense))


def test_absent_is_missing_to_xgboost_alone() -> None:
    ours, X = Model(compiled("xgb_two_nan")), rows(200, np.float32)
    proba = ours.predict_proba(sparse.csr_matrix(X))
    np.testing.assert_array_equal(proba, ours.predict_proba(np.where(X == 0, np.float32(np.nan), X)))
    assert (proba != ours.predict_proba(X)).any()
    for name in ("lgb_two", "sk_forest_two"):
        ours = Model(compiled(name))
        np.testing.assert_array_equal(ours.predict(sparse.csr_matrix(X)), ours.predict(X))


@pytest.mark.parametrize("name", ["sk_forest_three_nan", "sk_forest_two", "sk_boost_three"])
def test_missing_and_infinite_entries_are_refused_as_by_scikit_learn(name: str) -> None:
    ours = Model(compiled(name))
    for value, what in ((np.nan, "NaN"), (np.inf, "infinity")):
        X = sparse.csr_matrix(rows(40))
        X.data[7] = value
        place = np.argwhere(~np.isfinite(X.toarray()))[0]
        with pytest.raises(ValueError, match=what):
            trained(name)[0].predict(X)
        with pytest.raises(InputError, match=rf"column {place[1]}, row {place[0]}: got {what}"):
            ours.predict(X)


def test_histogram_boosting_takes_none() -> None:
    X = sparse.csr_matrix(rows(3))
    with pytest.raises(TypeError, match="dense data is required"):
        trained("sk_hist_three_cat")[0].predict(X)
    for name in ("sk_hist_three_cat", "sk_hist_two_nan"):
        with pytest.raises(InputError, match=r"HistGradientBoosting.*does not take sparse rows.*dense rows"):
            Model(compiled(name, ("float32", "float64"))).predict(X)


def test_what_does_not_fit_is_refused() -> None:
    ours = Model(compiled("lgb_two", ("float32", "float64")))
    for X, what in (
        (sparse.csr_matrix((3, 5)), r"expected rows of 4 columns, got 5\."),
        (sparse.coo_array(np.ones(4)), r"got shape \(4,\); for a single row"),
        (sparse.csr_matrix((0, 4)), "at least one row, got none"),
        (sparse.csr_matrix(np.ones((1, 4), complex)), "expected numbers, got a sparse matrix of complex128"),
    ):
        with pytest.raises(InputError, match=what):
            ours.predict(X)
    with pytest.raises(InputError, match="'proba'"):
        Model(compiled("xgb_real_base")).predict_proba(sparse.csr_matrix((1, 4)))
    damaged = sparse.csr_matrix(np.ones((2, 4)))
    for at, value in ((0, -1), (3, 4), (5, 2**31 - 1)):
        broken = damaged.copy()
        broken.indices[at] = value
        with pytest.raises(InputError, match="damaged: an entry is outside of its 4 columns"):
            ours.predict(broken)
    for at, value in ((0, 1), (1, 9), (2, 9)):
        broken = damaged.copy()
        broken.indptr[at] = value
        with pytest.raises(InputError, match="damaged: its rows overlap"):
            ours.predict(broken)


def test_values_that_float32_does_not_hold() -> None:
    X = sparse.csr_matrix(rows(300))
    X.data[:] = np.round(X.data, 3) + 1e-12
    want = trained("lgb_two")[0].predict_proba(X)
    same(Model(compiled("lgb_two", ("float32", "float64"))).predict_proba(X), want)
    with pytest.raises(InputError, match="compiled for float32 rows only"):
        Model(compiled("lgb_two")).predict(X)


def test_memory_is_that_of_a_tile() -> None:
    columns, n = 20_000, 3_000  # dense, 240 MB in float32
    rng = np.random.default_rng(1)
    used = rng.choice(columns, 50, replace=False)
    train = sparse.random(200, columns, 0.01, random_state=2, format="csr", dtype=np.float32)
    train = train.tolil()
    train[:, used] = rng.normal(size=(200, 50)) * (rng.random((200, 50)) < 0.4)
    train = train.tocsr()
    y = np.asarray(train[:, used[:5]].sum(axis=1)).ravel()
    X = sparse.vstack([train] * (n // 200)).tocsr()
    booster = xgb.train({"max_depth": 4}, xgb.DMatrix(train, y), 5)
    forest = RandomForestRegressor(5, max_depth=5, random_state=1).fit(train, y)
    for model, want in ((booster, booster.predict(xgb.DMatrix(X))), (forest, forest.predict(X))):
        graph = from_object(model)
        ours = Model(package(graph, kernel(graph, 64)))
        ours.warm_up()
        tracemalloc.start()
        try:
            got = ours.predict(X)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        assert peak < 20e6, f"{peak:,} bytes"


@pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))
def test_models_on_a_gpu_take_them_too(machine: emulated.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_module, "_TILE_BYTES", 16 * 37 * 4)
    for name in ("lgb_two", "xgb_two_nan"):
        ours = Model(emulated.package(name))
        assert ours.device == "cuda:0"
        for n in (1, 300):
            X = sparse.csr_matrix(rows(n, np.float32))
            same(ours.predict(X), theirs(name, "predict", X))
            same(ours.predict_proba(X), theirs(name, "predict_proba", X))


def test_tiles_are_rows_as_they_would_be_dense() -> None:
    graph = trained("xgb_missing_zero")[1]
    inputs = Inputs(graph.input, "float32", ("float32",))
    X = explicit()
    tiles = [tile.copy() for _, tile in sparse_module.SparseRows(inputs, X, "xgboost").tiles()]
    nan = np.nan
    want = [[1.5, nan, nan, nan], [nan] * 4, [nan] * 4, [nan, nan, 0.75, nan], [nan] * 4, [-1, nan, nan, 2]]
    np.testing.assert_array_equal(np.concatenate(tiles), np.float32(want))
    assert tiles[0].dtype == np.float32


def test_scipy_is_not_imported_for_other_rows() -> None:
    program = (
        "import sys, numpy as np\n"
        "from hbtvm.runtime.rows.sparse import is_sparse\n"
        "class Other: nnz = 3\n"
        "assert not is_sparse(np.ones((2, 2))) and not is_sparse(Other())\n"
        "assert 'scipy' not in sys.modules\n"
        "import scipy.sparse\n"
        "assert is_sparse(scipy.sparse.eye(3)) and not is_sparse(Other())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
