"""Category columns of data frames, as LightGBM itself finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from hbtvm import codec
from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.data_in import Data
from hbtvm.errors import InputError
from hbtvm.frontends.lightgbm.categories import category_columns
from hbtvm.frontends.lightgbm.model import from_text
from hbtvm.graph.graph import Graph, InputSpec
from tests.by_reference import predict

N = 400
PARAMETERS = {
    "verbose": -1, "num_leaves": 25, "min_data_in_leaf": 5, "num_threads": 1, "seed": 1,
    "min_data_per_group": 5, "cat_smooth": 1.0, "cat_l2": 0.0,
}  # fmt: skip


def category(values: Any, ordered: bool = False, missing: bool = True, seed: int = 0) -> pd.Categorical:
    """A column of categories; their order is not that of their values."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, len(values), N)
    if missing:
        codes[rng.random(N) < 0.1] = -1
    return pd.Categorical.from_codes(codes, values, ordered=ordered)


def frame(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    return pd.DataFrame({name: rng.normal(size=N) if c is None else c for name, c in columns.items()})


def target(X: pd.DataFrame) -> np.ndarray:
    """Something that depends on every column."""
    y = np.zeros(N)
    for i, name in enumerate(X):
        column = X[name].cat.codes if isinstance(X[name].dtype, pd.CategoricalDtype) else X[name]
        y += np.cos(np.asarray(column, float) * 1.3 + i) * 2
    return y


def train(X: pd.DataFrame, categorical_feature: Any = "auto") -> tuple[lgb.Booster, Graph]:
    data = lgb.Dataset(X, target(X), categorical_feature=categorical_feature)
    booster = lgb.train(PARAMETERS, data, 15)
    assert {*range(X.shape[1])} == {*np.flatnonzero(booster.feature_importance())}
    return booster, from_text(booster.model_to_string())


FRAMES = {
    "strings": frame(a=None, s=category(["z", "b", "c"]), b=None),
    "numbers": frame(a=None, s=category([30, 10, 20, 5])),
    "fractions": frame(a=None, s=category([0.5, -1.25, 20.0, 5.0])),
    "truths": frame(a=None, s=category([True, False]), b=None),
    "mixed": frame(a=None, s=category(["z", 7, True, 2.5])),
    "ordered first": frame(o=category(["z", "b", "c"], True), a=None, s=category(["x", "z", "b"], seed=1)),
    "ordered last": frame(s=category([9, 3, 5]), a=None, o=category([3, 9, 5, 1], True, seed=1)),
    "ordered alone": frame(a=None, o=category([3, 9, 5, 1], True)),
    "with whole numbers": frame(
        s=category(["z", "b", "c"]), i=np.arange(N) % 2, o=category([30, 10, 20], True, seed=1), a=None
    ),
    "no missing values": frame(s=category(["z", "b"], missing=False), t=np.arange(N) % 5 == 0, a=None),
}
GIVEN: dict[str, list[str]] = {"ordered last": ["o", "s"], "with whole numbers": ["i"], "truths": []}
"""What a user says are categorical features, in place of the category columns that are not ordered."""


def variants(X: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The frame as users come with it when they predict."""
    kinds = [name for name in X if isinstance(X[name].dtype, pd.CategoricalDtype)]
    known = {name: list(X[name].cat.categories) for name in kinds}
    return {
        "the same": X,
        "one row": X[:1],
        "all missing": X.assign(**{name: X[name].cat.set_categories([]) for name in kinds}),
        "other order of categories": X.assign(
            **{name: X[name].cat.set_categories(known[name][::-1]) for name in kinds}
        ),
        "only those that occur": X[3:6].assign(
            **{name: X[name][3:6].cat.remove_unused_categories() for name in kinds}
        ),
        "unknown ones": X.assign(
            **{name: X[name].cat.set_categories(["?", *known[name][1:]]).fillna("?") for name in kinds}
        ),
        "ordered": X.assign(**{name: X[name].cat.as_ordered() for name in kinds}),
        "unordered": X.assign(**{name: X[name].cat.as_unordered() for name in kinds}),
    }


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.filterwarnings("ignore")
def test_frames_are_read_as_lightgbm_does(name: str, manual: bool) -> None:
    X = FRAMES[name]
    given = GIVEN.get(name, ["s" if "s" in X else "o"])
    booster, graph = train(X, given if manual else "auto")
    for what, rows in variants(X).items():
        want = booster.predict(rows)
        np.testing.assert_allclose(predict(graph, rows), want, rtol=1e-12, err_msg=what)
    # In a plain array, codes stand for categories.
    kinds = [c for c in X if isinstance(X[c].dtype, pd.CategoricalDtype)]
    codes = X.assign(**{c: X[c].cat.codes.replace(-1, np.nan) for c in kinds}).to_numpy(float)
    np.testing.assert_allclose(predict(graph, codes), booster.predict(codes), rtol=1e-12)
    assert codec.read(InputSpec, codec.write(graph.input)) == graph.input


@pytest.mark.parametrize("name", FRAMES)
def test_what_lightgbm_refuses_is_refused(name: str) -> None:
    X = FRAMES[name]
    booster, graph = train(X)
    kind = next(c for c in X if isinstance(X[c].dtype, pd.CategoricalDtype))
    numbers = X.assign(**{kind: X[kind].cat.codes.astype(float)})
    more = X.assign(a=pd.Categorical(["x"] * N))
    for rows in (numbers, more):
        with pytest.raises(ValueError, match="do not match"):
            booster.predict(rows)
        with pytest.raises(InputError, match="categor"):
            predict(graph, rows)


def ambiguous() -> tuple[lgb.Booster, Graph, pd.DataFrame]:
    """Which of `i`, `s` and `o` hold the two lists of categories, the text alone does not say."""
    X = FRAMES["with whole numbers"]
    booster, graph = train(X)
    assert graph.input.category_order
    return booster, graph, X


def test_columns_elsewhere_are_refused() -> None:
    _, graph, X = ambiguous()
    swapped = X.assign(a=X["o"], o=X["a"])
    with pytest.raises(InputError, match=r"column 3 \('a'\) was not a category column in training"):
        predict(graph, swapped)


def as_strings(X: pd.DataFrame) -> pd.DataFrame:
    return X.assign(s=X["s"].astype(object).where(X["s"].notna(), None))


def test_text_tells_where_categories_are() -> None:
    booster, graph, X = ambiguous()
    want = booster.predict(X)
    # The words in `s`, with the categories of `o` by their type, leave nothing open.
    np.testing.assert_allclose(predict(graph, as_strings(X)), want, rtol=1e-12)
    # Without them `i` or `o` may be the other: nothing is guessed.
    numbers = as_strings(X).assign(o=X["o"].astype(float))
    for rows in (numbers, numbers.to_numpy(object)):
        with pytest.raises(InputError, match="columns 'i', 'o': the model file does not say which"):
            predict(graph, rows)


def test_other_libraries_frames_are_read_by_the_same_rule() -> None:
    booster, graph, X = ambiguous()
    want = booster.predict(X)
    table = pa.Table.from_pandas(X)
    assert pa.types.is_dictionary(table["o"].type)
    np.testing.assert_allclose(predict(graph, table), want, rtol=1e-12)
    Y = frame(s=category(["z", "b", "c"]), i=np.arange(N) % 2, o=category(["v", "x"], True, seed=1))
    booster, graph = train(Y)
    assert graph.input.category_order
    frames = pl.from_pandas(Y)
    assert isinstance(frames["s"].dtype, pl.Categorical | pl.Enum)
    np.testing.assert_allclose(predict(graph, frames), booster.predict(Y), rtol=1e-12)
    missing = frames.with_columns(s=pl.lit(None).cast(pl.Categorical))
    want = booster.predict(Y.assign(s=Y["s"].cat.set_categories([])))
    np.testing.assert_allclose(predict(graph, missing), want, rtol=1e-12)
    strings = frames.with_columns(pl.col("s", "o").cast(pl.String))
    np.testing.assert_allclose(predict(graph, strings), booster.predict(Y), rtol=1e-12)


def blocks(path: Path, X: pd.DataFrame, graph: Graph) -> np.ndarray:
    X.to_csv(path, index=False)
    with Data(path, graph.input, header="yes") as data:
        return np.concatenate([predict(graph, block) for block in data.blocks()])


def test_csv_is_read_by_its_words_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    booster, graph, X = ambiguous()
    with pytest.raises(UsageError, match=r"rows.csv: columns 'i', 'o': the model file does not say which"):
        blocks(path, X, graph)
    # Two lists of words, two columns of words.
    Y = frame(s=category(["z", "b", "c"]), i=np.arange(N) % 2, o=category(["v", "x"], True, seed=1))
    booster, graph = train(Y)
    assert graph.input.category_order
    np.testing.assert_allclose(blocks(path, Y, graph), booster.predict(Y), rtol=1e-12)
    # Nothing but these columns could have held categories.
    for name in ("strings", "numbers", "ordered last"):
        Y = FRAMES[name]
        booster, graph = train(Y)
        assert not graph.input.category_order
        np.testing.assert_allclose(blocks(path, Y, graph), booster.predict(Y), rtol=1e-12)


def test_columns_that_no_tree_reads_may_hold_anything(tmp_path: Path) -> None:
    # `c` and `d` never vary: LightGBM keeps nothing of them that would tell which one held "only".
    X = frame(c=category(["only"], missing=False), d=np.ones(N), a=None, s=category(["z", "b", "c"]))
    booster = lgb.train(PARAMETERS, lgb.Dataset(X, target(X)), 5)
    graph = from_text(booster.model_to_string())
    want = booster.predict(X)
    np.testing.assert_allclose(predict(graph, X), want, rtol=1e-12)
    for rows in (X, X.assign(c=1), X.assign(c=np.nan)):
        np.testing.assert_allclose(blocks(tmp_path / "rows.csv", rows, graph), want, rtol=1e-12)
    only = lgb.train(PARAMETERS, lgb.Dataset(X[["c", "d", "a"]], target(X)), 5)
    graph, want = from_text(only.model_to_string()), only.predict(X[["c", "d", "a"]])
    assert graph.input.categories == {0: (), 1: ()}
    assert not graph.input.category_order
    for rows in (X, X.assign(c=1), X.assign(c="d", d="c")):
        rows = rows[["c", "d", "a"]]
        np.testing.assert_allclose(predict(graph, rows), want, rtol=1e-12)
        np.testing.assert_allclose(blocks(tmp_path / "rows.csv", rows, graph), want, rtol=1e-12)


def test_contradictory_texts_leave_the_order() -> None:
    # Neither column can have held three categories, so that nothing is known but their number.
    known, order = category_columns([["a", "b", "c"]], ["[0:7]", "[-1.5:2]"], 2, [0, 1])
    assert known == {} and [one.columns for one in order] == [(0, 1)]


@pytest.mark.parametrize(
    ("lists", "infos", "where"),
    [
        ([3, 2], ["0:1:2", "[-2:5]", "[0:1]"], {0: 3, 2: 2}),
        ([3, 2], ["0:1:2", "[0:1]", "[0:1]"], {}),
        ([2, 3], ["[0:1]", "0:2", "[0:2]"], {0: 2}),
        ([2, 3], ["[0:1]", "[0:1.5]", "-1:2"], {0: 2, 2: 3}),
        ([2, 2], ["[0:1]", "[0:1]", "none"], {}),
    ],
)
def test_what_the_text_leaves_possible(lists: list[int], infos: list[str], where: dict[int, int]) -> None:
    known, order = category_columns([[*range(n)] for n in lists], infos, 3, [0, 1, 2])
    assert {column: len(values) for column, values in known.items()} == where
    assert bool(order) == (len(where) < len(lists))
