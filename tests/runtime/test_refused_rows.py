"""Rows for which scikit-learn computes something else than for the same numbers in dense float64: refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from xgboost import XGBClassifier

import hbtvm
from hbtvm import codec
from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from hbtvm.graph.columns.steps import UFUNCS
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.refused_rows import INTEGERS, RefusedTypes, common, differing
from hbtvm.runtime.rows.inputs import Inputs
from tests.answers import same
from tests.typed_rows import predict

_RNG = np.random.default_rng(0)
NAMES = ["a", "b", "c"]
TRAINING = _RNG.integers(1, 60, (200, 3)).astype(np.float64)
LABELS = (TRAINING @ [1, 2, 1] > 110).astype(int)
ROWS = _RNG.integers(0, 60, (40, 3)).astype(np.float64)
ROWS[_RNG.random(ROWS.shape) < 0.4] = 0


def _fitted(*steps: Any) -> Any:
    return make_pipeline(*steps, LogisticRegression(max_iter=20)).fit(
        pd.DataFrame(TRAINING, columns=NAMES), LABELS
    )


SPARSE: dict[str, tuple[Any, bool]] = {
    "standard": (StandardScaler(), True),
    "standard, scale": (StandardScaler(with_mean=False), False),
    "robust": (RobustScaler(), True),
    "robust, scale": (RobustScaler(with_centering=False), False),
    "largest": (MaxAbsScaler(), False),
    "smallest and largest": (MinMaxScaler(), True),
    "binarizer": (Binarizer(threshold=3), False),
    "binarizer, below 0": (Binarizer(threshold=-1), True),
    "bins": (KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf"), True),
    "powers": (PowerTransformer(), True),
    "splines": (SplineTransformer(), True),
    "quantiles": (QuantileTransformer(n_quantiles=20), False),
    "quantiles, normal": (QuantileTransformer(n_quantiles=20, output_distribution="normal"), True),
    "behind another": (make_pipeline(PolynomialFeatures(include_bias=False), RobustScaler()), True),
    "of some columns": (
        make_column_transformer((RobustScaler(), [0]), (MaxAbsScaler(), [1]), remainder="passthrough"),
        True,
    ),
    "behind dense columns": (make_pipeline(PCA(2, random_state=0), StandardScaler()), False),
}
"""Transformers, and whether they refuse sparse rows."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_rows(name: str) -> None:
    transformer, refused = SPARSE[name]
    model = make_pipeline(transformer, LogisticRegression(max_iter=20)).fit(TRAINING, LABELS)
    graph = from_object(model)
    same(predict(graph, ROWS, "proba"), model.predict_proba(ROWS), 1e-6, 1e-9)
    for rows in (scipy.sparse.csr_matrix(ROWS), scipy.sparse.coo_array(ROWS.astype(np.int64))):
        if refused:
            with pytest.raises(
                InputError, match=r"^got sparse rows: step .* scikit-learn.*dense rows\.$|at 0, which"
            ):
                predict(graph, rows)
        else:
            same(predict(graph, rows, "proba"), model.predict_proba(rows), 1e-6, 1e-9)


def test_quantiles_below_zero() -> None:
    model = make_pipeline(QuantileTransformer(n_quantiles=20), LogisticRegression()).fit(TRAINING - 9, LABELS)
    with pytest.raises(InputError, match=r"QuantileTransformer\) leaves absent entries"):
        predict(from_object(model), scipy.sparse.csr_matrix(ROWS))


@pytest.mark.parametrize("place", ["scaler", "selector", "voting", "alone"])
def test_absent_entries_before_xgboost(place: str) -> None:
    xgb = XGBClassifier(n_estimators=3, max_depth=3)
    model = {
        "scaler": make_pipeline(MaxAbsScaler(), xgb),
        "selector": make_pipeline(SelectKBest(k=2), xgb),
        "voting": VotingClassifier([("x", xgb)], voting="soft"),
        "alone": make_pipeline(xgb),
    }[place].fit(ROWS, ROWS[:, 0] > 20)
    sparse = scipy.sparse.csr_matrix(ROWS)
    # To XGBoost they are missing: the same numbers in dense rows have other scores.
    assert not np.allclose(model.predict_proba(sparse), model.predict_proba(ROWS))
    graph = from_object(model)
    same(predict(graph, ROWS, "proba"), model.predict_proba(ROWS), 1e-6, 1e-9)
    if place == "alone":
        assert graph.library == "xgboost" and not graph.input.sparse_refused
        return
    with pytest.raises(InputError, match=r"XGBClassifier\) takes absent entries for missing.*dense rows"):
        predict(graph, sparse)


