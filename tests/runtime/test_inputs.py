"""Rows of every kind, and what is said about those that don't fit."""

from __future__ import annotations

import datetime
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from hbtvm import codec
from hbtvm.errors import InputError
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.rows.inputs import Inputs, all_finite

THREE = InputSpec(3)
BOTH = ("float32", "float64")
NAMES = ("age", "town", "owns")
TOWNS = InputSpec(3, feature_names=NAMES, categories={1: ("Bern", "Rom")}, unknown_category="error")


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def prepare(X: Any, spec: InputSpec = THREE, compare: str = "float64", dtypes: Any = BOTH) -> np.ndarray:
    inputs = Inputs(spec, compare, dtypes)
    result = inputs.prepare(X)
    if inputs.checks and not all_finite(result):
        inputs.check(result)
    assert result.flags.c_contiguous and result.flags.aligned and result.dtype.isnative
    return result


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"age": [30, 41, 52], "town": ["Rom", "Bern", None], "owns": [True, False, True], **columns}
    )


CODES = np.array([[30, 1, 1], [41, 0, 0], [52, np.nan, 1]])


@pytest.mark.parametrize("dtype", BOTH)
def test_a_ready_array_is_passed_on_as_it_is(dtype: Any) -> None:
    X = np.ones((5, 3), dtype)
    assert prepare(X) is X


@pytest.mark.parametrize(
    ("X", "want"),
    [
        (np.ones((2, 3), np.float16), "float32"),
        (np.ones((2, 3), np.float32), "float32"),
        (np.ones((2, 3), bool), "float32"),
        (np.ones((2, 3), np.int16), "float32"),
        (np.full((2, 3), 2**24), "float32"),
        (np.full((2, 3), 2**24 + 1), "float64"),
        (np.full((2, 3), -(2**24) - 1, np.int32), "float64"),
        (np.full((2, 3), 2**63, np.uint64), "float64"),
        (np.zeros((0, 3), np.int64), "float32"),
        (np.full((2, 3), 0.1), "float64"),
        (np.full((2, 3), 0.1, np.longdouble), "float64"),
    ],
    ids=lambda value: str(getattr(value, "dtype", value)),
)
def test_type_of_the_kernel(X: np.ndarray, want: str) -> None:
    exact = prepare(X)
    assert exact.dtype == want
    np.testing.assert_array_equal(exact, X.astype(want))
    single = prepare(X, compare="float32")
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, X.astype(np.float32))
    double = prepare(X, compare="float32", dtypes=("float64",))
    assert double.dtype == np.float64
    np.testing.assert_array_equal(double, X.astype(np.float32))


def test_any_layout() -> None:
    base = np.arange(60.0).reshape(10, 6).astype(np.float32)
    unaligned = np.zeros(base[:, :3].nbytes + 1, np.uint8)[1:].view(np.float32).reshape(10, 3)
    unaligned[:] = base[:, :3]
    read_only = base[:, :3].copy()
    read_only.setflags(write=False)
    for X in (
        base[:, ::2],
        base[::-1, :3],
        np.asfortranarray(base[:, :3]),
        base[:, :3].astype(">f4"),
        base[:, :3].astype(">i8"),
        unaligned,
        read_only,
        base[:, :3].tolist(),
    ):
        np.testing.assert_array_equal(prepare(X), np.asarray(X))


def test_masked_values_are_missing() -> None:
    X = np.ma.masked_equal(np.arange(6).reshape(2, 3), 4)
    np.testing.assert_array_equal(prepare(X), [[0, 1, 2], [3, np.nan, 5]])


