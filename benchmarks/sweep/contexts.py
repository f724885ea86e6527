"""The models that an estimator may be part of: pipelines, column transformers, ensembles, searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn import ensemble, multiclass, multioutput
from sklearn import feature_selection as selection
from sklearn import preprocessing as prep
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline

from benchmarks.sweep.classes import LOGISTIC, RIDGE, TREE, TREE_NUMBERS

Context = tuple[str, Callable[[Any], Any]]
"""A name, and what makes of an estimator the model that is compiled."""


def contexts(role: str, target: str) -> list[Context]:
    """Return the models that an estimator may be part of, by its role.

    Parameters
    ----------
    role
        ``"classifier"``, ``"regressor"``, ``"transformer"`` or another one.
    target
        What it is fitted on.
    """
    found: list[Context] = [
        ("behind StandardScaler", _scaled),
        ("behind RobustScaler", lambda model: make_pipeline(prep.RobustScaler(), model)),
    ]
    if role == "transformer":
        last = TREE_NUMBERS if target in ("", "number", "numbers") else TREE
        line = RIDGE if target in ("", "number", "numbers") else LOGISTIC
        found += [
            ("before a tree", lambda model: make_pipeline(model, last)),
            ("before a linear model", lambda model: make_pipeline(model, line)),
            ("behind a scaler, before a tree", lambda model: make_pipeline(prep.MinMaxScaler(), model, last)),
            (
                "in ColumnTransformer",
                lambda m: ColumnTransformer([("it", m, [0, 1])], remainder="passthrough"),
            ),
            ("in FeatureUnion", lambda m: FeatureUnion([("it", m), ("scaled", prep.StandardScaler())])),
            ("giving pandas", lambda model: model.set_output(transform="pandas")),
        ]
    if role == "classifier" and target in ("classes", "binary"):
        found += [
            ("in OneVsRest", lambda m: multiclass.OneVsRestClassifier(_scaled(m))),
            (
                "in Voting, soft",
                lambda m: ensemble.VotingClassifier([("it", _scaled(m)), ("t", TREE)], voting="soft"),
            ),
            (
                "in Voting, hard",
                lambda m: ensemble.VotingClassifier([("it", m), ("t", TREE), ("l", LOGISTIC)]),
            ),
            ("in Stacking", lambda m: ensemble.StackingClassifier([("it", _scaled(m)), ("t", TREE)], cv=2)),
            ("in Bagging", lambda m: ensemble.BaggingClassifier(m, n_estimators=3, random_state=0)),
            ("in SelectFromModel", lambda m: selection.SelectFromModel(m)),
            ("in GridSearchCV", lambda m: GridSearchCV(_scaled(m), {}, cv=2)),
            ("in OneVsOne", lambda m: multiclass.OneVsOneClassifier(m)),
        ]
    if role == "regressor" and target in ("number", "positive"):
        found += [
            ("in Voting", lambda m: ensemble.VotingRegressor([("it", _scaled(m)), ("t", TREE_NUMBERS)])),
            (
                "in Stacking",
                lambda m: ensemble.StackingRegressor([("it", _scaled(m)), ("t", TREE_NUMBERS)], cv=2),
            ),
            ("in Bagging", lambda m: ensemble.BaggingRegressor(m, n_estimators=3, random_state=0)),
            (
                "in TransformedTarget",
                lambda m: TransformedTargetRegressor(m, transformer=prep.StandardScaler()),
            ),
            ("in MultiOutput", lambda m: multioutput.MultiOutputRegressor(_scaled(m))),
        ]
    return found


def _scaled(model: Any) -> Any:
    return make_pipeline(prep.StandardScaler(), model)