def test_compiled() -> None:
    tree = hbtvm.compile(_fitted(RobustScaler()), batch_sizes=64, threads=1)
    again = hbtvm.Model.from_package(tree.package)
    for kind in (scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_matrix):
        with pytest.raises(
            InputError, match=r"step 'robustscaler' \(RobustScaler\) does not centre sparse rows"
        ):
            again.predict_proba(kind(ROWS))
    frame = pd.DataFrame(ROWS, columns=NAMES)
    same(again.predict_proba(frame), _fitted(RobustScaler()).predict_proba(frame), 1e-6, 1e-9)


def test_transformers_by_themselves() -> None:
    sampler = AdditiveChi2Sampler().fit(TRAINING)
    model = hbtvm.compile(sampler, batch_sizes=64, threads=1)
    for rows in (
        ROWS.astype(np.int64),
        ROWS[:1].astype(np.int8),
        scipy.sparse.csr_matrix(ROWS.astype(np.int32)),
    ):
        with pytest.raises(
            InputError, match=r"column 0 is int\d+, for which the AdditiveChi2Sampler computes"
        ):
            model.transform(rows)
    same(model.transform(ROWS), sampler.transform(ROWS), 1e-6, 1e-9)
    same(model.transform(ROWS.astype(np.float32)), sampler.transform(ROWS.astype(np.float32)), 1e-5, 1e-7)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UFUNCS)
def test_functions_of_integers(name: str) -> None:
    """Types that are not refused have the values that float64 has, at random and at their ends."""
    function, rng = UFUNCS[name], np.random.default_rng(1)
    refused = differing(function)
    for dtype in INTEGERS:
        if dtype == "bool":
            x = np.array([True, False])
        else:
            limits, exact = np.iinfo(dtype), 1 << 53
            low, high = max(limits.min, -exact), min(limits.max, exact)
            x = np.r_[rng.integers(low, high, 50, endpoint=True), low, high, 0, 1].astype(dtype)
        if dtype not in refused:
            got = FunctionTransformer(function).fit_transform(x[:, None])
            assert got.dtype.kind in "iub" or got.dtype == np.float64
            np.testing.assert_array_equal(got, function(x.astype(np.float64))[:, None])
    # Small integers have results of float16 and float32, and none of these is read as float64.
    if function(np.ones(1, np.int8)).dtype == np.float16:
        assert refused == ("bool", "int8", "int16", "uint8", "uint16")


def test_functions_that_keep_the_type() -> None:
    assert differing(np.reciprocal) == INTEGERS
    assert "int64" in differing(np.square) and "uint8" in differing(np.negative)
    assert differing(np.trunc) == () and "int64" not in differing(np.abs)
    assert common(["int8", "uint8"]) == "int16" and common(["int8", "float64"]) == "float64"
    assert common(["int8", "object"]) is None and common([]) is None


STEPS: dict[str, tuple[Any, ...]] = {
    "logarithms": (FunctionTransformer(np.log1p),),
    "squares, validated": (FunctionTransformer(np.square, validate=True),),
    "negatives": (FunctionTransformer(np.negative), StandardScaler()),
    "reciprocals": (FunctionTransformer(np.reciprocal),),
    "whole numbers stay": (FunctionTransformer(np.sign), FunctionTransformer(np.log1p)),
    "filled": (SimpleImputer(strategy="most_frequent"), FunctionTransformer(np.log1p)),
    "filled with means": (SimpleImputer(), FunctionTransformer(np.log1p)),
    "scaled": (StandardScaler(), FunctionTransformer(np.square)),
    "sampler": (AdditiveChi2Sampler(),),
    "columns": (
        make_column_transformer((FunctionTransformer(np.log1p), ["a", "c"]), remainder="passthrough"),
    ),
}
_FLOATS = ("scaled", "filled with means")
"""In these, numbers are float64 before any function."""

MIXED = (
    ("int8", "int64", "float64"),
    ("float64", "int16", "int32"),
    ("int64", "int64", "int8"),
    ("uint8", "float32", "float32"),
    ("bool", "int64", "float64"),
    ("Int8", "Int64", "Float64"),
    ("int8[pyarrow]", "int64[pyarrow]", "double[pyarrow]"),
)


