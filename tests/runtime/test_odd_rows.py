"""Rows of which nobody thought: predicted, or refused in one sentence, whatever their classes raise."""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import fractions
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.ensemble import IsolationForest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import MissingIndicator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import hbtvm
from hbtvm.errors import HbtvmError, InputError

try:
    import torch
except ModuleNotFoundError:
    torch = None  # type: ignore[assignment]
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")

Call = Callable[[Any], Any]


@pytest.fixture(scope="module")
def models() -> dict[str, Call]:
    """Ways into models of several kinds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)
    frame = pd.DataFrame({"a": X[:, 0], "b": rng.choice(["x", "y", "z"], 40)})
    mixed = make_column_transformer(
        (StandardScaler(), ["a"]), (OneHotEncoder(handle_unknown="ignore"), ["b"])
    )

    def made(model: Any) -> Any:
        return hbtvm.compile(model, batch_sizes=(8,), threads=1)

    texts = make_pipeline(CountVectorizer(analyzer="char"), LogisticRegression())
    known: dict[str, Callable[[], Call]] = {
        "tree": lambda: made(DecisionTreeRegressor(max_depth=3).fit(X, y)).predict,
        "scaled": lambda: (
            made(make_pipeline(StandardScaler(with_mean=False), LogisticRegression()).fit(X, y)).predict
        ),
        "mixed": lambda: made(make_pipeline(mixed, LogisticRegression()).fit(frame, y)).predict,
        "texts": lambda: made(texts.fit(frame["b"], y)).predict,
        "onehot": lambda: made(make_pipeline(OneHotEncoder(handle_unknown="ignore")).fit(frame)).transform,
        "marks": lambda: made(make_pipeline(MissingIndicator(features="all")).fit(X)).transform,
    }
    return {name: make() for name, make in known.items()}


def check(models: dict[str, Call], X: Any, note: object) -> None:
    """Every model computes something, or says in one sentence what is wrong."""
    for name, call in models.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(X)
        except HbtvmError as error:
            text = str(error)
            assert 10 < len(text) < 600 and text.isprintable() and text.endswith("."), (name, note, text)
        except Exception as error:
            raise AssertionError((name, note)) from error


class Raises:
    """Raises in one of its methods, an error of a class that nothing expects."""

    def __init__(self, where: str, error: type[Exception]) -> None:
        self._where, self._error = where, error

    def _call(self, where: str, value: Any) -> Any:
        if where == self._where:
            raise self._error("not\nhere")
        return value

    def __eq__(self, other: object) -> bool:
        return bool(self._call("eq", self is other))

    def __hash__(self) -> int:
        return int(self._call("hash", 1))

    def __float__(self) -> float:
        return float(self._call("float", 1.0))

    def __repr__(self) -> str:
        return str(self._call("repr", "many\nlines \x1b[31m" + "x" * 1000))

    def __bool__(self) -> bool:
        return bool(self._call("bool", True))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        return np.asarray(self._call("array", np.ones((3, 2))))


def cells() -> Iterator[Any]:
    """Values that stand where a number or a text should."""
    yield from map(decimal.Decimal, ("sNaN", "-sNaN", "NaN", "1e400", "Infinity", "1.5"))
    yield from (10**400, -(10**400), 2**64, 1j, fractions.Fraction(10**400), np.longdouble("1e4000"))
    own: list[Any] = [1]
    own.append(own)
    yield own
    table: dict[str, Any] = {"b": 1}
    table["a"] = table
    yield table
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    yield deep
    for where in ("eq", "hash", "float", "repr", "bool", "array", ""):
        yield Raises(where, ZeroDivisionError if where in ("eq", "float") else KeyError)
    yield from (np.datetime64("NaT"), np.timedelta64(3, "s"), datetime.datetime(2020, 1, 1), object(), pd.NA)
    yield from (
        b"x",
        bytearray(b"x"),
        "\ud800",
        "\udc80x",
        "٣",
        "1_0",
        "",
        np.array([1, 2]),
        np.array([]),
        {1},
    )
    yield from (pl.Series([1]), pd.Series([1]), sparse.csr_matrix([[1]]))
    if torch is not None:
        yield torch.ones(1, requires_grad=True)
    yield from (
        (one for one in [1]),
        memoryview(b"ab"),
        np.ma.masked,
        np.void(b"ab"),
        pd.Interval(0, 1),
        Ellipsis,
    )


def containers(value: Any) -> Iterator[Any]:
    yield [[value, "x"], [1.0, value]]
    yield ([value, value],)
    yield {"a": value, "b": value}
    yield [{"a": 1.0, "b": "x"}, {"a": value, "b": value}]
    yield collections.deque([[value, value]])
    yield value
    yield [value]
    for rows in (1, 3):
        array = np.empty((rows, 2), object)
        for at in np.ndindex(array.shape):
            array[at] = value
        yield array
        yield array[:, 0]
        yield pd.DataFrame({"a": array[:, 0], "b": array[:, 1]}, dtype=object)


def test_values(models: dict[str, Call]) -> None:
    for i, value in enumerate(cells()):
        for j, rows in enumerate(containers(value)):
            check(models, rows, (i, type(value), j))


def test_tables(models: dict[str, Call]) -> None:
    whole = [1, None, 3]
    day = datetime.datetime(2020, 1, 1)
    kinds: list[tuple[Any, list[Any]]] = [
        *((kind, whole) for kind in (pl.Int128, pl.UInt128, pl.UInt64, pl.Int8, pl.Float32, pl.Decimal(38,
        2))),
        (pl.Int128, [2**100, -(2**100), 0]), (pl.Duration, [datetime.timedelta(1)] * 3), (pl.Date,
        [day.date()] * 3),
        (pl.Time, [datetime.time(1)] * 3), (pl.Datetime, [day] * 3), (pl.Struct({"q": pl.Int64}),
        [{"q": 1}] * 3),
        (pl.List(pl.Float64), [[1.0]] * 3), (pl.Binary, [b"x"] * 3), (pl.Null, [None] * 3), (pl.Object,
        [object()] * 3),
        (pl.Categorical, ["x", "y", None]), (pl.Enum(["x", "y"]), ["x", "y", None]), (pl.Boolean, [True,
        None, False]),
    ]  # fmt: skip
    for kind, values in kinds:
        series = pl.Series(values, dtype=kind, strict=False)
        frame = pl.DataFrame({"a": series, "b": series})
        for rows in (frame, frame[:1], frame[:0], frame.lazy(), series):
            check(models, rows, kind)
    arrow: list[tuple[pa.DataType, list[Any]]] = [
        (pa.decimal128(10, 2), whole), (pa.decimal256(60, 2), whole), (pa.float16(), whole),
        (pa.duration("s"), whole),
        (pa.time32("s"), whole), (pa.timestamp("ns", "UTC"), whole), (pa.list_(pa.float64()), [[1.0], None,
        []]),
        (pa.struct([("q", pa.int64())]), [{"q": 1}] * 3), (pa.map_(pa.string(), pa.int64()), [[("a",
        1)]] * 3),
        (pa.binary(), [b"\xff", None, b""]), (pa.binary(2), [b"xx"] * 3), (pa.string_view(), ["x", None,
        "y"]),
        (pa.dictionary(pa.int8(), pa.string()), ["x", None, "y"]), (pa.dictionary(pa.uint64(), pa.float64()),
        whole),
        (pa.dictionary(pa.int8(), pa.binary()), [b"x", None, b"y"]), (pa.null(), [None] * 3), (pa.uint64(),
        [2**63, 1, 2]),
        (pa.month_day_nano_interval(), [(1, 2, 3)] * 3), (pa.list_view(pa.int64()), [[1]] * 3),
    ]  # fmt: skip
    for data_type, values in arrow:
        array = pa.array(values, data_type)
        table = pa.table({"a": array, "b": array})
        column = pd.Series(pd.arrays.ArrowExtensionArray(array))
        for rows in (
            table,
            table.slice(1, 1),
            table.slice(0, 0),
            array,
            pd.DataFrame({"a": column, "b": column}),
        ):
            check(models, rows, data_type)
    for column in (
        pd.Series([1 + 2j] * 3), pd.Series(pd.interval_range(0, 3)), pd.Series(pd.date_range("2020",
        periods=3, tz="UTC")),
        pd.Series(pd.to_timedelta([1, 2, None])), pd.Series(pd.arrays.SparseArray([1.0, 0, 2.0])),
        pd.Series(whole, dtype="Int64"),
        pd.Series([True, None, False], dtype="boolean"), pd.Series(pd.Categorical([1, None, 2])),
        pd.Series(["a", 1, None], dtype=object),
    ):  # fmt: skip
        frame_of = pd.DataFrame({"a": column, "b": column})
        levels, twice, odd = frame_of.copy(), frame_of.copy(), frame_of.copy()
        levels.columns = pd.MultiIndex.from_tuples([("a", "x"), ("b", "y")])
        twice.columns = pd.Index(["a", "a"])
        odd.columns = pd.Index([Raises("", KeyError), Raises("", KeyError)])
        for given in (frame_of, frame_of[:1], frame_of[:0], levels, twice, odd, column):
            check(models, given, column.dtype)


@needs_torch
def test_tensors(models: dict[str, Call]) -> None:
    ones = torch.ones(3, 2)
    for tensor in (
        ones.clone().requires_grad_(), torch.nn.Parameter(ones), ones.bfloat16(), ones.half(),
        ones.to_sparse(), ones.to("meta"),
        ones.to(torch.complex64).conj(), torch._neg_view(ones), ones.to(torch.float8_e4m3fn), ones[0],
        ones[:0], ones.bool(),
    ):  # fmt: skip
        check(models, tensor, "torch")
    with pytest.raises(InputError, match="requires grad"):
        models["scaled"](torch.ones(3, 2, requires_grad=True))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arrays(models: dict[str, Call]) -> None:
    masked = np.ma.masked_array(np.ones((3, 2)), [[0, 1]] * 3)
    for array in (
        np.ones((3, 2), complex), np.ones((3, 2), "M8[s]"), np.array([["x", "y"]] * 3), np.array([[b"x",
        b"y"]] * 3), masked,
        np.ones(3, [("a", "f8"), ("b", "f8")]), np.ones((3, 2), "V4"), np.ones((3, 2), np.longdouble),
        np.ones((3, 2), ">f4"),
        np.ma.masked_array(np.array([["x", "y"]] * 3), [[0, 1]] * 3), np.matrix(np.ones((3, 2))),
        np.array(1.0), np.ones((3, 2, 1)),
        np.ones((0, 2)), np.ones((3, 0)), np.array(None), np.frombuffer(bytes(49),
        np.uint8)[1:].view("f8").reshape(3, 2),
        sys, int, None, 3, "abc", b"ab", [], {}, {1, 2}, [[1], [1, 2]], [[1, 2], {"a": 1}],
        memoryview(np.ones((3, 2))),
    ):  # fmt: skip
        check(models, array, repr(array)[:40])


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_masked_arrays_and_matrices_are_read(models: dict[str, Call]) -> None:
    X = np.array([[0.5, -1.0], [2.0, 0.25]])
    for name in ("tree", "scaled"):
        assert np.array_equal(models[name](np.matrix(X)), models[name](X))
    # What is masked is missing.
    assert models["marks"](np.ma.masked_array(X, [[0, 1], [1, 0]])).tolist() == [[False, True], [True, False]]


def test_wide_integers(models: dict[str, Call]) -> None:
    X = np.array([[3, -1], [2, 0], [-7, 5]])
    frame = pl.DataFrame(X, schema={"a": pl.Int128, "b": pl.Int128})
    for name in ("tree", "scaled"):
        assert np.array_equal(models[name](frame), models[name](X))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([[decimal.Decimal("sNaN"), 1.0]], "expected a number"),
        ([[[1, [2]], 1.0]], "expected a number"),
    ],
)
def test_sentences(rows: Any, sentence: str, models: dict[str, Call]) -> None:
    with pytest.raises(InputError, match=sentence):
        models["scaled"](rows)


def damaged() -> Iterator[Any]:
    """Sparse matrices with attributes that scipy did not make."""
    for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, sparse.bsr_matrix):
        good = kind(np.array([[1.0, 2], [0, 3], [4, 0]]))
        at, starts, data = good.indices, good.indptr, good.data
        for name, values in (
            (
                "indices",
                (
                    at.astype(float),
                    at + 1,
                    at - 1,
                    at + 10**9,
                    -at - 5,
                    at[:-1],
                    at[:, None],
                    at.astype(object),
                ),
            ),
            ("indices", (at.tolist(), at.astype(np.uint64), at.astype(bool), None, at * 0)),
            (
                "indptr",
                (
                    starts.astype(float),
                    starts + 1,
                    starts[::-1].copy(),
                    starts[:-1],
                    starts * 10,
                    -starts,
                    None,
                ),
            ),
            (
                "data",
                (data.astype(object), data[:-1], data.astype(str), data[:, None], data.astype(complex), None),
            ),
            ("data", (data.astype(">f8"), data.astype(np.float16), data.astype(np.longdouble))),
        ):
            for value in values:
                made = good.copy()
                setattr(made, name, value)
                yield made
    for name, value in (("row", 5), ("col", -3)):
        made = sparse.coo_matrix(np.eye(3, 2))
        setattr(made, name, getattr(made, name) + value)
        yield made
    made = sparse.lil_matrix(np.eye(3, 2))
    made.rows[0] = [77]
    yield made
    yield from (
        sparse.csr_matrix((0, 2)),
        sparse.csr_matrix((3, 5)),
        sparse.dok_array((3, 2)),
        sparse.dia_array((3, 2)),
    )


@pytest.mark.filterwarnings("ignore:.*fork")
def test_damaged_sparse_rows(models: dict[str, Call], tmp_path: Path) -> None:
    """In a child, as scipy's code may follow wrong places out of its arrays."""
    log = tmp_path / "log"
    process = os.fork()
    if not process:
        status = 1
        with open(log, "w") as file, contextlib.suppress(BaseException):
            for i, rows in enumerate(damaged()):
                print(i, rows.format, file=file, flush=True)
                check(models, rows, i)
            status = 0
        os._exit(status)
    assert os.waitpid(process, 0)[1] == 0, log.read_text().splitlines()[-1]


def test_entries_in_any_order_and_twice(models: dict[str, Call]) -> None:
    rows = sparse.csr_matrix((np.ones(5), np.array([1, 0, 1, 1, 0]), np.array([0, 4, 5, 5])), shape=(3, 2))
    for name in ("tree", "scaled"):
        assert np.array_equal(models[name](rows), models[name](rows.toarray()))


def test_anomalies_at_the_threshold() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    model = IsolationForest(n_estimators=5, random_state=0).fit(X)
    for row in range(0, 40, 7):
        model.offset_ = model.score_samples(X[row : row + 1])[0]
        compiled = hbtvm.compile(model, batch_sizes=16, threads=1, dtype="float64")
        for rows in (X, X[row : row + 1], X.astype(np.float64), X.tolist()):
            np.testing.assert_array_equal(compiled.predict(rows), model.predict(rows))
            np.testing.assert_allclose(
                compiled.decision_function(rows), model.decision_function(rows), 1e-5, 1e-15
            )
