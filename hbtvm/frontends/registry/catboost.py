"""Estimators of CatBoost."""

from __future__ import annotations

from hbtvm.frontends.catboost import estimator
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("catboost", "CatBoost"): {
        "CatBoost CatBoostClassifier CatBoostRegressor CatBoostRanker": Estimator(
            model=estimator.read_estimator
        ),
    },
}