def test_frames_of_every_library() -> None:
    plain = frame()
    for X in (
        plain,
        plain.astype({"town": "category"}),
        plain.astype({"town": "string", "age": "Int64", "owns": "boolean"}),
        plain.astype({"town": pd.CategoricalDtype(["x", "Rom", "y", "Bern"])}),
        plain.convert_dtypes(dtype_backend="pyarrow"),
        pl.from_pandas(plain),
        pl.from_pandas(plain).with_columns(pl.col("town").cast(pl.Categorical)),
        pl.from_pandas(plain).with_columns(pl.col("town").cast(pl.Enum(["Rom", "Bern"]))),
        pa.Table.from_pandas(plain),
        pa.Table.from_pandas(plain.astype({"town": "category"})),
        pa.concat_tables([pa.Table.from_pandas(plain.iloc[:1]), pa.Table.from_pandas(plain.iloc[1:])]),
        pa.RecordBatch.from_pandas(plain),
        plain.to_numpy(dtype=object),
        plain.to_numpy(dtype=object).tolist(),
    ):
        np.testing.assert_array_equal(prepare(X, TOWNS), CODES)


def test_missing_numbers_in_frames() -> None:
    age = [30, None, 52]
    for X in (
        frame(age=pd.array(age, "Int64")),
        frame(age=pd.array(age, "Float32")),
        frame(age=age),
        pl.DataFrame({"age": age, "town": ["Rom", "Bern", None], "owns": [True, False, True]}),
        pa.table({"age": age, "town": ["Rom", "Bern", None], "owns": [True, False, True]}),
    ):
        assert np.isnan(prepare(X, TOWNS)[1, 0])
    flags = {"age": [1, 2], "town": ["Rom", "Rom"], "owns": [None, True]}
    for X in (pl.DataFrame(flags), pa.table(flags)):
        np.testing.assert_array_equal(prepare(X, TOWNS)[:, 2], [np.nan, 1])


def test_frame_of_numbers_alone() -> None:
    X = pd.DataFrame({"a": np.float32([1, 2]), "b": np.float32([3, 4]), "c": [True, False]})
    assert prepare(X).dtype == np.float32
    assert prepare(X.astype({"a": np.float64})).dtype == np.float64
    # Names that are no strings are positions.
    np.testing.assert_array_equal(prepare(pd.DataFrame(np.eye(3)), InputSpec(3, NAMES)), np.eye(3))


def test_names_that_the_library_made_are_not_compared() -> None:
    spec = InputSpec(3, ("Column_0", "Column_1", "Column_2"))
    np.testing.assert_array_equal(prepare(pd.DataFrame(np.eye(3), columns=list(NAMES)), spec), np.eye(3))


def test_lightgbm_turns_spaces_of_names_into_underscores() -> None:
    spec = InputSpec(2, ("my_age", "b"))
    prepare(pd.DataFrame(np.ones((1, 2)), columns=["my age", "b"]), spec)


def test_numbers_that_are_categories() -> None:
    spec = InputSpec(2, categories={1: (10.0, 20.0, 30.0)}, numbers_are_categories=True)
    want = [[1, 0], [2, 2], [3, np.nan], [4, np.nan]]
    X = np.array([[1, 10], [2, 30], [3, 99], [4, np.nan]])
    np.testing.assert_array_equal(prepare(X, spec), want)
    np.testing.assert_array_equal(prepare(X.astype(np.float32), spec), want)
    np.testing.assert_array_equal(prepare(pd.DataFrame(X), spec), want)
    np.testing.assert_array_equal(prepare(pl.DataFrame(X), spec), want)
    strings = InputSpec(1, categories={0: ("u", "v")}, numbers_are_categories=True)
    np.testing.assert_array_equal(prepare(np.array([["v"], ["w"], ["u"]]), strings), [[1], [np.nan], [0]])


def test_an_array_holds_codes_already() -> None:
    np.testing.assert_array_equal(prepare(CODES, TOWNS), CODES)


def test_unknown_categories_can_be_missing_values() -> None:
    spec = InputSpec(3, categories={1: ("Bern", "Rom")}, unknown_category="missing")
    np.testing.assert_array_equal(prepare(frame(town=["Bonn", "Rom", "Bern"]), spec)[:, 1], [np.nan, 1, 0])


