"""Rows that a feed refuses, what it looks at, and what it leaves alone."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hbtvm.errors import InputError
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Encode, Function
from hbtvm.graph.columns.table import Raw
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.codes.coder import Coder
from hbtvm.runtime.feeds.reader import FeedReader
from tests.runtime.feeding import NAMES, N, frame, oracle, reader

ROW = {"age": 1.0, "pay": 2.0, "size": 0.5, "job": "tech", "plan": "pro", "kind": 1, "flag": True}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda row: {k: v for k, v in row.items() if k != "job"}, "column 'job'"),
        (lambda row: {**row, "age": "old"}, "column 'age'.* expected a number, got 'old'"),
        (lambda row: {**row, "age": [1]}, "column 'age'.* expected a number"),
    ],
)
@pytest.mark.parametrize("form", ["dict", "dicts", "frame", "polars", "arrow"])
def test_refused(change: Any, text: str, form: str) -> None:
    row = change(ROW)
    made: dict[str, Any] = {
        "dict": lambda: row,
        "dicts": lambda: [row, row],
        "frame": lambda: pd.DataFrame([row] * 60),
        "polars": lambda: pl.DataFrame([row] * 60),
        "arrow": lambda: pa.Table.from_pylist([row] * 60),
    }
    if form in ("polars", "arrow") and isinstance(row["age"], list):
        text = "column 'age'.*expected numbers or categories, got"
    with pytest.raises(InputError, match=text):
        reader().prepare(made[form]())


@pytest.mark.parametrize("rows", [1, 30, 300])
@pytest.mark.parametrize("form", ["dicts", "str", "object", "category", "polars", "arrow", "numpy"])
def test_unknown_category_is_refused(rows: int, form: str) -> None:
    words = ["a", "b"] * (rows // 2 + 1)
    words[rows - 1] = "new"
    X = pd.DataFrame({"c": words[:rows]}, dtype="str")
    made: dict[str, Any] = {
        "dicts": X.to_dict("records"),
        "str": X,
        "object": X.astype(object),
        "category": X.astype("category"),
        "polars": pl.from_pandas(X),
        "arrow": pa.Table.from_pandas(X),
        "numpy": X.astype(object).to_numpy(),
    }
    encode = Encode(("a", "b"), "error", "step 'onehot' (OneHotEncoder), column 'c'")
    spec = InputSpec(1, ("c",), by_name=True)
    read = FeedReader(spec, [Feed(Raw(0), (encode,))], "float64", ("float64",))
    with pytest.raises(
        InputError, match=r"step 'onehot' \(OneHotEncoder\), column 'c': 'new' was not in the training data"
    ):
        read.prepare(made[form])
    # A category of the frame that no row has is none of the rows'.
    assert read.prepare(X.astype("category")[: rows - 1]).shape == (rows - 1, 1)


def test_values_that_a_feed_refuses() -> None:
    read = reader()
    X = frame()
    X.loc[5, "pay"] = np.inf
    assert read.checks
    with pytest.raises(InputError, match=r"column 'pay', row 5: got infinity"):
        read.check(read.prepare(X))
    strict = FeedReader(InputSpec(1), [Feed(Raw(0), (), False, True, "column 0")], "float64", ("float64",))
    with pytest.raises(InputError, match="column 0, row 1: got NaN"):
        strict.check(strict.prepare(np.array([[1.0], [np.nan]])))
    host = [Feed(Raw(0), (Function("absolute"),), True, False, "column 0")]
    strict = FeedReader(InputSpec(1), host, "float64", ("float64",))
    with pytest.raises(InputError, match="column 0, row 1: got infinity"):
        strict.prepare(np.array([[1.0], [np.inf]]))


def test_only_columns_that_take_none_are_looked_at() -> None:
    spec = InputSpec(3)
    feeds = [
        Feed(Raw(0), (), True, False, "x"),
        Feed(Raw(1), (), False, True, "y"),
        Feed(Raw(2), (), where="z"),
    ]
    read = FeedReader(spec, feeds, "float64", ("float64",))
    good = np.array([[np.nan, np.inf, np.nan], [1, 2, -np.inf]])
    read.check(good)
    for row, column, value, message in ((1, 0, -np.inf, "x, row 1"), (0, 1, np.nan, "y, row 0")):
        bad = good.copy()
        bad[row, column] = value
        with pytest.raises(InputError, match=message):
            read.check(bad)


def test_names() -> None:
    X = frame()
    ordered = reader(by_name=False)
    np.testing.assert_array_equal(ordered.prepare(X), oracle(X))
    with pytest.raises(InputError, match="another order"):
        ordered.prepare(X[list(reversed(NAMES))])
    with pytest.raises(InputError, match="column 'unread' is missing"):
        ordered.prepare(X.drop(columns="unread"))
    with pytest.raises(InputError, match="column 'job', which the pipeline reads, is missing, and 1 more"):
        reader().prepare(X.drop(columns=["job", "plan"]))
    with pytest.raises(InputError, match="column 'job' appears twice"):
        reader().prepare(pd.concat([X, X[["job"]]], axis=1))
    with pytest.raises(InputError, match="expected rows of 8 columns"):
        reader().prepare(X.to_numpy()[:, :3])
    with pytest.raises(InputError, match=r"collect\(\)"):
        reader().prepare(pl.from_pandas(X).lazy())
    nameless = FeedReader(InputSpec(2), [Feed(Raw(0)), Feed(Raw(1))], "float64", ("float64",))
    assert nameless.prepare(pd.DataFrame([[1.0, 2.0]])).tolist() == [[1.0, 2.0]]
    with pytest.raises(InputError, match="without column names"):
        nameless.prepare({"a": 1})


def test_unread_columns_may_hold_anything() -> None:
    X = frame()
    wanted = oracle(X)
    np.testing.assert_array_equal(reader().prepare(X.assign(unread=[object()] * N)), wanted)
    np.testing.assert_array_equal(reader().prepare(X.assign(unread=pd.Timestamp(0))), wanted)
    rows = X.astype(object).to_dict("records")
    assert reader().prepare({k: v for k, v in rows[0].items() if k != "unread"}).shape == (1, 14)


@pytest.mark.parametrize("rows", [1, 60])
@pytest.mark.parametrize("form", ["pandas", "polars", "arrow"])
def test_types_that_no_model_reads(form: str, rows: int) -> None:
    X = pd.DataFrame({"a": pd.Series([pd.Timestamp(0)] * rows)})
    made: dict[str, Any] = {"pandas": X, "polars": pl.from_pandas(X), "arrow": pa.Table.from_pandas(X)}
    for steps in ((), (Encode(("a",), "code", "column 'a'"),)):
        read = FeedReader(
            InputSpec(1, ("a",), by_name=True),
            [Feed(Raw(0), steps, where="column 'a'")],
            "float64",
            ("float64",),
        )
        with pytest.raises(InputError, match="column 'a': expected numbers or categories, got"):
            read.prepare(made[form])


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_one_row_of_arrow_keeps_its_type(kind: Any) -> None:
    table = pa.table({"a": pa.array([0.1], kind), "b": pa.array(["x"])})
    made = [Feed(Raw(0)), Feed(Raw(1), (Encode(("y", "x")),))]
    read = FeedReader(InputSpec(2, ("a", "b")), made, "float64", ("float32", "float64"), True)
    for form in (table, table.to_batches()[0], pl.from_arrow(table)):
        found = read.prepare(form)
        assert found.dtype == kind.to_pandas_dtype() and found.tolist() == [[table["a"][0].as_py(), 1.0]]


def test_layouts_follow_the_frame() -> None:
    X, read = frame(), reader()
    wanted = oracle(X)
    orders = [list(NAMES), list(reversed(NAMES)), [*NAMES[3:], *NAMES[:3]]]
    for _ in range(3):
        for order in orders:
            np.testing.assert_array_equal(read.prepare(X[order]), wanted)
            np.testing.assert_array_equal(read.prepare(pl.from_pandas(X[order])), wanted)
    renamed = X.copy()
    renamed.columns = renamed.columns.str.replace("job", "work")
    with pytest.raises(InputError, match="column 'job'"):
        read.prepare(renamed)


def test_threads_share_a_reader() -> None:
    X, read = frame(), reader()
    forms = [X, X[list(reversed(NAMES))], pl.from_pandas(X), X.astype({"job": "category"})]
    wanted, wrong = oracle(X), []

    def work(at: int) -> None:
        for i in range(15):
            if not np.array_equal(read.prepare(forms[(at + i) % 4]), wanted, equal_nan=True):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_integers_close_together_are_looked_up_exactly():
    encode = Encode((3, 5, -2))
    coder = Coder((encode,))
    for dtype in (np.int8, np.int64, np.uint8, np.uint64):
        bounds = np.iinfo(dtype)
        x = np.array([3, 5, 4, 6, 127, 0, bounds.min, bounds.max], dtype)
        np.testing.assert_array_equal(coder.of_numbers(x), [encode.code(one) for one in x.tolist()])
    wide = Coder((Encode((0, 1 << 40)),))
    np.testing.assert_array_equal(wide.of_numbers(np.array([1 << 40, 0, 7, -1])), [1, 0, 2, 2])
