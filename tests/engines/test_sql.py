"""Predicting in DuckDB and polars, by the real libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import LGBMRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import hbtvm
import hbtvm.duckdb
import hbtvm.polars
from hbtvm.errors import InputError, InputTypeError, PackageNotFoundError
from tests.docs.pages import ROOT, blocks
from tests.engines.cases import Case


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("sql"))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Numbers and categories, both with missing values."""
    rng = np.random.default_rng(1)
    n = 3000
    amount = rng.normal(size=n)
    amount[::7] = np.nan
    kind = pd.Categorical(rng.choice(["a", "b", "c"], n))
    kind[::11] = None
    return pd.DataFrame({"amount": amount, "kind": kind, "count": rng.integers(0, 50, n)})


@pytest.fixture(scope="module")
def booster(frame: pd.DataFrame) -> LGBMRegressor:
    y = frame["count"] + 10 * (frame["kind"] == "b") + frame["amount"].isna()
    return LGBMRegressor(n_estimators=5, num_leaves=7, verbose=-1, n_jobs=1).fit(frame, y)


@pytest.fixture(scope="module")
def trees(booster: LGBMRegressor) -> hbtvm.Model:
    return hbtvm.compile(booster, batch_sizes=(100,), threads=1)


@pytest.fixture
def connection(case: Case, frame: pd.DataFrame) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.register("frame", case.rows)
        connection.execute("CREATE TABLE people AS FROM frame")
        connection.execute("CREATE TYPE kind AS ENUM ('c', 'b', 'a')")
        connection.register("frame", frame.assign(place=range(len(frame)), kind=frame["kind"].astype(object)))
        connection.execute(
            "CREATE TABLE facts AS SELECT place, if(isnan(amount), NULL, amount) AS amount, "
            "kind::kind AS kind, count::DECIMAL(9, 2) AS count FROM frame"
        )
        yield connection


def test_the_page(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.symlink(case.data, tmp_path / "sales")
    os.symlink(case.package, tmp_path / "model.tar")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("docs/howto/sql.md"):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, "sql.md", "exec"), names)
    yes = case.expected[:, 1]
    np.testing.assert_allclose([row[1] for row in names["top"]], np.sort(yes)[:-11:-1], rtol=1e-6)
    mean = dict(names["mean"].iter_rows())
    assert mean == pytest.approx(case.rows.assign(yes=yes).groupby("city")["yes"].mean().to_dict())


def test_forms_of_calls(case: Case, connection: duckdb.DuckDBPyConnection) -> None:
    hbtvm.duckdb.register(connection, "churn", str(case.package))
    expected = case.model.predict(case.rows).tolist()
    for call in ("churn(people)", "churn({'city': city, 'age': age})", "churn(age, city)", "CHURN(people)"):
        assert [row[0] for row in connection.sql(f"SELECT {call} FROM people").fetchall()] == expected, call
    assert connection.cursor().sql("SELECT churn(people) FROM people").fetchall()[0] == (expected[0],)
    assert connection.sql("SELECT churn(people) FROM people WHERE id < 0").fetchall() == []
    one = "SELECT churn(CASE WHEN id = 2 THEN {'age': age, 'city': city} END) FROM people ORDER BY id LIMIT 4"
    assert connection.sql(one).fetchall() == [(None,), (None,), (expected[2],), (None,)]


def test_replace_and_unregister(case: Case, connection: duckdb.DuckDBPyConnection) -> None:
    hbtvm.duckdb.register(connection, "churn", case.package)
    hbtvm.duckdb.register(connection, "churn", case.package.read_bytes(), output="proba")
    answer = connection.sql("SELECT unnest(churn(people)) FROM people")
    assert (answer.columns, list(map(str, answer.types))) == (["no", "yes"], ["DOUBLE", "DOUBLE"])
    np.testing.assert_allclose(answer.df().to_numpy(), case.expected, rtol=1e-6)
    with pytest.raises(InputError, match="already a function 'churn', which this connection did not"):
        hbtvm.duckdb.register(connection.cursor(), "churn", case.package)
    hbtvm.duckdb.unregister(connection, "churn")
    with pytest.raises(duckdb.CatalogException, match="churn does not exist"):
        connection.sql("SELECT churn(people) FROM people")
    with pytest.raises(InputError, match="this connection registered no function 'churn'"):
        hbtvm.duckdb.unregister(connection, "churn")


