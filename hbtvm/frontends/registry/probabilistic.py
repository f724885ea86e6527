"""Estimators of NGBoost, scikit-survival, lifelines and PyOD."""

from __future__ import annotations

from hbtvm.frontends.ngboost import model as ngboost_model
from hbtvm.frontends.pyod import detectors, wrappers
from hbtvm.frontends.survival import lifelines, scikit_survival
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("ngboost", "NGBoost"): {
        "NGBRegressor NGBClassifier NGBSurvival": Estimator(model=ngboost_model.read),
    },
    ("sksurv", "scikit-survival"): {
        "CoxPHSurvivalAnalysis": Estimator(model=scikit_survival.read_cox),
        "CoxnetSurvivalAnalysis": Estimator(model=scikit_survival.read_coxnet),
        "IPCRidge": Estimator(model=scikit_survival.read_ipc_ridge),
        "FastSurvivalSVM": Estimator(model=scikit_survival.read_svm),
        "NaiveSurvivalSVM": Estimator(model=scikit_survival.read_naive_svm),
        "GradientBoostingSurvivalAnalysis": Estimator(model=scikit_survival.read_boosting),
        "ComponentwiseGradientBoostingSurvivalAnalysis": Estimator(model=scikit_survival.read_componentwise),
        "SurvivalTree ExtraSurvivalTree": Estimator(model=scikit_survival.read_tree),
        "RandomSurvivalForest ExtraSurvivalTrees": Estimator(model=scikit_survival.read_forest),
    },
    ("lifelines", "lifelines"): {
        "CoxPHFitter": Estimator(model=lifelines.read_cox),
        "WeibullAFTFitter LogNormalAFTFitter LogLogisticAFTFitter": Estimator(model=lifelines.read_aft),
    },
    ("pyod", "PyOD"): {
        "IForest": Estimator(model=detectors.read_isolation_forest),
        "HBOS": Estimator(model=detectors.read_histograms),
        **wrappers.SECTION,
    },
}
