"""Counters of categories in C against numpy: tables, rows of all kinds, and errors."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hbtvm.errors import InputError
from hbtvm.graph.columns.counters import ABOVE, EQUAL, HASH, Counters
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.hashes import HashText, city_hash
from hbtvm.graph.columns.steps import Arithmetic, Cast, Fill
from hbtvm.graph.columns.table import Column, Made, Raw, Table
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.feeds.counters import CounterFeeds
from hbtvm.runtime.feeds.plan import FeedPlan
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.native import counter_codes
from hbtvm.runtime.native.counters import CounterFunctions, CounterKernel, counter_functions
from hbtvm.runtime.rows.columns import ColumnReader
from hbtvm.runtime.rows.raw import Numbers
from hbtvm.runtime.threads import ThreadPool
from tests.counters import counter_code

WORDS = ["", "a", "Bern", "naïve text", "seventeen-letters", "x" * 40, "y" * 200, "7", "-3"]
MULTIPLIER = np.uint64(0x4906BA494954CB65)


def hashes_of(rows: np.ndarray, elements: list[tuple[int, int, float]], row: list[int]) -> np.ndarray:
    """Return a combination's hashes of rows of numbers; `row` counts elements from 1."""
    result = np.zeros(len(rows), np.uint64)
    for at in row:
        test, column, number = elements[at - 1] if at else (ABOVE, 0, np.inf)
        x = rows[:, column]
        values = {HASH: x, ABOVE: x > number, EQUAL: x == number}[test]
        result = (result + MULTIPLIER * values.astype(np.int64).view(np.uint64)) * MULTIPLIER
    return result


def operation_of(
    columns: tuple[Column, ...], elements: list[tuple[int, int, float]], rows: np.ndarray, seed: int
) -> Counters:
    """Return counters of combinations that begin alike, some of them without hashes."""
    rng = np.random.default_rng(seed)
    combinations = [[1], [1, 2], [1, 2, 3], [2], [1, 2], [2, 4], [3, 4], [4, 0, 1], [], [1, 2, 4]]
    known = [np.unique(hashes_of(rows[i:], elements, row)) for i, row in enumerate(combinations)]
    known[4], known[6] = known[4][::3].copy(), known[6][:0]
    table = rng.permutation([*range(len(combinations)), 1, 1, 5]).astype(np.int32)
    kinds, places, numbers = zip(*elements, strict=True)
    result = Counters(
        Table(columns),
        np.array(kinds, np.int32),
        np.array(places, np.int32),
        np.array(numbers),
        np.array([3, 2], np.int32),
        np.array([[0] * (3 - len(row)) + row for row in combinations], np.int32),
        np.cumsum([0, *map(len, known)]).astype(np.int64),
        np.concatenate(known),
        table,
        rng.normal(size=sum(len(known[at]) + 1 for at in table)).astype(np.float32),
    )
    result.validate()
    return result


ELEMENTS = [(HASH, 0, 0.0), (HASH, 1, 0.0), (ABOVE, 2, 0.5), (EQUAL, 1, 7.0)]


def numeric(n: int, seed: int, kinds: int = 90) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.integers(-kinds, kinds, n), rng.integers(0, 9, n), rng.random(n)])
    x[::7, 2] = np.float32(0.5)
    x[3::7, 2] = np.nan
    return x.astype(float)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 511, 512, 513, 1300])
