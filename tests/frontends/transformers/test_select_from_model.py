"""``SelectFromModel`` wherever it stands: only its model knows how many columns it was fitted on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, VotingClassifier
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import from_object
from tests.answers import same
from tests.frontends.transformers.oracle import check
from tests.typed_rows import predict

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(80, 5))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
FRAME = pd.DataFrame(X, columns=list("abcde"))

INNER: dict[str, Any] = {
    "forest": RandomForestClassifier(4, max_depth=3, random_state=0),
    "linear": LogisticRegression(),
    "lasso": Lasso(0.05),
    "xgboost": XGBClassifier(n_estimators=3, max_depth=2),
    "lightgbm": LGBMClassifier(n_estimators=3, min_child_samples=2, verbose=-1),
}


def _around(selector: Any) -> list[Any]:
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    pipeline = make_pipeline(selector, LogisticRegression())
    return [
        pipeline,
        make_pipeline(selector, StandardScaler(), tree),
        make_pipeline(StandardScaler(), selector, tree),
        make_pipeline(FeatureUnion([("few", selector), ("all", StandardScaler())]), LogisticRegression()),
        OneVsRestClassifier(pipeline),
        BaggingClassifier(pipeline, 2, random_state=0),
        VotingClassifier([("a", pipeline), ("b", tree)]),
        GridSearchCV(pipeline, {"logisticregression__C": [1.0]}, cv=2),
    ]


@pytest.mark.parametrize("name", INNER)
@pytest.mark.parametrize("rows", [X, FRAME], ids=["array", "frame"])
def test_first_step(name: str, rows: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        around = _around(SelectFromModel(INNER[name]))
        for model in around if name == "linear" else around[:3]:
            model.fit(rows, Y)
            graph = from_object(model)
            assert graph.input.n_features == 5
            assert (graph.input.feature_names is None) == (rows is X)
            same(predict(graph, rows), model.predict(rows), 1e-6, 1e-9)


@pytest.mark.parametrize("name", INNER)
def test_alone_and_fitted_elsewhere(name: str) -> None:
    inner = clone(INNER[name]).fit(X, Y)
    for selector in (
        SelectFromModel(inner, prefit=True),
        SelectFromModel(FrozenEstimator(inner)) if name == "linear" else SelectFromModel(inner),
        SelectFromModel(inner, prefit=True, max_features=2),
    ):
        selector.fit(X, Y)
        table = check(selector, X)
        graph = from_object(selector)
        assert graph.input.n_features == 5 and graph.output.n_outputs == len(table)
        with pytest.raises(InputError, match=r"expected 5|got 4"):
            predict(graph, X[:, :4])


def test_not_fitted() -> None:
    with pytest.raises(UnsupportedModel, match="not fitted"):
        from_object(make_pipeline(SelectFromModel(LogisticRegression()), LogisticRegression()))