def _mixed(values: np.ndarray, kinds: tuple[str, ...]) -> pd.DataFrame:
    columns = [
        pd.Series(values[:, i] if "loat" in kind or "double" in kind else values[:, i].astype(int))
        for i, kind in enumerate(kinds)
    ]
    return pd.DataFrame(
        {name: column.astype(kind) for name, column, kind in zip(NAMES, columns, kinds, strict=True)}
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STEPS)
def test_columns_of_integers(name: str) -> None:
    """Whatever is not refused, has the library's answer."""
    model = _fitted(*STEPS[name])
    graph, whole = from_object(model), ROWS + 1
    frames = [pd.DataFrame(whole.astype(dtype), columns=NAMES) for dtype in (*INTEGERS, "float32", "float64")]
    frames += [_mixed(whole, kinds) for kinds in MIXED]
    refused = []
    for frame in frames:
        plain = all(isinstance(dtype, np.dtype) for dtype in frame.dtypes)
        others = [pl.from_pandas(frame), pa.Table.from_pandas(frame)]
        if len(set(frame.dtypes)) == 1 and name != "columns":
            others += [frame.to_numpy(), np.asfortranarray(frame.to_numpy())]
        try:
            got = predict(graph, frame, "proba")
        except InputError as error:
            refused.append(str(error))
            assert "computes other numbers than for float64; convert it to float64" in str(error)
            for rows in others:
                with pytest.raises(InputError, match="computes other numbers"):
                    predict(graph, rows, "proba")
            with pytest.raises(InputError, match="computes other numbers"):
                predict(graph, frame.iloc[:1], "proba")
            continue
        expected = model.predict_proba(frame)
        rtol = 1e-5 if "float32" in map(str, frame.dtypes) else 1e-6
        same(got, expected, rtol, 1e-9)
        same(predict(graph, frame.iloc[:1], "proba"), expected[:1], rtol, 1e-9)
        for rows in others if plain else ():
            same(predict(graph, rows, "proba"), expected, rtol, 1e-9)
    assert bool(refused) == (name not in _FLOATS)
    if name == "columns":
        assert all("column 'b'" not in one for one in refused)


def test_columns_that_nothing_reads() -> None:
    # The selector leaves the first column out, which is the same in all rows.
    training = TRAINING.copy()
    training[:, 0] = 1
    model = make_pipeline(
        make_column_transformer((FunctionTransformer(np.log1p), [0]), (StandardScaler(), [1, 2])),
        VarianceThreshold(0.1),
        LogisticRegression(),
    ).fit(training, LABELS)
    rows = ROWS.astype(np.int8)
    same(predict(from_object(model), rows, "proba"), model.predict_proba(rows), 1e-6, 1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["logarithms", "reciprocals", "sampler"])
def test_python_numbers(name: str) -> None:
    """Integers of Python are int64, those beside fractions in an array or a column are float64."""
    model = _fitted(*STEPS[name])
    graph, whole = from_object(model), (ROWS + 1).astype(int)
    halves = [[*row[:2], row[2] + 0.5] for row in whole.tolist()]
    for rows in (whole.tolist(), halves):
        named = [dict(zip(NAMES, row, strict=True)) for row in rows]
        for given, frame in (
            (rows, np.array(rows)),
            (named, pd.DataFrame(named)),
            (named[0], pd.DataFrame(named[:1])),
        ):
            fractions = rows is halves and (given is rows or name == "sampler")
            if name == "logarithms" or fractions:
                same(predict(graph, given, "proba"), model.predict_proba(frame), 1e-6, 1e-9)
            else:
                with pytest.raises(InputError, match="is int64, for which"):
                    predict(graph, given)
    with pytest.raises(InputError, match="column 'a' is bool"):
        predict(graph, [{"a": True, "b": False, "c": True}])


def test_rows_on_a_gpu() -> None:
    spec = InputSpec(2, types_refused=(RefusedTypes((1,), ("int8",), "the step"),))
    inputs = Inputs(spec, "float64", ("float32", "float64"))
    assert inputs.kernel_dtype(np.dtype(np.int16)) == np.float32
    with pytest.raises(InputError, match="column 1 is int8"):
        inputs.kernel_dtype(np.dtype(np.int8))


def test_specifications() -> None:
    plain = InputSpec(2)
    assert not {"sparse_refused", "types_refused"} & set(codec.write(plain))
    spec = InputSpec(
        2, sparse_refused="no", types_refused=(RefusedTypes((0, 1), ("int8",), "the step", True),)
    )
    assert codec.read(InputSpec, codec.write(spec)) == spec != plain
    for name, value in (
        ("sparse_refused", 1),
        *(
            ("types_refused", [{"columns": [0], "types": ["int8"], "step": "x", **wrong}])
            for wrong in (
                {"columns": [2]}, {"columns": [True]}, {"types": ["float64"]}, {"step": 1}, {"together": 0},
                {"more": 1},
            )
        ),
    ):  # fmt: skip
        with pytest.raises(codec.CodecError, match=rf"{name}|column 2"):
            codec.read(InputSpec, {**codec.write(plain), name: value})