@pytest.mark.parametrize("most", [0, 400, 1 << 16])
def test_rows(most: int, n: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables read by hashes, by codes, and some by each; categories unknown to training."""
    monkeypatch.setattr(counter_codes, "_MOST", most)
    monkeypatch.setattr(counter_codes, "_FEW", most)
    columns = (Column(Raw(0)), Column(Raw(1)), Column(Raw(2)))
    operation = operation_of(columns, ELEMENTS, numeric(400, 1), n)
    x = numeric(n, 2)
    places = np.random.default_rng(n).permutation(20)[: operation.width]
    places[4] = -1
    x[::17, 0], x[5::17, 1] = 1000, -1000
    expected = np.full((n, 20), 3.0, dtype)
    read = places >= 0
    expected[:, places[read]] = operation.reference(x)[:, read]
    matrix = np.full((n, 20), 3.0, dtype)
    kernel = CounterKernel(counter_code(), operation, [0, 0, 0], places.tolist())
    inputs = np.ascontiguousarray(x.T)
    half = n // 2
    kernel(inputs.ctypes.data, n, 0, half, matrix)
    kernel(inputs.ctypes.data, n, half, n, matrix)
    np.testing.assert_array_equal(matrix, expected)
    row = (ctypes.c_double * 3)(*x[0])
    out = ((ctypes.c_float if dtype == np.float32 else ctypes.c_double) * 20)(*[3.0] * 20)
    kernel.row(row, 0, 0, out)
    np.testing.assert_array_equal(np.array(out), expected[0])


def test_tables_read_by_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Combinations of one category give the categories; tables with others are read by hashes."""
    monkeypatch.setattr(counter_codes, "_FEW", 1 << 16)
    x = numeric(400, 1)
    operation = operation_of((Column(Raw(0)), Column(Raw(1)), Column(Raw(2))), ELEMENTS, x, 0)
    paths = [tuple(e for i, e in enumerate(row) if row[: i + 1].any()) or (0,) for row in operation.elements]
    known = counter_codes.known_categories(operation, paths)
    np.testing.assert_array_equal(np.sort(known[0].view(np.int64)), np.unique(x[:, 0]))
    np.testing.assert_array_equal(np.sort(known[1].view(np.int64)), np.unique(x[:, 1]))
    assert not len(known[2])
    for at, path in enumerate(paths):
        indices = counter_codes.indices_by_codes(operation, at, path, known)
        assert indices is not None
        size = operation.start[at + 1] - operation.start[at]
        np.testing.assert_array_equal(np.unique(indices[indices < size]), np.arange(size))
        fewer = [known[0][1:], *known[1:]]
        assert (counter_codes.indices_by_codes(operation, at, path, fewer) is None) == (
            size > 0 and 1 in path
        )


def test_many_hashes() -> None:
    x = np.arange(-30_000.0, 30_000.0)
    operation = simple(np.unique(hashes_of(x[::2, None], [(HASH, 0, 0.0)], [1])), Column(Raw(0)))
    matrix = np.zeros((len(x), 1), np.float32)
    CounterKernel(counter_code(), operation, [0], [0])(x.ctypes.data, len(x), 0, len(x), matrix)
    np.testing.assert_array_equal(matrix, operation.reference(x[:, None]))
    assert (matrix == 30_000).sum() == 30_000


def test_hashes_that_find_no_slots() -> None:
    """Hashes in a row, which training does not make, are left to numpy."""
    hashes = np.arange(500, dtype=np.uint64) + np.uint64(1 << 63)
    hashed = Column(Raw(0), (HashText("column 'a'"),))
    counted = CounterFeeds([Feed(Made(simple(hashes, hashed), 0))], [0], ColumnReader(InputSpec(1)), [], None)
    counted.use(counter_code())
    assert counted.row(["a"], [], np.dtype(np.float32)).tolist() == [[500.0]]


def simple(hashes: np.ndarray, column: Column) -> Counters:
    """Return a counter whose value is a hash's place."""
    size = len(hashes)
    return Counters(
        Table((column,)), np.array([HASH], np.int32), np.array([0], np.int32), np.zeros(1),
        np.zeros(0, np.int32), np.array([[1]], np.int32), np.array([0, size]), hashes,
        np.array([0], np.int32), np.arange(size + 1, dtype=np.float32),
    )  # fmt: skip


def test_hashes_of_arrow_texts() -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(chr(97 + int(c)) for c in rng.integers(0, 26, n)) for n in range(300)]
    for kind in (pa.string(), pa.large_string()):
        array = pa.array(texts, kind)[5:]
        offsets, data = array.buffers()[1:]
        size = 4 if kind == pa.string() else 8
        out = np.empty(len(array), np.int32)
        start = offsets.address + size * array.offset
        call = counter_code().hash_texts
        assert call(data.address, data.size, start, size == 8, len(array), out.ctypes.data) == -1
        expected = city_hash([text.encode() for text in texts[5:]]).astype(np.int32)
        np.testing.assert_array_equal(out, expected)
        # The text that leaves the buffer is named.
        assert call(data.address, 100, start, size == 8, len(array), out.ctypes.data) == 9


