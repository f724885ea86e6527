"""Rows that are dicts, which C reads: beside Python's reader and scikit-learn, over values of all kinds."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import hbtvm
from hbtvm.errors import InputError
from hbtvm.runtime.native import frames

RNG = np.random.default_rng(5)
NUMBERS, TEXTS = ["a", "b", "c"], ["city", "kind"]
N = 60
FRAME = pd.DataFrame(
    {
        **{name: RNG.normal(size=N).round(2) for name in NUMBERS},
        "city": RNG.choice(["Rome", "Oslo", "São Paulo", "北京", ""], N).astype(object),
        "kind": RNG.choice(["x", "y"], N).astype(object),
    }
)
Y = (FRAME["a"] > 0) ^ (FRAME["kind"] == "x")


def one_hot() -> Any:
    texts = OneHotEncoder(handle_unknown="ignore")
    columns = ColumnTransformer(
        [("n", make_pipeline(SimpleImputer(), StandardScaler()), NUMBERS), ("t", texts, TEXTS)]
    )
    return make_pipeline(columns, LogisticRegression()).fit(FRAME, Y)


def ordinal() -> Any:
    """Refuses unknown kinds; a missing city is None, and is filled."""
    city = make_pipeline(
        SimpleImputer(missing_values=None, strategy="most_frequent"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    )
    parts = [("n", "passthrough", NUMBERS), ("t", city, ["city"]), ("k", OrdinalEncoder(), ["kind"])]
    forest = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=2)
    return make_pipeline(ColumnTransformer(parts), forest).fit(FRAME, Y)


def numeric() -> Any:
    return make_pipeline(StandardScaler(), Ridge()).fit(FRAME[NUMBERS], Y)


def bare() -> Any:
    return RandomForestClassifier(5, max_depth=4, random_state=0).fit(FRAME[NUMBERS], Y)


def categories() -> Any:
    """Numbers as categories, equal to bools and integers."""
    rows = pd.DataFrame({"a": RNG.integers(0, 3, N).astype(float), "b": RNG.integers(0, 2, N)})
    encoder = OneHotEncoder(handle_unknown="ignore")
    return make_pipeline(encoder, LogisticRegression()).fit(rows, rows["a"] > 1)


MAKERS = (one_hot, ordinal, numeric, bare, categories)

VALUES: dict[str, list[Any]] = {
    "numbers": [0.5, -1.0, 0, 1, 2, True, False, None, math.nan, 1e300, 2**53 + 1, -(2**62) - 1],
    "odd": [np.float64(0.5), np.int64(1), "0.5", "one", 2**70, -math.inf, [1.0], pd.NA, b"x"],
    "texts": ["Rome", "Oslo", "São Paulo", "北京", "", "x", "y", "x", "y", None, math.nan, 1],
}


def compiled(model: Any) -> hbtvm.Model:
    return hbtvm.compile(model, batch_sizes=20, threads=1)


def row_of(name: str) -> dict[str, Any]:
    return {"a": 1.0, "b": 1} if name == "categories" else FRAME.iloc[0].to_dict()


@pytest.fixture(scope="module")
def models() -> dict[str, hbtvm.Model]:
    """Compiled models that have seen dicts."""
    made = {}
    for make in MAKERS:
        model = made[make.__name__] = compiled(make())
        for _ in range(2):
            model.predict(row_of(make.__name__))
    return made


def by_python(model: hbtvm.Model, rows: Any) -> Any:
    kernels = model._kernels
    assert kernels.host is not None
    return kernels.host.prepared[None](kernels.inputs.prepare(rows))


def drawn(name: str, n: int, odd: bool, rng: np.random.Generator) -> list[dict[str, Any]]:
    def value(column: str) -> Any:
        kind = "odd" if odd and rng.random() < 0.1 else "texts" if column in TEXTS else "numbers"
        return VALUES[kind][rng.integers(len(VALUES[kind]))]

    return [{column: value(column) for column in row_of(name)} for _ in range(n)]


@pytest.mark.parametrize("name", [make.__name__ for make in MAKERS])
@pytest.mark.parametrize("odd", [False, True])
def test_equals_python(models: dict[str, hbtvm.Model], name: str, odd: bool) -> None:
    """C returns what Python's reader leads to, or nothing."""
    model, rng, read = models[name], np.random.default_rng(1), 0
    for i in range(300):
        rows: Any = drawn(name, 1 + i % 3, odd, rng)
        rows = rows[0] if i % 4 == 0 else rows
        result = model._calls[None](rows)
        read += result is not None
        try:
            expected = by_python(model, rows)
        except InputError:
            expected = None
        if result is not None:
            np.testing.assert_array_equal(result, expected, err_msg=str(rows))
            assert expected is not None and result.dtype == expected.dtype
        elif not odd:  # refused values alone are Python's
            assert expected is None, rows
    assert read > 20


