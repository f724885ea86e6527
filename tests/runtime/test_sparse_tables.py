"""Tables of sparse rows: the library's matrices to the bit, whatever rows come as."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

import hbtvm
from hbtvm.errors import InputError
from hbtvm.runtime.model import Model
from hbtvm.runtime.transforms import csr_rows


def same(found: Any, expected: Any) -> None:
    """Compare the matrices' types, and their arrays to the bit."""
    assert type(found) is type(expected)
    assert found.shape == expected.shape
    found.check_format(full_check=True)
    assert found.has_canonical_format
    expected.sort_indices()
    for name in ("data", "indices", "indptr"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other)


def compiled(fitted: Any) -> Model:
    return hbtvm.compile(fitted, threads=1)


POOLS: dict[str, list[Any]] = {
    "strings": ["b", "a", "zz", "é", "", "A", "new"],
    "strings and nan": ["b", "a", "zz", np.nan, "q", "A", "new"],
    "strings, none and nan": ["b", "a", None, np.nan, "q", "A", "new"],
    "ints": [3, 1, 2, 7, -4, 9, 11],
    "floats": [0.5, 1.5, 0.1, 7.25, np.nan, -2.0, 99.0],
    "bools": [True, False, True, False, True, True, False],
}


def frame_of(seed: int, rows: int, more: bool = False) -> pd.DataFrame:
    """Columns of all kinds; with `more`, some values that training does not have."""
    rng = np.random.default_rng(seed)
    weights = np.array([30, 20, 10, 3, 2, 1, 1.0])[: 6 + more]
    columns = {}
    for kind, pool in POOLS.items():
        values = np.empty(rows, object)
        values[:] = [pool[i] for i in rng.choice(6 + more, rows, p=weights / weights.sum())]
        own = {"ints": np.int64, "floats": np.float64, "bools": bool}.get(kind, object)
        columns[kind] = pd.Series(values.astype(own), dtype=own)
    return pd.DataFrame(columns)


@pytest.mark.parametrize("rare", [{}, {"max_categories": 3}, {"min_frequency": 0.1}])
@pytest.mark.parametrize("handling", ["error", "ignore", "infrequent_if_exist"])
@pytest.mark.parametrize("drop", [None, "first", "if_binary"])
def test_one_hot(drop: Any, handling: str, rare: dict[str, Any]) -> None:
    encoder = OneHotEncoder(drop=drop, handle_unknown=handling, **rare).fit(frame_of(0, 700))
    model = compiled(encoder)
    more = handling != "error"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Many rows, few, and one; what is there many times and what is not.
        for rows in (1_500, 30, 1):
            for seed in range(1, 2 if rows > 100 else 6):
                frame = frame_of(seed, rows, more)
                expected = encoder.transform(frame)
                same(model.transform(frame), expected)
        same(model.transform(frame.to_dict("records")[0]), expected)
    if not more:
        with pytest.raises(InputError, match="new"):
            model.transform(frame_of(1, 700, more=True))
    for empty in (frame.iloc[:0], np.empty((0, len(POOLS)))):
        with pytest.raises(InputError, match="row"):
            model.transform(empty)