SPEC = InputSpec(4, ("city", "shop", "amount", "more"), categories={0: (), 1: ()}, by_name=True)


def reader(code: CounterFunctions | None, *steps: Any, finite: bool = False) -> FeedReader:
    """Return the reader of numbers, and of counters of two categories and a number."""
    number = Column(Raw(2), steps or (Cast("float32"), Fill(np.inf)), allow_inf=not finite)
    columns = (
        Column(Raw(0), (HashText("column 'city'"),)),
        Column(Raw(1), (HashText("column 'shop'"),)),
        number,
    )
    hashed = [city_hash([word.encode() for word in WORDS[:-3]]).astype(np.int32)] * 2
    rng = np.random.default_rng(0)
    rows = np.column_stack([*(rng.choice(h, 300) for h in hashed), rng.random(300)]).astype(float)
    elements = [(HASH, 0, 0.0), (HASH, 1, 0.0), (ABOVE, 2, 0.5), (EQUAL, 1, float(hashed[1][2]))]
    operation = operation_of(columns, elements, rows, 0)
    feeds = [Feed(Made(operation, i)) for i in range(operation.width)]
    feeds = [
        *feeds[:3],
        Feed(Raw(2), where="column 'amount'"),
        *feeds[5:],
        Feed(Raw(3), where="column 'more'"),
    ]
    result = FeedReader(SPEC, feeds, "float32", ("float32", "float64"))
    result.counters.use(code)
    return result


