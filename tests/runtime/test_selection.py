"""Selectors by themselves, and transformers that give sparse rows, against scikit-learn."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.feature_selection import (
    RFE,
    GenericUnivariateSelect,
    SelectFromModel,
    SelectKBest,
    SequentialFeatureSelector,
    VarianceThreshold,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    MaxAbsScaler,
    Normalizer,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

import hbtvm
from hbtvm import codec
from hbtvm.errors import InputError, PackageError
from hbtvm.frontends import from_object
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.runtime.package.file import to_bytes
from hbtvm.runtime.transforms.selection import Selection, sparse_rows

RNG = np.random.default_rng(0)
X = np.where(RNG.random((60, 4)) < 0.5, 0.0, np.round(3 * RNG.normal(size=(60, 4))))
Y = (X[:, 0] > 0).astype(int)
ROWS = X[:9]

SELECTORS = {
    "k best": SelectKBest(k=2),
    "variance": VarianceThreshold(0.1),
    "generic": GenericUnivariateSelect(param=50),
    "eliminated": RFE(LogisticRegression(), n_features_to_select=3),
    "sequential": SequentialFeatureSelector(LogisticRegression(), n_features_to_select=2, cv=2),
    "by trees": SelectFromModel(DecisionTreeClassifier(random_state=0)),
    "pipeline": make_pipeline(VarianceThreshold(), SelectKBest(k=2)),
}

MIXED = pd.DataFrame(
    {"a": ROWS[:, 0], "b": ROWS[:, 1].astype(int), "c": ROWS[:, 2].astype("f4"), "d": ROWS[:, 3] > 0}
)
CONTAINERS: dict[str, Any] = {
    **{name: ROWS.astype(name) for name in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "?")},
    "unsigned": np.abs(ROWS).astype("u1"),
    "large": ROWS.astype(np.int64) + (1 << 60),
    "columns first": np.asfortranarray(ROWS),
    "strided": np.repeat(ROWS, 2, axis=0)[::2],
    "one row": ROWS[:1],
    "lists": ROWS.astype(int).tolist(),
    "frame": pd.DataFrame(ROWS.astype(int)),
    "mixed frame": MIXED.set_axis(range(4), axis=1),
    "nullable frame": pd.DataFrame(ROWS.astype(int)).astype("Int64"),
    **{name: getattr(sparse, f"{name}_matrix")(ROWS) for name in ("csr", "csc", "coo")},
    "csr array": sparse.csr_array(ROWS),
    **{f"csr {name}": sparse.csr_matrix(ROWS).astype(name) for name in ("f4", "i8", "i1", "?")},
    "explicit zeros": sparse.csr_matrix((np.zeros(3), np.array([1, 0, 2]), np.array([0, 1, 3])), (2, 4)),
}


def values(rows: Any) -> np.ndarray:
    return rows.toarray() if sparse.issparse(rows) else rows


def same(found: Any, expected: Any, rtol: float = 1e-12) -> None:
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(values(found), values(expected), rtol=rtol, atol=1e-14)


@pytest.mark.parametrize("name", SELECTORS)
def test_selectors_keep_container_and_type(name: str) -> None:
    model = SELECTORS[name].fit(X, Y)
    graph = from_object(model)
    graph = graph if graph.transform is None else graph.transform
    assert codec.write(codec.read(OutputSpec, codec.write(graph.output))) == codec.write(graph.output)
    selection = Selection(graph.input, graph.output.selects)
    for rows in CONTAINERS.values():
        same(selection.transform(rows), model.transform(rows))
    for value in (np.nan, np.inf):
        # In a column that is kept, and in one that is left out.
        for column in range(4):
            rows = ROWS.copy()
            rows[3, column] = value
            for given in (rows, sparse.csr_matrix(rows)):
                try:
                    expected = model.transform(given)
                except ValueError:
                    with pytest.raises(InputError, match="row 3"):
                        selection.transform(given)
                else:
                    same(selection.transform(given), expected)
    for rows in (ROWS[:0], sparse.csr_matrix(ROWS[:0]), ROWS[:, :3], sparse.csr_matrix(ROWS[:, :3]), ROWS[0]):
        with pytest.raises(InputError):
            selection.transform(rows)


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(PackageError, match="selects column 4 of 4"):
        Selection(InputSpec(n_features=4), (0, 4))
    spec = codec.write(OutputSpec(kind="transformer", n_outputs=2, selects=(0, 1)))
    for bad in ([0], [0, -1], [0, True], "01"):
        with pytest.raises(codec.CodecError, match=r"selects|columns are selected"):
            codec.read(OutputSpec, {**spec, "selects": bad})
    with pytest.raises(ValueError, match="container"):
        codec.read(OutputSpec, {**spec, "container": "frame"})
    assert not {"selects", "container"} & codec.write(OutputSpec(kind="regressor", n_outputs=1)).keys()


def test_tiles_of_sparse_rows() -> None:
    for like, kind in ((None, sparse.csr_matrix), (sparse.csr_array(ROWS), sparse.csr_array)):
        for tiles in ([ROWS], [ROWS[:4], ROWS[4:5], ROWS[5:]]):
            found = sparse_rows(tiles, like)
            assert type(found) is kind and found.nnz == np.count_nonzero(ROWS)
            np.testing.assert_array_equal(found.toarray(), ROWS)


GIVES = {
    "embedding": RandomTreesEmbedding(3, max_depth=2, random_state=0),
    "splines": SplineTransformer(n_knots=4, sparse_output=True),
    "scaler": make_pipeline(MaxAbsScaler(), SelectKBest(k=2)),
    "norm": Normalizer(),
    "selector": SelectKBest(k=2),
    "polynomials": PolynomialFeatures(2),
}


@pytest.mark.parametrize("name", GIVES)
def test_what_is_sparse_in_the_library_is_here(name: str) -> None:
    model = GIVES[name].fit(X, Y)
    compiled = hbtvm.compile(model, batch_sizes=8, threads=1)
    again = hbtvm.load(to_bytes(compiled.package))
    for rows in (ROWS, X, ROWS[:1], ROWS.astype("f4"), ROWS.astype("i8"), ROWS > 0):
        for one in (compiled, again):
            found, expected = one.transform(rows), model.transform(rows)
            assert type(found) is type(expected) and found.dtype == expected.dtype
            np.testing.assert_allclose(values(found), values(expected), rtol=1e-5, atol=1e-7)
    if name == "splines":
        return  # scikit-learn takes no sparse rows
    for kind in (sparse.csr_matrix, sparse.csr_array):
        for dtype in ("f8", "f4", "i8", "i1"):
            rows = kind(ROWS.astype(dtype))
            found, expected = compiled.transform(rows), model.transform(rows)
            assert found.format == "csr" and found.dtype == expected.dtype
            # scikit-learn's polynomials are a matrix also of sparse arrays.
            assert type(found) is type(expected) or name == "polynomials"
            np.testing.assert_allclose(values(found), values(expected), rtol=1e-5, atol=1e-7)


KEEP_INTEGERS = {
    "binarizer": Binarizer(threshold=0.3),
    "pipeline of a binarizer": make_pipeline(Binarizer(threshold=0.3)),
    "scaler and binarizer": make_pipeline(MaxAbsScaler(), Binarizer(threshold=0.3)),
    "most frequent": SimpleImputer(missing_values=0, strategy="most_frequent"),
    "constant": SimpleImputer(missing_values=-1, strategy="constant", fill_value=2),
    "mean": SimpleImputer(missing_values=-1),
    "indicator": SimpleImputer(missing_values=0, strategy="most_frequent", add_indicator=True),
    "imputer and binarizer": make_pipeline(SimpleImputer(strategy="most_frequent"), Binarizer()),
}


@pytest.mark.parametrize("name", KEEP_INTEGERS)
def test_types_of_integers(name: str) -> None:
    model = KEEP_INTEGERS[name].fit(X)
    compiled = hbtvm.compile(model, batch_sizes=16, threads=1)
    refused = set()
    for container, rows in CONTAINERS.items():
        # Rows of float16 are read as float32, and sparse rows always give CSR.
        if container in ("f2", "csc", "coo"):
            continue
        try:
            expected = model.transform(rows)
        except (TypeError, ValueError):  # scikit-learn refuses bools, and sparse rows with 0 as missing
            continue
        if sparse.issparse(rows):
            expected = expected.tocsr()  # imputers return CSC
        try:
            same(compiled.transform(rows), expected)
        except InputError as error:
            assert "got integers beyond 9,007,199,254,740,992" in str(error)
            refused.add(container)
    assert refused == ({"large"} if name in ("most frequent", "indicator") else set())


KINDS = ("float32", "bool", "uint8", "int64", "float64")


@pytest.mark.parametrize(
    "model",
    [make_pipeline(SelectKBest(k=2), Normalizer()), make_pipeline(SelectKBest(k=2), StandardScaler())],
    ids=["normalizer", "scaler"],
)
def test_types_of_columns_that_are_not_read(model: Any) -> None:
    model.fit(X, Y)
    compiled = hbtvm.compile(model, batch_sizes=16, threads=1)
    for kinds in itertools.product(KINDS, repeat=2):
        # `SelectKBest` keeps two of the columns; the others count for the common type.
        types = {0: kinds[0], 1: kinds[1], 2: kinds[0], 3: kinds[1]}
        rows = pd.DataFrame(np.abs(ROWS)).astype(types)
        expected = model.transform(rows)
        same(compiled.transform(rows), expected, 1e-12 if expected.dtype == np.float64 else 1e-6)