def test_value_that_stands_for_missing() -> None:
    spec = InputSpec(2, missing_value=-999.1)
    X = np.array([[1, -999.1], [np.float32(-999.1), 2]])
    kept = X.copy()
    np.testing.assert_array_equal(prepare(X, spec, "float32"), [[1, np.nan], [np.nan, 2]])
    np.testing.assert_array_equal(prepare(X.astype(np.float32), spec, "float32"), [[1, np.nan], [np.nan, 2]])
    np.testing.assert_array_equal(X, kept)


def refused(X: Any, spec: InputSpec = TOWNS, compare: str = "float64", dtypes: Any = BOTH) -> str:
    with pytest.raises(InputError) as caught:
        prepare(X, spec, compare, dtypes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones(3), r"shape \(n, 3\), got shape \(3,\); for a single row use X.reshape\(1, -1\)\."),
        (np.ones((2, 3, 1)), r"expected rows of 3 columns, .*got shape \(2, 3, 1\)\."),
        (np.ones((2, 4)), r"^expected rows of 3 columns, got 4\.$"),
        (frame()["age"], r"got shape \(3,\)"),
        ([[1, 2], [3]], "got a list that is not a table of numbers"),
        ([], r"got shape \(0,\)"),
        ("rows.csv", "got a str"),
        (None, "got a NoneType"),
        ({"age": [1]}, "column 'town' is missing"),
        (np.ones((1, 3), complex), "expected numbers, got an array of complex128"),
        (np.zeros((1, 3), "M8[s]"), r"expected numbers, got an array of datetime64\[s\]"),
        (sparse.csr_matrix(np.eye(3)), r"dense or sparse as scipy has them, got a csr_matrix"),
        (pl.from_pandas(frame()).lazy(), r"LazyFrame; collect\(\) it first"),
        ([["x", "Rom", 1]], r"^column 0 \('age'\): expected numbers, got 'x' \(str\)\.$"),
        ([[datetime.date(2020, 1, 1), 1, 1]], r"column 0 \('age'\): expected numbers, got datetime.date"),
        ([[1, 0, {}]], r"column 2 \('owns'\): expected numbers, got object"),
        ([[10**400, 1, 2]], r"column 0 \('age'\): expected numbers, got object"),
        (frame(age=["1", "2", "3"]), r"column 0 \('age'\): expected numbers, got '1' \(str\)"),
        (frame(age=pd.Categorical([1, 2, 3])), r"column 0 \('age'\): expected numbers, got categories"),
        (frame(age=pd.Timestamp(0)), r"column 0 \('age'\): expected numbers, got datetime64"),
        (frame(age=[1j, 2, 3]), r"column 0 \('age'\): expected numbers, got complex128"),
        (frame(town=["Bonn", "Rom", "Rom"]), r"\('town'\): the category 'Bonn' .* known are 'Bern', 'Rom'\."),
        (frame(town=[0, 1, 0]), r"\('town'\) was a category column in training; .* got int64\."),
        (frame()[["age", "owns"]], r"^column 'town' is missing\.$"),
        (frame().drop(columns=["age", "town"]), r"^column 'age' is missing, and 1 more\.$"),
        (frame(more=1), r"^column 'more' was not in the training data\.$"),
        (frame()[["town", "age", "owns"]], r"another order .*: column 0 is 'town', expected 'age'\.$"),
        (frame()[["age", "town", "owns", "owns"]], r"^column 'owns' appears twice\.$"),
        (pl.from_pandas(frame(age=datetime.date(2020, 1, 1))), r"column 0 \('age'\): .* got Date"),
        (pa.table({"age": [b"x"], "town": ["Rom"], "owns": [1]}), r"column 0 \('age'\): .* got binary"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit(X: Any, message: str) -> None:
    assert re.search(message, refused(X))


@pytest.mark.parametrize("n", [2, 5000])
def test_missing_and_infinite_values_are_found(n: int) -> None:
    X = np.ones((n, 3))
    X[1, 2] = np.nan
    no_nan, no_inf = InputSpec(3, NAMES, allow_nan=False), InputSpec(3, allow_inf=False)
    assert refused(X, no_nan).startswith("column 2 ('owns'), row 1: got NaN, but")
    np.testing.assert_array_equal(prepare(X, no_inf), X)
    for big in (np.inf, -np.inf, 1e300):
        X[1, 2] = big
        np.testing.assert_array_equal(prepare(X, no_nan), X)
        if np.isinf(big):
            assert refused(X, no_inf).startswith("column 2, row 1: got infinity")
        # The library casts first, and so sees infinity.
        assert "too large for float32" in refused(X, no_inf, "float32")
    assert np.isposinf(prepare(X, InputSpec(3), "float32")[1, 2])
    # The quick test overflows, the thorough one finds nothing.
    X[:] = 1e200
    assert prepare(X, InputSpec(3, allow_nan=False, allow_inf=False)) is X


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("n", [1, 30, 5000])
def test_what_is_not_finite_is_seen_wherever_it_is(n: int, dtype: Any) -> None:
    X = np.full((n, 3), -3, dtype)
    assert all_finite(X)
    for value in (np.nan, np.inf, -np.inf):
        for row in (0, n // 2, n - 1):
            X[row, 1] = value
            assert not all_finite(X)
            X[row, 1] = 2


def test_float64_rows_need_a_float64_kernel() -> None:
    X = np.array([[0.5, 1, np.nan]])
    assert prepare(X, dtypes=("float32",)).dtype == np.float32
    assert "compiled for float32 rows only" in refused(X + 0.1, InputSpec(3), dtypes=("float32",))
    assert "compiled for float32 rows only" in refused([[2**24 + 1, 1, 1]], InputSpec(3), dtypes=("float32",))


def test_specification_survives_json() -> None:
    spec = InputSpec(2, ("a", "b"), False, True, {1: ("x", 2, True)}, "error", True, float("inf"))
    assert codec.read(InputSpec, codec.write(spec)) == spec
    for name, value in (
        ("n_features", 0), ("n_features", "2"), ("feature_names", ["a"]), ("unknown_category", "?"),
        ("categories", [[7, ["x"]]]), ("other", 1),
    ):  # fmt: skip
        with pytest.raises(codec.CodecError, match=rf"{name}|column 7"):
            codec.read(InputSpec, {**codec.write(spec), name: value})


def test_dicts() -> None:
    rows = [{"town": "Rom", "age": 30, "owns": True, "more": []}, {"age": None, "town": None, "owns": 0.5}]
    np.testing.assert_array_equal(prepare(rows, TOWNS), [[30, 1, 1], [np.nan, np.nan, 0.5]])
    np.testing.assert_array_equal(prepare(rows[0], TOWNS), [[30, 1, 1]])
    unread = InputSpec(2, feature_names=("a", "b"), categories={0: ()})
    np.testing.assert_array_equal(prepare([{"b": 2}], unread), [[np.nan, 2]])
    numbers = InputSpec(1, feature_names=("c",), categories={0: (3, 5)})
    assert prepare([{"c": 5}, {"c": 3}, {"c": 4}], numbers)[:2].ravel().tolist() == [1, 0]
    for X, spec, message in [
        ([{"age": 1, "town": "Rom", "owns": 1}, {"age": 1}], TOWNS, "column 'town' is missing in row 1"),
        ({"age": 1, "town": "Ulm", "owns": 1}, TOWNS, "category 'Ulm' was not in the training data"),
        ([{"age": 1, "town": "Rom", "owns": 1}, 3], TOWNS, "got a int in row 1"),
        ({"a": 1}, THREE, "without column names"),
    ]:
        with pytest.raises(InputError, match=message):
            prepare(X, spec)
