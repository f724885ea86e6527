"""Estimators of InterpretML and quantile-forest."""

from __future__ import annotations

from hbtvm.frontends.additive import interpret, wrappers
from hbtvm.frontends.predictors import quantile_forests
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("interpret", "InterpretML"): {
        "ExplainableBoostingClassifier DPExplainableBoostingClassifier": Estimator(
            predicts=interpret.classifier, rows="names"
        ),
        "ExplainableBoostingRegressor DPExplainableBoostingRegressor": Estimator(
            predicts=interpret.regressor, rows="names"
        ),
        "LinearRegression LogisticRegression ClassificationTree RegressionTree": Estimator(
            inner=wrappers.unwrapped, last=wrappers.last, rows="names"
        ),
    },
    ("quantile_forest", "quantile-forest"): {
        "RandomForestQuantileRegressor ExtraTreesQuantileRegressor": Estimator(
            predicts=quantile_forests.regressor, first=lambda record, where: []
        ),
    },
}