def test_contributions(case: Case, trees: hbtvm.Model, connection: duckdb.DuckDBPyConnection) -> None:
    hbtvm.duckdb.register(connection, "why", case.package, output="contributions")
    query = "SELECT id, unnest(why(people)) FROM people"
    case.check_contributions(connection.sql(query).df())
    with pytest.raises(InputError, match="has no contributions"):
        hbtvm.duckdb.register(connection, "why", trees, output="contributions")


def test_what_cannot_be_registered(case: Case, connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(InputError, match="already a function 'lower'"):
        hbtvm.duckdb.register(connection, "lower", case.package)
    with pytest.raises(InputTypeError, match="name is 3; expected the function's name"):
        hbtvm.duckdb.register(connection, 3, case.package)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="there is no output 'score'; there are label, proba"):
        hbtvm.duckdb.register(connection, "churn", case.package, output="score")
    with pytest.raises(PackageNotFoundError, match=r"none\.tar"):
        hbtvm.duckdb.register(connection, "churn", "none.tar")
    assert connection.execute("SELECT lower('A')").fetchone() == ("a",)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("churn({'age': age})", "churn: column 'city' of the model is missing; there are 'age'."),
        (
            "churn(id, age, city)",
            "churn: got 3 columns; expected a row, as in SELECT churn(t) FROM t, or the",
        ),
        ("churn({'age': DATE '2020-01-01', 'city': city})", "churn: column 'age': expected numbers or categ"),
        ("churn({'age': age, 'city': 'Mars'})", "column 'city': 'Mars' was not in the training data"),
        ("churn({'age': NULL, 'city': city})", "churn: column 'age', row 0: got NaN, but the model takes no"),
    ],
)
def test_what_does_not_fit(call: str, says: str, case: Case, connection: duckdb.DuckDBPyConnection) -> None:
    hbtvm.duckdb.register(connection, "churn", case.package)
    with pytest.raises(duckdb.InvalidInputException) as caught:
        connection.sql(f"SELECT {call} FROM people").fetchall()
    assert f"InputError: {says}" in str(caught.value) or says in str(caught.value)


