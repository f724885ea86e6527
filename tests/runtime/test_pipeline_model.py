"""Whole models behind feeds: predictions from every container, packages, threads, sparse rows, transforms."""

from __future__ import annotations

import functools
import json
import pickle
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from hbtvm.errors import InputError, PackageError
from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Arithmetic, Encode, Fill, Function, Lookup
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec, likeliest
from hbtvm.graph.parts import Parts
from hbtvm.graph.trees.reference import margins
from hbtvm.operators.base import Input
from hbtvm.operators.formulas import sigmoid
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.package.file import from_bytes, to_bytes
from tests.ensembles import random_ensemble
from tests.runtime_models import TARGET, kernel, package

NAMES = ("age", "pay", "job", "note")
JOBS = ("tech", "sales", "law")
WHERE = "step 'encode' (OrdinalEncoder), column 'job'"


@functools.cache
def graph() -> Graph:
    ensemble = random_ensemble(
        np.random.default_rng(3), trees=6, features=4, compare_dtype="float64", missing="mixed"
    )
    feeds = (
        Feed(Raw(2), (Fill("law"), Encode(JOBS, "error", WHERE)), where="column 'job'"),
        Feed(Raw(0), where="column 'age'"),
        Feed(Raw(1), (), False, False, "column 'pay'"),
        Feed(Raw(1), (Function("absolute"), Function("sqrt")), False, False, "column 'pay'"),
    )
    return Graph(
        library="scikit-learn",
        model="GradientBoostingClassifier",
        input=InputSpec(4, NAMES, by_name=True),
        anchor=ensemble,
        output=OutputSpec(
            "classifier", 1, {**likeliest(sigmoid(Input(1))), "raw": Input(1)}, (np.array(["no", "yes"]),)
        ),
        feeds=feeds,
        steps=(("encode", "ColumnTransformer"), ("model", "GradientBoostingClassifier")),
        rewrites=("scaler of 2 columns: moved into 17 thresholds",),
    )  # fmt: skip


@functools.cache
def packed() -> Package:
    kernels = [kernel(graph(), rows, dtype=dtype) for dtype in ("float32", "float64") for rows in (1, 64)]
    return package(graph(), *kernels)


def frame(rows: int = 150) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    job = pd.Series(rng.choice(JOBS, rows), dtype="str")
    job[rng.random(rows) < 0.1] = np.nan
    age = rng.normal(size=rows).round(1)
    age[rng.random(rows) < 0.2] = np.nan
    return pd.DataFrame(
        {"note": "?", "job": job, "age": age, "pay": rng.normal(size=rows).round(1), "more": 1}
    )


def expected(X: pd.DataFrame) -> np.ndarray:
    made = graph()
    raw = {
        0: X["age"].to_numpy(),
        1: X["pay"].to_numpy(),
        2: np.array([*X["job"].tolist(), None], object)[:-1],
    }
    evaluator = Evaluator(raw)
    matrix = np.column_stack([evaluator.column(one.source, one.steps) for one in made.feeds])
    return margins(made.anchor, matrix)


def test_predictions_from_containers() -> None:
    model, X = Model(packed()), frame()
    wanted = expected(X).reshape(len(X), -1)
    records = [
        {name: None if value != value else value for name, value in row.items()}
        for row in X.astype(object).to_dict("records")
    ]
    for rows in (X, pl.from_pandas(X), records, X[list(NAMES)].astype(object).to_numpy()):
        np.testing.assert_allclose(model.predict(rows, "raw").reshape(len(X), -1), wanted, rtol=1e-6)
    labels = model.predict(X)
    proba = model.predict_proba(X)
    assert set(labels) == {"no", "yes"}
    for at in range(12):
        for one in (X.iloc[[at]], records[at], pl.from_pandas(X.iloc[[at]])):
            assert model.predict(one).tolist() == [labels[at]]
            np.testing.assert_allclose(model.predict_proba(one), proba[at : at + 1], rtol=1e-12)


def test_errors_name_the_column() -> None:
    model, X = Model(packed()), frame()
    with pytest.raises(InputError, match=r"step 'encode' \(OrdinalEncoder\), column 'job': 'nurse' was not"):
        model.predict({"age": 1, "pay": 2, "job": "nurse"})
    with pytest.raises(InputError, match="column 'pay', row 3: got NaN"):
        model.predict(X.assign(pay=[0.5, 0.5, 0.5, np.nan, *[1.0] * 146]))
    with pytest.raises(InputError, match="column 'pay', row 0: got NaN"):
        model.predict({"age": 1, "pay": None, "job": "law"})
    with pytest.raises(InputError, match="column 'pay' is missing"):
        model.predict({"age": 1, "job": "law"})
    with pytest.raises(InputError, match="column 'pay', which the pipeline reads, is missing"):
        model.predict(X.drop(columns="pay"))
    with pytest.raises(InputError, match="at least one row"):
        model.predict(X[:0])
    with pytest.raises(InputError, match="predicts; expected a pipeline"):
        model.transform(X)


def test_package_gives_everything_back() -> None:
    X = frame()
    again = from_bytes(to_bytes(packed()))
    assert to_bytes(again) == to_bytes(packed())
    assert (again.steps, again.rewrites, again.input) == (graph().steps, graph().rewrites, graph().input)
    model = pickle.loads(pickle.dumps(Model(again)))
    np.testing.assert_array_equal(model.predict_proba(X), Model(packed()).predict_proba(X))
    assert "encode (ColumnTransformer)" in model.summary() and "17 thresholds" in model.summary()
    assert repr(model) == "<hbtvm.Model: scikit-learn GradientBoostingClassifier, 6 trees>"


