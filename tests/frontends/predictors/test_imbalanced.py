"""imbalanced-learn's pipelines and ensembles, which subclass scikit-learn's; its classes are stood in for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from hbtvm import codec
from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.trees.ensemble import TreeEnsemble
from tests.frontends.predictors.data import ROWS, TARGETS, X
from tests.staged import check


class Sampler(BaseEstimator):
    """Chooses rows to train on; at prediction it is passed over."""

    def fit_resample(self, rows: Any, y: Any) -> Any:
        return rows[::2], y[::2]


class Resampled(Pipeline):
    """A pipeline that leaves samplers out at prediction."""

    def fit(self, rows: Any, y: Any) -> Resampled:
        for _, step in self.steps[:-1]:
            if hasattr(step, "fit_resample"):
                rows, y = step.fit_resample(rows, y)
            else:
                rows = step.fit_transform(rows, y)
        self.steps[-1][1].fit(rows, y)
        return self

    def predicts(self) -> Pipeline:
        return Pipeline([step for step in self.steps if not hasattr(step[1], "fit_resample")])


pytestmark = pytest.mark.filterwarnings("ignore")

CLASSES = {
    "over_sampling": ("SMOTE", Sampler),
    "under_sampling": ("RandomUnderSampler", Sampler),
    "combine": ("SMOTEENN", Sampler),
    "pipeline": ("Pipeline", Resampled),
    "ensemble": ("BalancedBaggingClassifier", BaggingClassifier),
    "ensemble._forest": ("BalancedRandomForestClassifier", RandomForestClassifier),
}


@pytest.fixture(autouse=True)
def imblearn(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Classes by their names in imbalanced-learn, as its pickles name them."""
    made: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "imblearn", ModuleType("imblearn"))
    for module, (name, base) in CLASSES.items():
        found = ModuleType(f"imblearn.{module}")
        made[name] = type(name, (base,), {"__module__": found.__name__, "__qualname__": name})
        setattr(found, name, made[name])
        monkeypatch.setitem(sys.modules, found.__name__, found)
    yield made


@pytest.mark.parametrize("sampler", ["SMOTE", "RandomUnderSampler", "SMOTEENN"])
@pytest.mark.parametrize("last", [LogisticRegression(), DecisionTreeClassifier(max_depth=3)])
def test_samplers_do_nothing_at_prediction(imblearn: dict[str, Any], sampler: str, last: Any) -> None:
    steps = [("scale", StandardScaler()), ("sample", imblearn[sampler]()), ("last", last)]
    model = imblearn["Pipeline"](steps).fit(X, TARGETS["strings"])
    found, expected = from_object(model), from_object(model.predicts())
    assert codec.write(found.output) == codec.write(expected.output) and found.rewrites == expected.rewrites
    assert type(found.anchor) is type(expected.anchor)
    bagged = BaggingClassifier(last, n_estimators=2, random_state=0).fit(X, TARGETS["strings"])
    plain = check(bagged, ROWS)
    bagged.estimators_ = [
        imblearn["Pipeline"]([("s", imblearn[sampler]()), ("c", one)]) for one in bagged.estimators_
    ]
    again = from_object(bagged)
    assert codec.write(again.output) == codec.write(plain.output) and type(again.anchor) is type(plain.anchor)


def test_balanced_ensembles(imblearn: dict[str, Any]) -> None:
    for name in ("BalancedBaggingClassifier", "BalancedRandomForestClassifier"):
        model = imblearn[name](n_estimators=3, random_state=0).fit(X, TARGETS["strings"])
        graph = check(model, ROWS)
        assert isinstance(graph.anchor, TreeEnsemble) and graph.model == name


def test_a_sampler_alone_predicts_nothing(imblearn: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedModel, match="SMOTE"):
        from_object(imblearn["SMOTE"]())
    model = imblearn["Pipeline"]([("scale", StandardScaler()), ("sample", imblearn["SMOTE"]())])
    model.steps[0][1].fit(X)
    assert from_object(model).output.kind == "transformer"
