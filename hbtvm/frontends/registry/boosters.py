"""Estimators of XGBoost, LightGBM and imbalanced-learn."""

from __future__ import annotations

from hbtvm.frontends.lightgbm import estimator as lightgbm_estimator
from hbtvm.frontends.predictors.meta import bagging, boosting
from hbtvm.frontends.registry.scikit_learn import PIPELINE
from hbtvm.frontends.sklearn import forest as sklearn_forest
from hbtvm.frontends.transformers.where import Estimator, Section
from hbtvm.frontends.xgboost import estimator as xgboost_estimator

SECTIONS: dict[tuple[str, str], Section] = {
    ("imblearn", "imbalanced-learn"): {
        "Pipeline": PIPELINE,
        "BalancedRandomForestClassifier": Estimator(model=sklearn_forest.read_forest),
        "BalancedBaggingClassifier EasyEnsembleClassifier": Estimator(predicts=bagging.classifier),
        "RUSBoostClassifier": Estimator(predicts=boosting.classifier),
    },
    ("xgboost", "XGBoost"): {
        "Booster": Estimator(model=xgboost_estimator.read_booster),
        "XGBClassifier XGBRegressor XGBRanker XGBRFClassifier XGBRFRegressor XGBModel": Estimator(
            model=xgboost_estimator.read_estimator
        ),
    },
    ("lightgbm", "LightGBM"): {
        "Booster": Estimator(model=lightgbm_estimator.read_booster),
        "LGBMClassifier LGBMRegressor LGBMRanker LGBMModel": Estimator(
            model=lightgbm_estimator.read_estimator
        ),
    },
}
