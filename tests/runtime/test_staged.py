"""Models of several kernels: compiled, packed, loaded, and against the library."""

from __future__ import annotations

import copy
import functools
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor
from xgboost import XGBRegressor

import hbtvm
from hbtvm.errors import InputError, PackageError
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.archive import read_archive
from hbtvm.runtime.package.file import _package, from_bytes, to_bytes
from hbtvm.runtime.package.manifest import MANIFEST

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("shared_workers", "unchecked_kernels"),
]

RNG = np.random.default_rng(3)
N = 300
FRAME = pd.DataFrame(
    {
        "size": RNG.normal(size=N),
        "weight": RNG.normal(size=N) * 100,
        "colour": RNG.choice(["red", "green", "blue"], N),
        "age": RNG.integers(0, 9, N),
    }
)
LABELS = np.where(FRAME["size"] + FRAME["weight"] / 100 + (FRAME["colour"] == "red") > 0, "yes", "no")
FRAME.loc[::7, "size"] = np.nan
X = RNG.normal(size=(N, 5))
Y = X @ np.arange(5.0) + X[:, 0] ** 2


def columns() -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    codes = OneHotEncoder(handle_unknown="ignore")
    return ColumnTransformer([("n", numbers, ["size", "weight", "age"]), ("c", codes, ["colour"])])


@functools.cache
def stacked() -> tuple[Any, Model]:
    """A forest and a linear model side by side, and a linear model behind them."""
    forest = RandomForestClassifier(10, max_depth=6, random_state=0)
    model = StackingClassifier([("forest", forest), ("linear", LogisticRegression())], cv=2)
    fitted = make_pipeline(columns(), model).fit(FRAME, LABELS)
    return fitted, hbtvm.compile(fitted, batch_sizes=[64], threads=1)


@functools.cache
def projected() -> tuple[Any, Model]:
    """A projection in front of a forest."""
    forest = RandomForestClassifier(5, max_depth=6, random_state=0)
    fitted = make_pipeline(StandardScaler(), PCA(3), forest).fit(X, Y > 0)
    return fitted, hbtvm.compile(fitted, batch_sizes=[64], threads=1)


@functools.cache
def averaged() -> tuple[Any, Model]:
    """A bare ensemble, which reads the caller's rows."""
    members = [("linear", Ridge()), ("booster", XGBRegressor(n_estimators=4))]
    fitted = VotingRegressor(members).fit(X, Y)
    return fitted, hbtvm.compile(fitted, batch_sizes=[64], threads=1)


def same(got: Any, expected: Any) -> None:
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("rows", [1, 3, 64, N])
def test_pipelines_with_a_forest_beside_a_linear_model(rows: int) -> None:
    fitted, model = stacked()
    new = FRAME[:rows].copy()
    new.loc[0, "colour"] = "brown"
    same(model.predict(new), fitted.predict(new))
    same(model.predict_proba(new), fitted.predict_proba(new))
    narrow = new.astype({"size": "float32", "weight": "float32"})
    same(model.predict_proba(narrow), fitted.predict_proba(narrow))


def test_one_row_as_a_dictionary() -> None:
    fitted, model = stacked()
    row = FRAME[1:2]
    same(model.predict_proba(row.iloc[0].to_dict()), fitted.predict_proba(row))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
def test_arrays(dtype: str) -> None:
    rows = (3 * RNG.normal(size=(100, 5))).astype(dtype)
    for fitted, model in (projected(), averaged()):
        same(model.predict(rows), fitted.predict(rows.astype(np.float64)))
    fitted, model = projected()
    same(model.predict_proba(rows[::2]), fitted.predict_proba(rows[::2]))


def test_blocks_and_threads() -> None:
    """Blocks are the same whatever the number of threads, and so are results, to the last bit."""
    for fitted, model in (stacked(), projected(), averaged()):
        rows: Any = pd.concat([FRAME] * 30) if model is stacked()[1] else np.tile(X, (30, 1))
        for n in (1, 40, len(rows)):
            for threads in (1, 2, 3):
                own = Model(model.package, threads)
                np.testing.assert_array_equal(own.predict(rows[:n]), model.predict(rows[:n]))
            same(own.predict(rows[:n]), fitted.predict(rows[:n]))


