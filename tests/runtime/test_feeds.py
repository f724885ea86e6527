"""Rows of every container as a pipeline's matrix: as `Evaluator` computes it from the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from hbtvm.errors import InputError
from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Arithmetic, Cast, Encode, Equals, Fill, Lookup, Step
from hbtvm.graph.columns.table import Column, Made, Raw, Table
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.rows import pandas_frame
from tests.runtime.feeding import JOBS, NAMES, N, Norm, frame, oracle, reader


def containers(X: pd.DataFrame) -> dict[str, Any]:
    objects = X.astype({"job": object, "plan": object})
    arrow = pa.Table.from_pandas(X, preserve_index=False)
    dictionary = arrow.set_column(3, "job", arrow["job"].cast(pa.string()).dictionary_encode())
    rows = [{k: (None if v != v else v) for k, v in row.items()} for row in objects.to_dict("records")]
    return {
        "str": X,
        "object": objects,
        "category": X.astype({"job": "category", "plan": "category", "kind": "category"}),
        "nullable": X.astype({"age": "Float64", "job": "string[python]", "kind": "Int64", "flag": "boolean"}),
        "arrow types": X.astype(
            {"age": "float64[pyarrow]", "job": pd.ArrowDtype(pa.string()), "kind": "int64[pyarrow]"}
        ),
        "other order": X[list(reversed(NAMES[:-1]))].assign(more=object()),
        "consolidated": X.copy(),
        "polars": pl.from_pandas(X),
        "polars categories": pl.from_pandas(X).with_columns(pl.col("job").cast(pl.Categorical)),
        "arrow": arrow,
        "arrow chunks": pa.concat_tables([arrow.slice(0, 7), arrow.slice(7)]),
        "arrow batch": arrow.combine_chunks().to_batches()[0],
        "arrow dictionary": dictionary,
        "numpy objects": objects.to_numpy(),
        "dicts": rows,
        "lists": objects.to_numpy().tolist(),
        "tuples": list(objects.itertuples(index=False, name=None)),
    }


@pytest.mark.parametrize("rows", [1, 3, N])
@pytest.mark.parametrize("name", list(containers(frame())))
def test_container_gives_what_evaluator_gives(name: str, rows: int) -> None:
    whole, read = frame(), reader()
    assert whole["job"][:40].isna().any() and whole["plan"][:40].isna().any()
    for start in range(0, 40, rows) if rows < N else (0,):
        X = whole.iloc[start : start + rows].reset_index(drop=True)
        found = read.prepare(containers(X)[name])
        assert found.flags.c_contiguous and found.dtype == np.float64
        np.testing.assert_array_equal(found, oracle(X))


def test_frame_without_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pandas_frame, "_blocks", lambda frame: None)
    X = frame()
    np.testing.assert_array_equal(reader().prepare(X), oracle(X))
    np.testing.assert_array_equal(reader().prepare(X[:1]), oracle(X[:1]))


@pytest.mark.parametrize("rows", [1, 200])
def test_as_scikit_learn_encodes(rows: int) -> None:
    X = frame()[["job", "plan", "kind"]]
    fill = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="none"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=99),
    )
    plain = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=99, encoded_missing_value=7)
    model = ColumnTransformer([("fill", fill, ["job"]), ("plain", plain, ["plan", "kind"])]).fit(X[:40])
    jobs = model.named_transformers_["fill"][1].categories_[0].tolist()
    plans, kinds = (one.tolist() for one in model.named_transformers_["plain"].categories_)

    def coded(raw: int, categories: list[Any], *before: Any) -> Feed:
        values = [7.0 if one != one else float(code) for code, one in enumerate(categories)]
        return Feed(Raw(raw), (*before, Encode(tuple(categories)), Lookup(np.array([*values, 99.0]))))

    made = [coded(0, jobs, Fill("none")), coded(1, plans), coded(2, kinds)]
    spec = InputSpec(3, tuple(X.columns), by_name=True)
    read = FeedReader(spec, made, "float64", ("float64",))
    codes = FeedReader(spec, [Feed(one.source, one.steps[:-1]) for one in made], "float64", ("float64",))
    for form in (X, pl.from_pandas(X), X.astype(object)):
        part = form[100 : 100 + rows]
        wanted = model.transform(X[100 : 100 + rows])
        np.testing.assert_array_equal(read.prepare(part), wanted)
        found = codes.prepare(part)
        looked = [
            step.values[found[:, j].astype(int)] for j, one in enumerate(made) for step in one.steps[-1:]
        ]
        np.testing.assert_array_equal(np.column_stack(looked), wanted)


def test_none_is_its_own_value_where_the_steps_know_it() -> None:
    spec = InputSpec(1, ("a",), by_name=True)
    know = FeedReader(spec, [Feed(Raw(0), (Encode(("x", None, np.nan)),))], "float64", ("float64",))
    plain = FeedReader(spec, [Feed(Raw(0), (Encode(("x", np.nan)),))], "float64", ("float64",))
    objects = np.array([["x"], [None], [np.nan], ["?"]], object)
    assert know.prepare(objects).ravel().tolist() == [0, 1, 2, 3]
    assert plain.prepare(objects).ravel().tolist() == [0, 2, 1, 2]
    # A missing value of Arrow or of JSON is neither None nor NaN, but what the model knows.
    table = pa.table({"a": ["x", None] * 40})
    assert know.prepare(table)[:2].ravel().tolist() == [0, 1]
    assert plain.prepare(table)[:2].ravel().tolist() == [0, 1]
    assert [know.prepare({"a": one})[0, 0] for one in ("x", None)] == [0, 1]
    assert [plain.prepare({"a": one})[0, 0] for one in ("x", None)] == [0, 1]
    assert know.prepare({"a": pd.NA})[0, 0] == 2


def test_numbers_as_categories_are_compared_exactly() -> None:
    big = 2**53
    spec = InputSpec(1)
    read = FeedReader(spec, [Feed(Raw(0), (Encode((big, big + 1, 0.1, -3)),))], "float64", ("float64",))
    for values in ([big, big + 1, big + 2, -3], [big, -3, 7, 7]):
        array = np.array(values * 30, np.int64)[:, None]
        wanted = [read.prepare(np.array([[one]], object))[0, 0] for one in values]
        assert read.prepare(array)[:4, 0].tolist() == wanted
    assert read.prepare(np.array([[0.1], [-3.0], [np.nan]], np.float32)).ravel().tolist() == [4, 3, 4]
    assert read.prepare(np.array([[0.1], [-3.0], [np.inf]])).ravel().tolist() == [2, 3, 4]
    assert read.prepare(np.array([[2**64 - 1], [big]], np.uint64)).ravel().tolist() == [4, 0]


def test_type_of_the_matrix() -> None:
    X = frame()[["age", "pay", "job"]].astype({"age": "float32", "pay": "float32"})
    made = [Feed(Raw(0)), Feed(Raw(1)), Feed(Raw(2), (Encode(JOBS),))]
    spec = InputSpec(3, ("age", "pay", "job"), by_name=True)

    def dtype(X: Any, *dtypes: str, **given: Any) -> str:
        return FeedReader(spec, made, given.pop("compare", "float64"), dtypes, **given).prepare(X).dtype.name

    for rows in (X, X[:1]):
        assert dtype(rows, "float32", "float64", float32_apart=True) == "float32"
        assert dtype(rows, "float64") == "float64"
    assert dtype(X.astype({"age": "float64"}), "float32", "float64") == "float64"
    small = X.assign(age=np.int8(3), pay=np.int8(4))
    assert dtype(small, "float32", "float64") == "float32"
    assert dtype(small, "float32", "float64", float32_apart=True) == "float64"
    for kind in ("Float32", "float[pyarrow]"):
        backed = X.astype({"age": kind, "pay": kind})
        # As scikit-learn converts these.
        assert dtype(backed[:1], "float32", "float64", float32_apart=True) == "float64"
        assert dtype(backed, "float32", "float64", float32_apart=True) == "float64"
    wide = X.astype({"age": "float64", "pay": "float64"})
    assert dtype(wide, "float32", compare="float32") == "float32"
    assert dtype({"age": 1.5, "pay": 2, "job": "tech"}, "float32", "float64") == "float64"
    assert dtype({"age": 1.5, "pay": 2, "job": "tech"}, "float32", compare="float32") == "float32"
    with pytest.raises(InputError, match="float32 rows only"):
        dtype({"age": 0.1, "pay": 2, "job": "tech"}, "float32")


def test_arrays_of_numbers_are_taken_as_they_are() -> None:
    made = [Feed(Raw(0)), Feed(Raw(1))]
    X = np.random.default_rng(0).normal(size=(50, 2))
    read = FeedReader(InputSpec(2), made, "float64", ("float32", "float64"))
    assert read.prepare(X) is X
    assert read.prepare(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(read.prepare(np.asfortranarray(X)), X)
    turned = FeedReader(InputSpec(2), made[::-1], "float64", ("float64",))
    np.testing.assert_array_equal(turned.prepare(X), X[:, ::-1])
    sparse = scipy.sparse.random(50, 2, 0.5, "csr", random_state=0)
    np.testing.assert_array_equal(turned.prepare(sparse), sparse.toarray()[:, ::-1])


def test_numbers_that_hosts_compute_side_by_side() -> None:
    rng = np.random.default_rng(5)

    def steps(constant: float, *rest: Step) -> tuple[Step, ...]:
        return Fill(constant), Arithmetic("subtract", constant / 3), *rest

    norm = Norm(Table((Column(Raw(2), (Fill(0.5),)), Column(Raw(0), (Fill(0.1),)))))
    made = [
        Feed(Raw(1), steps(0.3, Cast("float32")), where="column 'b'"),
        Feed(Raw(0), where="column 'a'"),
        Feed(Made(norm, 1), where="Norm's column 1"),
        Feed(Raw(2), steps(7.0, Cast("float32")), allow_inf=False, where="column 'c'"),
        Feed(Raw(0), steps(0.1), where="column 'a'"),
    ]
    read = FeedReader(InputSpec(3, ("a", "b", "c"), by_name=True), made, "float64", ("float64",))
    x = rng.normal(size=(700, 3))
    x[rng.random(x.shape) < 0.3] = np.nan
    x[:3] = np.array([[1.0, -2.0, 3.0], [0.0, -0.0, 5.0], [np.inf, 1.0, 2.0]])
    evaluator = Evaluator(list(x.T))
    wanted = np.column_stack([evaluator.column(feed.source, feed.steps) for feed in made])
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(read.prepare(x[3:]), wanted[3:])
    many = np.concatenate([x[3:]] * 80)  # computed in blocks
    np.testing.assert_array_equal(read.prepare(many), np.concatenate([wanted[3:]] * 80))
    assert read.prepare(x[:0]).shape == (0, 5)
    for at in range(30):
        a, b, c = x[at].tolist()
        row = {"c": c, "b": b, "a": a}
        rows = [row, {name: None if value != value else value for name, value in row.items()}]
        if not np.isnan(x[at]).any() and np.isfinite(x[at]).all() and (x[at] == np.rint(x[at])).all():
            rows += [{name: int(value) for name, value in row.items()}]
            rows += [{name: np.float32(value) for name, value in row.items()}]
        for one in (*rows, pl.DataFrame([row])):
            np.testing.assert_array_equal(read.prepare(one), wanted[at : at + 1])
    big = {"a": 2**53 + 1, "b": True, "c": 2**70}
    np.testing.assert_array_equal(read.prepare(big), read.prepare([big, big])[:1])
    for one in ({"a": 1, "b": 2, "c": np.inf}, [{"a": 1, "b": 2, "c": -np.inf}, {"a": 1, "b": 2, "c": 3}]):
        with pytest.raises(InputError, match="column 'c', row 0: got infinity"):
            read.prepare(one)
    with pytest.raises(InputError, match=r"column 'b'.* got 'old'"):
        read.prepare({"a": 1, "b": "old", "c": 2})


def test_codes_of_texts_are_computed_side_by_side_with_numbers() -> None:
    fill, one = Fill("tech"), Encode(JOBS)
    other = Encode((*JOBS, np.nan), "error", "column 'b'")
    table = Lookup(np.array([0.5, -1.0, 2.0, np.nan, 0.25]))
    sixth = Lookup(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    hot = [Column(Raw(1), (fill, one, Equals((code,)))) for code in (0, 2, 4)]
    norm = Norm(Table((*hot, Column(Raw(0), (Fill(0.5),)), Column(Raw(2), (other, sixth)))))
    made = [
        Feed(Raw(0), (Fill(0.5), Arithmetic("add", 1.0)), where="column 'x'"),
        *(Feed(column.source, column.steps) for column in hot),
        Feed(Raw(1), (fill, one, table, Fill(9.0), Arithmetic("divide", 3.0))),
        Feed(Raw(2), (other, Equals((1, 3)))),
        Feed(Raw(2), (other, Cast("float32"), sixth, Cast("float64"))),
        *(Feed(Made(norm, i)) for i in (4, 0, 3)),
        Feed(Raw(0), where="column 'x'"),
    ]
    read = FeedReader(InputSpec(3, ("x", "a", "b"), by_name=True), made, "float64", ("float32", "float64"))
    X = frame()[["age", "job", "job"]].set_axis(["x", "a", "b"], axis=1)
    X["b"] = X["b"].where(X["b"] != "unknown")
    objects = [np.array([*X[name].tolist(), None], object)[:-1] for name in ("a", "b")]
    evaluator = Evaluator([X["x"].to_numpy(), *objects])
    wanted = np.column_stack([evaluator.column(feed.source, feed.steps) for feed in made])
    forms = [X, pl.from_pandas(X), pa.Table.from_pandas(X), X.astype(object), X.astype({"a": "category"})]
    for form in (*forms, X.astype(object).to_dict("records")):
        np.testing.assert_array_equal(read.prepare(form), wanted)
    for at in range(40):
        for form in (*forms[:4], X.astype(object).to_numpy()):
            np.testing.assert_array_equal(read.prepare(form[at : at + 1]), wanted[at : at + 1])
        row = {name: None if value != value else value for name, value in X.iloc[at].to_dict().items()}
        np.testing.assert_array_equal(read.prepare(row), wanted[at : at + 1])
    row["b"] = "new"
    for bad in (row, [row, row], X.assign(b="new"), X.assign(b="new")[:1]):
        with pytest.raises(InputError, match="column 'b': 'new' was not in the training data"):
            read.prepare(bad)
    assert read.prepare({**row, "a": 3.5, "b": "tech"})[0, 1:4].tolist() == [0, 0, 1]