def test_threads() -> None:
    model, X = Model(packed(), threads=2), frame()
    wanted, wrong = model.predict_proba(X), []
    forms = [X, pl.from_pandas(X), X.iloc[:, ::-1]]

    def work(at: int) -> None:
        for i in range(10):
            if not np.array_equal(model.predict_proba(forms[(at + i) % 3]), wanted):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sparse_rows_are_read_with_zeros() -> None:
    feeds = tuple(Feed(Raw(j), where=f"column {j}") for j in (3, 1, 0, 2))
    made = replace(graph(), input=InputSpec(4), feeds=feeds)
    model = Model(package(made, kernel(made, 1, dtype="float64")))
    rows = scipy.sparse.random(
        70, 4, 0.5, "csr", random_state=0, data_rvs=np.random.default_rng(0).standard_normal
    )
    dense = model.predict(rows.toarray(), "raw")
    assert len(np.unique(dense)) > 3
    np.testing.assert_array_equal(model.predict(rows, "raw"), dense)
    assert model.predict(rows[:1]).shape == (1,)


def test_kernels_of_float32_serve_float32_frames_only() -> None:
    """Float32 kernels of another anchor, as transformers make it that round in float32."""
    made = replace(graph(), feeds=tuple(Feed(Raw(j)) for j in range(4)), input=InputSpec(4))
    other = replace(made, anchor=replace(made.anchor, base_score=made.anchor.base_score + 100))
    both = package(made, kernel(made, 1, dtype="float64"), kernel(other, 1), float32_apart=True)
    # The base score is the package's; leaves tell which kernel ran.
    anchor = replace(made.anchor, value=made.anchor.value + 50 * (made.anchor.left < 0)[:, None])
    both = replace(both, kernels=(both.kernels[0], kernel(replace(made, anchor=anchor), 1)))
    model = Model(from_bytes(to_bytes(both)))
    rows = np.ones((3, 4))
    assert (model.predict(rows.astype(np.float32), "raw") > 30).all()
    assert (model.predict(rows, "raw") < 30).all()
    assert (model.predict(rows.astype(np.int8), "raw") < 30).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_transform(sparse: bool) -> None:
    code = Encode((*JOBS, np.nan))
    table = Table(
        (
            Column(Raw(0), (Fill(1.5), Arithmetic("subtract", 1.5))),
            Column(Raw(2), (code, Lookup(np.array([0.0, 1.0, 0.0, np.nan, 5.0])))),
        ),
        sparse,
        ("age", "job"),
    )
    facts = {"operator": "columns", "n_features": 4, "n_outputs": 2, "compare_dtype": "float64"}
    made = Package(
        "scikit-learn", "ColumnTransformer", InputSpec(4, NAMES, by_name=True), OutputSpec("regressor", 2),
        {**facts, "base_score": [0.0, 0.0], "divisor": 1.0}, TARGET, (), {}, parts=Parts((), table),
    )  # fmt: skip
    model, X = Model(from_bytes(to_bytes(made))), frame()
    found = model.transform(X)
    assert isinstance(found, scipy.sparse.csr_matrix if sparse else np.ndarray)
    dense = found.toarray() if sparse else found
    job = X["job"].map({"tech": 0.0, "sales": 1.0, "law": 0.0})
    np.testing.assert_array_equal(dense, np.column_stack([X["age"].fillna(1.5) - 1.5, job]))
    model.warm_up()
    assert model.transform({"age": 2, "job": "?"}).shape == (1, 2)
    with pytest.raises(InputError, match="does not predict"):
        model.predict(X)
    assert "transformed" in repr(model) and "2 columns, computed by numpy" in model.summary()


def change(value: Any) -> list[Any]:
    return [
        one for one in (None, True, -1, 0, 10**6, 1.5, "x", [], {}, [[1]], {"float": "nan"}) if one != value
    ]


def paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    keys = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else []
    return [path, *(one for key in keys for one in paths(data[key], (*path, key)))]


def test_damaged_front_is_refused_or_works() -> None:
    from hbtvm.runtime.package import file as module
    from hbtvm.runtime.package.archive import read_archive
    from hbtvm.runtime.package.manifest import MANIFEST

    members = read_archive(to_bytes(packed()), MANIFEST)
    manifest = json.loads(bytes(members.pop(MANIFEST)))
    members.pop("manifest.sha256")
    X, refused, worked = frame(5), 0, 0
    front = ("shared", "parts", "float32_apart", "steps", "rewrites")
    for path in [one for one in paths(manifest) if one and one[0] in front]:
        mutant = json.loads(json.dumps(manifest))
        for value in change(None):
            spot: Any = mutant
            for key in path[:-1]:
                spot = spot[key]
            before, spot[path[-1]] = spot[path[-1]], value
            try:
                model = Model(module._package(mutant, dict(members)))
                worked += 1
                model.predict(X)
            except PackageError:
                refused += 1
            except InputError:
                pass  # another category, say
            spot[path[-1]] = before
    assert refused > 200 and worked > 50


def test_newer_steps_are_told() -> None:
    data = to_bytes(packed())
    from tests.runtime.test_package import with_manifest

    newer = with_manifest(data, lambda manifest: manifest["shared"][0].update(kind="Ranks"))
    with pytest.raises(PackageError, match=r"shared\[0\]\.kind is 'Ranks', which this .* not know\.$"):
        from_bytes(newer)
