"""Front ends of estimators that predict, as operators over a table: the registry."""

from __future__ import annotations

from hbtvm.frontends.predictors import (
    bagging,
    boosting,
    calibrated,
    calibration,
    clusters,
    multiclass,
    several_targets,
    stacking,
    thresholds,
    voting,
)
from hbtvm.frontends.predictors.reading import Build, Reader

__all__ = ["PREDICTORS", "Build", "Reader"]

PREDICTORS: dict[tuple[str, str], Reader] = {
    ("sklearn", "IsotonicRegression"): calibration.isotonic_regression,
    ("sklearn", "KMeans"): clusters.k_means,
    ("sklearn", "MiniBatchKMeans"): clusters.k_means,
    ("sklearn", "VotingClassifier"): voting.classifier,
    ("sklearn", "VotingRegressor"): voting.regressor,
    ("sklearn", "StackingClassifier"): stacking.classifier,
    ("sklearn", "StackingRegressor"): stacking.regressor,
    ("sklearn", "BaggingClassifier"): bagging.classifier,
    ("sklearn", "BaggingRegressor"): bagging.regressor,
    ("sklearn", "AdaBoostClassifier"): boosting.classifier,
    ("sklearn", "AdaBoostRegressor"): boosting.regressor,
    ("sklearn", "CalibratedClassifierCV"): calibrated.classifier,
    ("sklearn", "OneVsRestClassifier"): multiclass.one_vs_rest,
    ("sklearn", "OneVsOneClassifier"): multiclass.one_vs_one,
    ("sklearn", "OutputCodeClassifier"): multiclass.output_code,
    ("sklearn", "_ConstantPredictor"): multiclass.constant_predictor,
    ("sklearn", "MultiOutputClassifier"): several_targets.classifiers,
    ("sklearn", "MultiOutputRegressor"): several_targets.regressors,
    ("sklearn", "ClassifierChain"): several_targets.classifier_chain,
    ("sklearn", "RegressorChain"): several_targets.regressor_chain,
    ("sklearn", "FixedThresholdClassifier"): thresholds.classifier,
    ("sklearn", "TunedThresholdClassifierCV"): thresholds.classifier,
    ("imblearn", "BalancedBaggingClassifier"): bagging.classifier,
    ("imblearn", "EasyEnsembleClassifier"): bagging.classifier,
    ("imblearn", "RUSBoostClassifier"): boosting.classifier,
}
"""By library and class name."""
