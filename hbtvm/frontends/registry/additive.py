"""Estimators of InterpretML."""

from __future__ import annotations

from hbtvm.frontends.additive import interpret
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("interpret", "InterpretML"): {
        "ExplainableBoostingClassifier DPExplainableBoostingClassifier": Estimator(
            predicts=interpret.classifier, rows="names"
        ),
        "ExplainableBoostingRegressor DPExplainableBoostingRegressor": Estimator(
            predicts=interpret.regressor, rows="names"
        ),
    },
}