def test_packages_and_pickles() -> None:
    for fitted, model in (stacked(), projected()):
        rows = FRAME if model is stacked()[1] else X
        data = to_bytes(model.package)
        again = from_bytes(data)
        assert to_bytes(again) == data and len(again.stages) == 1
        same(Model(again).predict(rows), fitted.predict(rows))
        same(pickle.loads(pickle.dumps(model)).predict(rows), fitted.predict(rows))
        assert len(again.all_kernels) > len(again.kernels)
        kernels = model.summary().split("kernels\n")[1].split("tuning\n")[0].splitlines()
        assert len(kernels) == 1 + len(again.all_kernels)
        assert "operators" in model.summary() and "trees" in model.summary()


def test_missing_numbers_that_add_nothing() -> None:
    # The mean in place of a missing number is 0 behind the scaler.
    rows = X.copy()
    rows[::3, 1] = np.nan
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression())
    fitted = model.fit(rows, np.digitize(Y, [-1, 2]))
    own = hbtvm.compile(fitted, batch_sizes=[64], threads=1)
    same(own.predict_proba(rows), fitted.predict_proba(rows))


def test_what_one_of_the_models_refuses() -> None:
    _, model = averaged()
    rows = X.copy()
    rows[17, 2] = np.nan
    with pytest.raises(InputError, match="row 17"):
        model.predict(rows)
    _, model = stacked()
    wrong = FRAME.copy()
    wrong.loc[5, "weight"] = np.inf
    with pytest.raises(InputError, match="'weight'"):
        model.predict(wrong)


def parts_of(model: Model) -> tuple[dict[str, Any], dict[str, memoryview]]:
    members = read_archive(to_bytes(model.package), MANIFEST)
    manifest = json.loads(bytes(members.pop(MANIFEST)))
    members.pop("manifest.sha256")
    return manifest, members


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a column behind the matrix": lambda m: m["columns"].__setitem__(0, 99),
    "a column that comes later": lambda m: m["stages"][0]["columns"].__setitem__(0, 6),
    "a negative column": lambda m: m["columns"].__setitem__(0, -1),
    "a column that is no number": lambda m: m["columns"].__setitem__(0, True),
    "a column less": lambda m: m["columns"].pop(),
    "a stage less": lambda m: m["stages"].pop(),
    "no kernels": lambda m: m["stages"][0].update(kernels=[]),
    "another operator": lambda m: m["stages"][0]["facts"].update(operator="columns"),
    "a divisor": lambda m: m["stages"][0]["facts"].update(divisor=2.0),
    "a base score": lambda m: m["stages"][0]["facts"].update(base_score=[1.0] * 3),
    "other outputs": lambda m: m["stages"][0]["facts"].update(n_outputs=7),
    "the last kernels in a stage": lambda m: m["stages"][0].update(kernels=m["kernels"]),
    "a further field": lambda m: m["stages"][0].update(more=1),
    "a stage that is a list": lambda m: m.update(stages=[[]]),
    "no rows with missing values": lambda m: m["stages"][0]["kernels"][0].update(missing=False),
    "stages of older versions": lambda m: m.update(version=6, columns=[]),
    "columns of no stages": lambda m: m.update(stages=[]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_stages_are_refused(damage: str) -> None:
    for _, model in (stacked(), projected()):
        manifest, members = parts_of(model)
        _package(copy.deepcopy(manifest), members)
        DAMAGES[damage](manifest)
        with pytest.raises(PackageError, match="is damaged"):
            _package(manifest, members)


def test_strategies_are_those_of_any_part() -> None:
    fitted, _ = averaged()
    model = hbtvm.compile(fitted, batch_sizes=[64], threads=1, strategies=["tree_traversal"])
    assert model.package.stages[0].kernels[0].strategy == "tree_traversal"
    same(model.predict(X), fitted.predict(X))


def test_parts_are_tuned_together() -> None:
    # Both stages are trees of the same shape, so that one of them is tuned.
    tree = DecisionTreeRegressor(max_depth=1)
    fitted = RegressorChain(tree, order=[0, 1, 2]).fit(X, np.stack([Y, Y**2, X[:, 1]], axis=1))
    model = hbtvm.tune(fitted, trials=3, batch_sizes=[16], threads=1, log=None, seed=0)
    same(model.predict(X), fitted.predict(X))
    assert model.package.tuning["trials"] == 3