@pytest.mark.parametrize("drop", [None, "first"])
def test_objects_in_arrays(drop: Any) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["one", "two", "three", "four", None, np.nan], object)
    X = words[rng.integers(0, 6, (2_000, 3))]
    encoder = OneHotEncoder(drop=drop, handle_unknown="ignore").fit(X)
    model = compiled(encoder)
    new = X.copy()
    new[rng.random(new.shape) < 0.1] = "five"
    copies = np.array(
        [[str(one) + "" if isinstance(one, str) else one for one in row] for row in new], object
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in (X, new, copies, np.asfortranarray(new), new[::-1], new[:1], X[5:6], new[:70].copy()):
            same(model.transform(rows), encoder.transform(rows))
        fixed = np.array([["one", "five", "four"]] * 3)
        same(model.transform(fixed), encoder.transform(fixed))
        same(model.transform(fixed[:1].tolist()), encoder.transform(fixed[:1]))
    text = np.where([[one is None or one != one for one in row] for row in X], "four", X)
    table = pa.table({str(i): pa.array(one) for i, one in enumerate(text.T)})
    same(model.transform(table), encoder.transform(text))
    same(model.transform(table.slice(3, 1)), encoder.transform(text[3:4]))


INTEGERS = {
    "dense": [0, 1, 2, 3, 4],
    "below zero": [-3, -2, -1],
    "holes": [1, 5, 9, 200],
    "far": [(1 << 40) + i for i in range(5)],
    "apart": [-(1 << 35), 0, 1 << 35],
    "narrow": [(1 << 31) - 2, (1 << 31) - 1],
}


@pytest.mark.parametrize("handling", ["ignore", "error"])
@pytest.mark.parametrize("kind", [*INTEGERS, "all"])
def test_arrays_of_integers(kind: str, handling: str) -> None:
    rng = np.random.default_rng(0)
    pools = [INTEGERS[kind]] * 2 if kind != "all" else [INTEGERS["dense"], INTEGERS["holes"]]
    X = np.stack([rng.choice(pool, 300) for pool in pools], axis=1)
    encoder = OneHotEncoder(handle_unknown=handling, drop="first" if kind == "holes" else None).fit(X)
    model = compiled(encoder)
    more = np.concatenate([X, [[3, 4], [-1, 1 << 33], [7, -(1 << 33)], [1 << 32, (1 << 32) + 1]]])
    odd = more.astype(np.float64)
    odd[:20:3, 0], odd[1:20:3, 1], odd[2:20:3, 1] = np.nan, 0.5, np.inf
    odd[30, 0], odd[31, 1] = -np.inf, 1e38
    # (scikit-learn refuses infinities; they are no categories here.)
    finite = np.where(np.isinf(odd), 1e37, odd)
    if handling == "error":
        more = X
        with pytest.raises(InputError, match="row 0"):
            model.transform(odd)
    kinds = (np.int8, np.int16, np.int32, np.uint32)
    small = [one for one in kinds if np.iinfo(one).min <= X.min() <= X.max() <= np.iinfo(one).max]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (np.int64, np.float64, np.float32, *small):
            rows = more.astype(dtype)
            if handling == "error" and not np.array_equal(rows, more):
                continue
            for given in (rows, np.asfortranarray(rows), rows[:1], rows[-1:], rows[::2]):
                same(model.transform(given), encoder.transform(given))
        if handling == "ignore":
            same(model.transform(odd), encoder.transform(finite))
            narrow = finite.astype(np.float32)
            same(model.transform(odd.astype(np.float32)[3:]), encoder.transform(narrow[3:]))
        if kind == "dense" and handling == "ignore":
            # (It fails where training had neither.)
            flags = more > 1
            same(model.transform(flags), encoder.transform(flags))
    with pytest.raises(InputError, match="columns"):
        model.transform(X[:, :1])


def test_missing_numbers_are_a_category() -> None:
    X = np.random.default_rng(0).choice([1.0, 2.0, 3.0, np.nan], (400, 3))
    for dtype in (np.float64, np.float32):
        encoder = OneHotEncoder(dtype=dtype).fit(X)
        model = compiled(encoder)
        for rows in (X, X.astype(np.float32), X[:1], X[3:4], np.full((2, 3), np.nan)):
            same(model.transform(rows), encoder.transform(rows))
        with pytest.raises(InputError, match="row 1"):
            model.transform([[1, 2, 3], [1, 2, 4]])


def mixed(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    frame = pd.DataFrame(rng.normal(size=(rows, 3)).round(1), columns=list("abc"))
    frame.loc[rng.random(rows) < 0.2, "a"] = np.nan
    frame.loc[rng.random(rows) < 0.5, "c"] = 0.0
    frame["d"] = rng.choice(["x", "y", "z"], rows)
    frame["e"] = rng.integers(0, 9, rows)
    frame["f"] = rng.choice(["red fox", "blue sea", "fox"], rows)
    return frame


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numbers_beside_categories(dtype: str, text: bool) -> None:
    rng = np.random.default_rng(0)
    frame = mixed(rng, 400).astype(dict.fromkeys("abc", dtype))
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler(with_mean=False))
    parts: list[tuple[str, Any, Any]] = [
        ("n", numbers, ["a", "b"]),
        ("o", OneHotEncoder(handle_unknown="ignore", drop="if_binary"), ["d", "e"]),
        ("p", "passthrough", ["c"]),
        ("q", OneHotEncoder(max_categories=3), ["e"]),
    ]
    if text:
        parts.insert(2, ("t", CountVectorizer(), "f"))
    fitted = ColumnTransformer(parts, sparse_threshold=1.0, transformer_weights={"o": 0.5}).fit(frame)
    model = compiled(fitted)
    for rows in (
        frame,
        mixed(rng, 50).astype(dict.fromkeys("abc", dtype)),
        frame.iloc[:1],
        frame.iloc[7:8],
    ):
        found, expected = model.transform(rows), fitted.transform(rows)
        assert found.dtype == expected.dtype
        found.check_format(full_check=True)
        assert (found.indptr == expected.indptr).all()
        np.testing.assert_array_equal(found.toarray(), expected.toarray())
    one = frame.iloc[:1]
    if dtype == "float64":
        found = model.transform(one.to_dict("records")[0])
        np.testing.assert_array_equal(found.toarray(), fitted.transform(one).toarray())
    with pytest.raises(InputError, match=r"infinity|large"):
        model.transform(frame.replace({"b": {frame["b"][0]: np.inf}}))


def test_bins() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3)) * 3
    bins = KBinsDiscretizer(4, quantile_method="linear")
    beside = FeatureUnion([("b", bins), ("p", MinMaxScaler())])
    again = make_pipeline(KBinsDiscretizer(4, encode="ordinal", quantile_method="linear"), OneHotEncoder())
    for fitted in (bins.fit(X), again.fit(X), beside.fit(X)):
        model = compiled(fitted)
        for rows in (X, X.astype(np.float32), X[:1], X[2:3].astype(np.float32), X.round().astype(np.int16)):
            same(model.transform(rows), fitted.transform(rows))
        for value, message in ((np.nan, "(?i)nan"), (np.inf, "infinity")):
            bad = X.copy()
            bad[3, 1] = value
            with pytest.raises(InputError, match=message):
                model.transform(bad)