def test_missing_values_and_threads_of_duckdb(
    booster: LGBMRegressor,
    trees: hbtvm.Model,
    frame: pd.DataFrame,
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Enums in another order than training's, decimals, NULLs, and more rows than one call takes."""
    hbtvm.duckdb.register(connection, "price", trees)
    connection.execute("SET threads = 4")
    expected = booster.predict(frame)
    found = connection.sql("SELECT price(amount, kind, count) FROM facts ORDER BY place").fetchnumpy()
    np.testing.assert_allclose(next(iter(found.values())), expected, rtol=1e-6)
    mean = connection.execute("SELECT avg(price(facts)) FROM facts, range(50)").fetchone()
    assert mean == pytest.approx((expected.mean(),))


def test_queries_from_several_threads(case: Case, connection: duckdb.DuckDBPyConnection) -> None:
    hbtvm.duckdb.register(connection, "chance", case.package, "proba")
    found: list[Any] = [None] * 4

    def query(at: int) -> None:
        with connection.cursor() as cursor:
            found[at] = cursor.execute("SELECT avg(chance(age, city).yes) FROM people").fetchone()

    threads = [threading.Thread(target=query, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [pytest.approx((case.expected[:, 1].mean(),))] * 4


def test_a_column_of_texts(connection: duckdb.DuckDBPyConnection) -> None:
    texts = ["good fun", "bad", "fun", "bad bad film"] * 10
    words = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, ["+", "-", "+", "-"] * 10)
    model = hbtvm.compile(words, batch_sizes=(10,), threads=1)
    connection.register("reviews", pd.DataFrame({"text": texts}))
    hbtvm.duckdb.register(connection, "tone", model)
    expected = [(label,) for label in words.predict(texts)]
    assert connection.sql("SELECT tone(text) FROM reviews").fetchall() == expected
    column = pl.DataFrame({"text": texts}).select(hbtvm.polars.predict(pl.struct("text"), model))
    assert column.rows() == expected


def test_polars_expressions(case: Case) -> None:
    """The same in eager, lazy and streaming queries, in groups and filters; the schema knows the type."""
    rows = pl.from_pandas(case.rows)
    label = hbtvm.polars.predict(pl.struct(pl.all()), case.package)
    chance = hbtvm.polars.predict(pl.struct("city", "age"), case.package.read_bytes(), output="proba")
    kinds = {"no": pl.Float64, "yes": pl.Float64}
    assert rows.lazy().select(label, chance).collect_schema() == {
        "label": pl.String,
        "proba": pl.Struct(kinds),
    }
    assert rows.select(label)["label"].to_list() == case.model.predict(case.rows).tolist()
    np.testing.assert_allclose(rows.select(chance.struct.unnest()).to_numpy(), case.expected, rtol=1e-6)
    yes = chance.struct.field("yes")
    expected = case.rows.assign(yes=case.expected[:, 1]).groupby("city")["yes"].mean().to_dict()
    for engine in ("in-memory", "streaming"):
        groups = rows.lazy().group_by("city").agg(yes.mean()).collect(engine=engine)  # type: ignore[call-overload]
        assert dict(groups.iter_rows()) == pytest.approx(expected)
        sure = rows.lazy().filter(yes > 0.5).select("id").collect(engine=engine)  # type: ignore[call-overload]
        assert sorted(sure["id"]) == np.flatnonzero(case.expected[:, 1] > 0.5).tolist()
        none = rows.lazy().filter(pl.col("id") < 0).select(label, chance).collect(engine=engine)  # type: ignore[call-overload]
        assert none.shape == (0, 2)
    over = rows.select(yes.mean().over("city"))["yes"].to_numpy()
    np.testing.assert_allclose(over, case.rows["city"].map(expected), rtol=1e-6)


def test_missing_values_in_polars(booster: LGBMRegressor, trees: hbtvm.Model, frame: pd.DataFrame) -> None:
    rows = pl.from_pandas(frame).with_columns(pl.col("amount").fill_nan(None), pl.col("count").cast(pl.Int16))
    price = hbtvm.polars.predict(pl.struct(pl.all()), trees)
    expected = booster.predict(frame)
    np.testing.assert_allclose(rows.select(price)["prediction"], expected, rtol=1e-6)
    some = hbtvm.polars.predict(pl.when(pl.col("count") > 20).then(pl.struct(pl.all())), trees)
    found = rows.select(some)["prediction"]
    assert found.is_null().to_list() == (frame["count"] <= 20).to_list()
    np.testing.assert_allclose(found.drop_nulls(), expected[frame["count"] > 20], rtol=1e-6)
    assert (
        rows.head(2)
        .select(hbtvm.polars.predict(pl.lit(None, rows.select(pl.struct(pl.all())).dtypes[0]), trees))
        .item()
        is None
    )


def test_what_does_not_fit_in_polars(case: Case) -> None:
    rows = pl.from_pandas(case.rows)
    with pytest.raises(InputError, match="column 'city' of the model is missing; there are 'age'"):
        rows.select(hbtvm.polars.predict(pl.struct("age"), case.package))
    with pytest.raises(InputError, match="got a column of Float64; expected structs"):
        rows.lazy().select(hbtvm.polars.predict(pl.col("age"), case.package)).collect()
    with pytest.raises(InputTypeError, match="rows is str; expected an expression"):
        hbtvm.polars.predict("age", case.package)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="there is no output 'score'"):
        hbtvm.polars.predict(pl.struct("age"), case.package, "score")


@pytest.mark.parametrize("name", ["duckdb", "polars"])
def test_what_is_not_installed(name: str) -> None:
    code = (
        f"import sys; sys.modules[{name!r}] = None\n"
        f"try: import hbtvm.{name}\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    says = f"hbtvm.{name} needs {name}, which is not installed: pip install 'hbtvm[{name}]'\n"
    assert done.stdout == says
