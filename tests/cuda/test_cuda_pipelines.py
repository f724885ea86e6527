"""Pipelines on a GPU: rows are read on the host, kernels run on the device (see `emulated`)."""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, OrdinalEncoder, StandardScaler

import hbtvm
from hbtvm.errors import InputError
from hbtvm.runtime.model import Model
from hbtvm.runtime.package.file import from_bytes, to_bytes
from tests import emulated
from tests.emulated import SM90, Array, Cupy, Machine

pytestmark = pytest.mark.skipif(emulated.NO_COMPILER is not None, reason=str(emulated.NO_COMPILER))


def data(rows: int = 200) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    job = pd.Series(rng.choice(["tech", "law", "sales"], rows), dtype="str")
    age, pay = rng.normal(40, 9, rows).round(1), rng.normal(size=rows)
    target = np.where((age > 40) ^ (job == "law") ^ (pay > 0.3), "yes", "no")
    job[rng.random(rows) < 0.1] = np.nan
    age[rng.random(rows) < 0.1] = np.nan
    return pd.DataFrame({"note": "?", "job": job, "age": age, "pay": pay}), target


def columns(encoder: Any, **given: Any) -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), encoder)
    return ColumnTransformer([("numbers", numbers, ["age", "pay"]), ("words", words, ["job"])], **given)


ONE_HOT = OneHotEncoder(handle_unknown="ignore")
CODES = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
MODELS = {
    "forest": (columns(ONE_HOT), RandomForestClassifier(5, max_depth=4, random_state=0)),
    "lightgbm": (columns(CODES), lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1)),
    "xgboost": (columns(ONE_HOT, sparse_threshold=1.0), xgboost.XGBClassifier(n_estimators=5, n_jobs=1)),
    "linear": (columns(ONE_HOT), LogisticRegression()),
    "neighbours": (columns(CODES), KNeighborsClassifier(3)),
    "linear, normalized": (columns(CODES), Normalizer(), LogisticRegression()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_predicts_as_the_library(cupy: type[Cupy], machine: Machine, name: str) -> None:
    X, target = data()
    y = np.unique(target, return_inverse=True)[1] if name == "xgboost" else target
    library = make_pipeline(*MODELS[name]).fit(X, y)
    compiled = hbtvm.compile(library, target=SM90, batch_sizes=(1, 5000))
    assert compiled.device == "cuda:0"
    model = Model(from_bytes(to_bytes(compiled.package)))
    X = X.assign(job=X["job"].where(np.arange(len(X)) % 17 > 0, "new"))
    wanted = library.predict_proba(X)
    records = [
        {key: None if value != value else value for key, value in row.items()}
        for row in X[["pay", "job", "age"]].astype(object).to_dict("records")
    ]
    for rows in (X, pl.from_pandas(X), records, X[["pay", "job", "age"]]):
        np.testing.assert_allclose(model.predict_proba(rows), wanted, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(model.predict(X), library.predict(X))
    for at in range(5):
        for one in (records[at], X.iloc[[at]]):
            np.testing.assert_allclose(model.predict_proba(one), wanted[at : at + 1], rtol=1e-5, atol=1e-7)
    with pytest.raises(InputError, match="read in host memory"):
        model.predict(Array(np.zeros((3, 4), np.float32)))


def test_refusals_name_the_column(machine: Machine) -> None:
    X, y = data()
    numbers = ["age", "pay"]
    steps = ColumnTransformer([("scale", StandardScaler(), numbers), ("code", OrdinalEncoder(), ["job"])])
    full = X.assign(age=X["age"].fillna(1.0), job=X["job"].fillna("law"))
    library = make_pipeline(steps, LogisticRegression()).fit(full, y)
    model = hbtvm.compile(library, target=SM90, batch_sizes=(1,))
    np.testing.assert_allclose(model.predict_proba(full), library.predict_proba(full), rtol=1e-9)
    with pytest.raises(InputError, match=r"column 'age'.*row 3: got NaN"):
        model.predict(full.assign(age=[1.0, 1.0, 1.0, np.nan, *[1.0] * 196]))
    with pytest.raises(InputError, match=r"column 'pay'.*row 0: got infinity"):
        model.predict({"age": 1.0, "pay": np.inf, "job": "law"})
    with pytest.raises(InputError, match=r"column 'job'.*'new' was not in the training data"):
        model.predict({"age": 1.0, "pay": 2.0, "job": "new"})
    scaled = make_pipeline(StandardScaler(with_mean=False), LogisticRegression())
    scaled.fit(full[numbers].to_numpy(), y)
    model = hbtvm.compile(scaled, target=SM90, batch_sizes=(1,))
    sparse = scipy.sparse.csr_matrix(full[numbers].to_numpy())
    np.testing.assert_allclose(model.predict_proba(sparse), scaled.predict_proba(sparse.toarray()), rtol=1e-9)


def test_a_transformer_needs_no_gpu() -> None:
    X, _ = data()
    library = columns(CODES).fit(X)
    model = hbtvm.compile(library, target=SM90)
    np.testing.assert_array_equal(model.transform(X), library.transform(X))