@pytest.mark.parametrize("categories", [list("abc"), [1, 2, 3]])
def test_encoders_behind_encoders(categories: list[Any]) -> None:
    rng = np.random.default_rng(0)
    X = rng.choice(np.array(categories, object if isinstance(categories[0], str) else int), (80, 2))
    twice = make_pipeline(OrdinalEncoder(), OneHotEncoder(drop="first", handle_unknown="ignore")).fit(X)
    weighted = FeatureUnion(
        [("a", OneHotEncoder()), ("b", OrdinalEncoder()), ("c", OneHotEncoder(dtype=np.float32))],
        transformer_weights={"a": 0.1, "b": 2, "c": 3},
    ).fit(X)
    for fitted in (twice, weighted):
        model = compiled(fitted)
        for rows in (X, X[:1]):
            same(model.transform(rows), fitted.transform(rows))


def test_without_the_attributes_of_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).integers(0, 4, (50, 3))
    encoder = OneHotEncoder(handle_unknown="ignore").fit(X)
    quick = compiled(encoder)
    same(quick.transform(X), encoder.transform(X))
    monkeypatch.setattr(csr_rows, "_works", lambda rows: False)
    model = compiled(encoder)
    for rows in (X, X[:1], X + 1):
        same(model.transform(rows), encoder.transform(rows))


def test_results_are_the_callers() -> None:
    X = np.random.default_rng(0).integers(0, 4, (50, 3))
    model = compiled(OneHotEncoder().fit(X))
    for rows in (X, X[:1]):
        first = model.transform(rows)
        kept = first.copy()
        first.data *= 7
        first.indices[:] = 0
        first.indptr[:] = 0
        same(model.transform(rows), kept)
    assert sparse.vstack([kept, model.transform(X)]).shape == (51, 12)