@pytest.mark.parametrize("name", ["one_hot", "ordinal", "numeric", "bare"])
def test_equals_sklearn(models: dict[str, hbtvm.Model], name: str) -> None:
    """Rows of JSON, with other keys, in other orders."""
    pipe = globals()[name]()
    rows = FRAME if name in ("one_hot", "ordinal") else FRAME[NUMBERS]
    records = [
        {"id": i, **dict(reversed(record.items())), "more": [1, 2]}
        for i, record in enumerate(rows.to_dict("records"))
    ]
    records = json.loads(json.dumps(records))
    result = models[name]._calls[None](records)
    np.testing.assert_allclose(result, pipe.predict(rows), rtol=1e-6)
    for i in (0, 7):
        np.testing.assert_array_equal(models[name]._calls[None](records[i]), result[i : i + 1])
        np.testing.assert_array_equal(models[name]._calls[None](records[i : i + 1]), result[i : i + 1])


def test_refused(models: dict[str, hbtvm.Model]) -> None:
    """Python reports errors."""
    for rows in ({"a": 1.0}, [{**row_of("one_hot"), "city": "Rome"}, {"a": 2.0}]):
        with pytest.raises(InputError, match="is missing"):
            models["one_hot"].predict(rows)
    with pytest.raises(InputError, match="expected a number, got 'three'"):
        models["one_hot"].predict({**row_of("one_hot"), "a": "three"})
    with pytest.raises(InputError, match="'z'"):
        models["ordinal"].predict([{**row_of("ordinal"), "kind": "z"}])
    with pytest.raises(InputError, match="infinity"):
        models["numeric"].predict({**row_of("numeric"), "b": math.inf})
    for rows in ([row_of("numeric"), [1.0, 2.0, 3.0]], [], [[1.0, 2.0, 3.0]], {1: 2.0}, {}):
        assert models["numeric"]._calls[None](rows) is None
    assert models["numeric"]._calls[None]([row_of("numeric")] * (frames._MOST + 1)) is None
    surrogate = {**row_of("one_hot"), "city": "\ud800"}
    assert models["one_hot"]._calls[None](surrogate) is None
    assert models["one_hot"].predict(surrogate).shape == (1,)


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service of JSON need not load pandas; frames that come later are read too."""
    pipe = one_hot()
    model = compiled(pipe)
    records = FRAME.to_dict("records")[:8]
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "pandas")
        for _ in range(2):
            result = model.predict(records)
        assert model._calls[None](records) is not None
    assert model._calls[None](FRAME[:8]) is None
    for _ in range(2):
        np.testing.assert_array_equal(model.predict(FRAME[:8].astype({"city": "str", "kind": "str"})), result)
    assert model._calls[None](FRAME[:8].astype({"city": "str", "kind": "str"})) is not None
    np.testing.assert_array_equal(model._calls[None](records), result)


def test_gives_up() -> None:
    """A model whose dicts C can't read does not try for ever."""
    model = compiled(numeric())
    rows = {name: np.float32(0.5) for name in NUMBERS}
    for _ in range(20):
        expected = model.predict(rows)
    assert model._kernels.host._frames.reader is None  # type: ignore[union-attr]
    np.testing.assert_array_equal(model.predict(rows), expected)


def test_columns_without_names() -> None:
    model = compiled(make_pipeline(StandardScaler(), Ridge()).fit(FRAME[NUMBERS].to_numpy(), Y))
    for _ in range(2):
        with pytest.raises(InputError, match="trained without column names"):
            model.predict({"a": 1.0})


def test_dicts_are_released(models: dict[str, hbtvm.Model]) -> None:
    """C keeps no reference to values, and drops none."""
    values = [float("0.625"), "".join(["Ro", "me"]), 10**15]
    counts = [sys.getrefcount(value) for value in values]
    row = {**row_of("one_hot"), "a": values[0], "city": values[1], "b": values[2]}
    for _ in range(100):
        assert models["one_hot"]._calls[None]([row, row]) is not None
    del row
    assert [sys.getrefcount(value) for value in values] == counts
