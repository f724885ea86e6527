"""Pipelines that transform, in kernels: the library's numbers in its types, whatever rows come as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    LabelEncoder,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    StandardScaler,
)

import hbtvm
from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.columns_anchor import Columns
from hbtvm.graph.networks.network import Network
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import from_bytes, to_bytes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 4)) * [1, 10, 0.1, 3] + [0, 5, 1, 1e3]


def compiled(model: Any) -> Model:
    assert isinstance(from_object(model).anchor, Network)
    made = hbtvm.compile(model, batch_sizes=64, threads=1)
    # As it is read from a file.
    return Model(from_bytes(to_bytes(made.package)))


def test_scalers_round_as_the_library_in_both_types() -> None:
    fitted = make_pipeline(StandardScaler(), MinMaxScaler((-1, 2))).fit(X)
    model = compiled(fitted)
    for rows in (X, X.astype(np.float32), X[:1].astype(np.float32), X[:1].astype(np.int16)):
        expected = fitted.transform(rows)
        found = model.transform(rows)
        assert found.dtype == expected.dtype
        if rows.dtype == np.float32:
            np.testing.assert_array_equal(found, expected)
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)
    with pytest.raises(InputError, match="does not predict"):
        model.predict(X)
    with pytest.raises(InputError, match="infinity"):
        model.transform(np.full((1, 4), np.inf))
    assert np.isnan(model.transform(np.full((1, 4), np.nan))).all()


def test_columns_of_many_kinds() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["e"] = np.array(["x", "y", "z"])[np.arange(len(X)) % 3]
    frame.loc[::5, "a"] = np.nan
    bins = KBinsDiscretizer(4, encode="onehot-dense", strategy="uniform")
    numbers = make_pipeline(
        SimpleImputer(add_indicator=True), StandardScaler(), PolynomialFeatures(2), PCA(3)
    )
    both = ColumnTransformer(
        [
            ("n", numbers, ["a", "b"]),
            ("b", bins, ["c"]),
            ("q", QuantileTransformer(n_quantiles=9, output_distribution="normal"), ["d"]),
            ("o", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["e"]),
        ]
    ).fit(frame)
    model = compiled(both)
    shuffled = frame[list("edcba")]
    expected = both.transform(frame)
    for rows in (frame, shuffled):
        np.testing.assert_allclose(model.transform(rows), expected, rtol=1e-10, atol=1e-10)
    one = frame.iloc[:1]
    np.testing.assert_allclose(
        model.transform(one.to_dict("records")[0]), expected[:1], rtol=1e-9, atol=1e-10
    )


def test_variances_let_everything_pass() -> None:
    rows = np.column_stack([X, np.ones(len(X))])
    selector = VarianceThreshold(0.5).fit(rows)
    model = compiled(selector)
    odd = rows.copy()
    odd[0, :3], odd[1, 3], odd[2, 0], odd[4, 0] = [np.nan, np.inf, -np.inf], np.nan, 1e300, -0.0
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            given = odd.astype(dtype)
        for one in (given, given[:1], np.asfortranarray(given), given[::2]):
            found, expected = model.transform(one), selector.transform(one)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    with pytest.raises(InputError, match="columns"):
        model.transform(X)


@pytest.mark.parametrize("labels", [["no", "yes", "é", ""], [3, -7, 1 << 40], [0.1, 0.5, 2.0]])
def test_one_label(labels: list[Any]) -> None:
    encoder = LabelEncoder().fit(labels)
    model = compiled(encoder)
    kind = np.array(labels).dtype
    types = {"U": [kind, object], "i": [kind, object, np.float64], "f": [kind, object]}[kind.kind]
    for label in labels:
        for dtype in types:
            one = np.array([label], dtype)
            expected = encoder.transform(np.array([label]))
            for given in (one, one[:, None], [label]):
                found = model.transform(given)
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)
    # Labels of numbers are compared exactly.
    bad = {"U": np.array(["x"]), "i": np.array([2]), "f": np.array([0.1], np.float32)}[kind.kind]
    for given in (bad, bad.astype(object), np.array([None]), np.array([[]]), np.array(3)):
        with pytest.raises(InputError):
            model.transform(given)


def test_what_the_host_computes() -> None:
    sparse = OneHotEncoder().fit(X.round())
    texts = SimpleImputer(strategy="most_frequent").fit(pd.DataFrame({"a": ["x", "y", "x"]}))
    frames = StandardScaler().set_output(transform="pandas").fit(pd.DataFrame(X, columns=list("abcd")))
    passed = ColumnTransformer([("s", StandardScaler(), [0])], remainder="passthrough").fit(X)
    for model in (sparse, texts, frames, passed):
        assert isinstance(from_object(model).anchor, Columns)
    assert isinstance(from_object(StandardScaler().fit(X)).host, Columns)


def test_what_neither_computes() -> None:
    model = PCA(2).set_output(transform="pandas").fit(pd.DataFrame(X, columns=list("abcd")))
    with pytest.raises(UnsupportedModel, match="data frame"):
        from_object(model)