def frame(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(n)
    amount = rng.random(n)
    amount[1::5] = np.nan
    words = [*WORDS, "unknown to training"]
    return pd.DataFrame(
        {
            "more": rng.integers(-9, 9, n),
            "shop": rng.choice(words, n).astype(object),
            "amount": amount,
            "city": rng.choice(words, n).astype(object),
        }
    )


CONVERSIONS: dict[str, Any] = {
    "object": lambda X: X.astype({"city": object, "shop": object}),
    "texts": lambda X: X.astype({"city": "string", "shop": "string[pyarrow]"}),
    "category": lambda X: X.astype({"city": "category", "shop": "category"}),
    "arrow": lambda X: pa.Table.from_pandas(X),
    "polars": pl.from_pandas,
    "dicts": lambda X: X.to_dict("records"),
    "array": lambda X: X[["city", "shop", "amount", "more"]].to_numpy(object),
    "integers": lambda X: X.assign(city=X["more"], shop=X["more"].astype(np.int8)),
    "bools": lambda X: X.assign(city=X["more"] > 0),
    "objects of integers": lambda X: X.assign(city=X["more"].astype(object)),
}


@pytest.mark.parametrize("kind", CONVERSIONS)
@pytest.mark.parametrize("n", [1, 60, 1100])
def test_containers(kind: str, n: int) -> None:
    X = frame(n)
    rows = CONVERSIONS[kind](X)
    expected = reader(None).prepare(rows)
    assert expected.dtype == np.float32 and len(expected) == n
    if not kind.startswith(("integers", "bools", "objects")):
        np.testing.assert_array_equal(expected, reader(None).prepare(X))
        assert n == 1 or len(np.unique(expected[:, 4:])) > 30
    read = reader(counter_code())
    for _ in range(2):  # hashes are kept
        np.testing.assert_array_equal(read.prepare(rows), expected)


@pytest.mark.parametrize("code", ["C", "numpy"])
@pytest.mark.parametrize("value", [None, np.nan, pd.NA, 1.0, 2.5, ["a"], 1 << 70])
@pytest.mark.parametrize("n", [1, 3, 900])
def test_values_that_are_no_categories(n: int, value: Any, code: str) -> None:
    X, read = frame(n), reader(counter_code() if code == "C" else None)
    column = X["city"].tolist()
    column[-1] = value
    X["city"] = pd.Series(column, dtype=object)
    place = f"column 'city', row {n - 1}"
    with pytest.raises(InputError, match=f"{place}: expected a category, a text or an integer, got"):
        read.prepare(X)


@pytest.mark.parametrize("code", ["C", "numpy"])
def test_missing_texts_and_floats(code: str) -> None:
    X, read = frame(90), reader(counter_code() if code == "C" else None)
    for kind in ("string", "category"):
        column = X["city"].astype(kind)
        column[7] = None
        with pytest.raises(InputError, match="column 'city', row 7: expected a category"):
            read.prepare(X.assign(city=column))
    with pytest.raises(InputError, match="column 'shop', row 0: expected a category"):
        read.prepare(X.assign(shop=X["amount"]))
    with pytest.raises(InputError, match="column 'amount', row 0: expected a number, got 'much'"):
        read.prepare(X.assign(amount=["much"] * 90))


@pytest.mark.parametrize("n", [1, 40])
def test_steps_in_front_of_numbers(n: int) -> None:
    """Numbers behind a pipeline's steps; a step that refuses infinities refuses them."""
    steps = (Fill(0.2), Arithmetic("multiply", 3.0), Cast("float32"))
    X = frame(n)
    expected = reader(None, *steps).prepare(X)
    np.testing.assert_array_equal(reader(counter_code(), *steps).prepare(X), expected)
    if n > 1:
        assert not np.array_equal(expected, reader(None).prepare(X))
    for code in (None, counter_code()):
        with pytest.raises(InputError, match=r"'amount'.*: got infinity, expected finite numbers"):
            reader(code, *steps, finite=True).prepare(X.assign(amount=np.inf))


def test_threads() -> None:
    columns = tuple(Column(Raw(i), (Cast("float32"),)) for i in range(3))
    elements = [(ABOVE, 0, 1.0), (EQUAL, 1, 2.0), (ABOVE, 2, 0.5), (EQUAL, 1, 7.0)]
    operation = operation_of(columns, elements, numeric(400, 1), 3)
    feeds = [Feed(Made(operation, i)) for i in range(operation.width)]
    plan = FeedPlan(feeds)
    assert plan.counters == list(range(len(feeds))) and plan.counter_raws == [0, 1, 2]
    x = numeric(5000, 4)
    found = []
    for pool in (None, ThreadPool(2)):
        counted = CounterFeeds(feeds, plan.counters, ColumnReader(InputSpec(3)), [], pool)
        counted.use(counter_code())
        columns_read: Any = {i: Numbers(x[:, i]) for i in range(3)}
        blocks = counted.blocks({}, columns_read, len(x), 1700, np.dtype(np.float32))
        found.append(np.concatenate([block.copy() for block in blocks]))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], operation.reference(x.astype(np.float32).astype(float)))


def test_hashes_of_other_columns_are_left_to_numpy() -> None:
    """A damaged package may hash a number, which C would not convert safely."""
    columns = tuple(Column(Raw(i), (Cast("float32"),)) for i in range(3))
    operation = operation_of(columns, ELEMENTS, numeric(400, 1), 3)
    assert FeedPlan([Feed(Made(operation, 0))]).hosts == [0]


def test_executors_of_earlier_releases() -> None:
    code: Any = SimpleNamespace(hbtvm_interleave=print)
    assert counter_functions(code) is None
