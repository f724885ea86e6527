"""Front ends of estimators that predict, as operators over a table: the registry."""

from __future__ import annotations

from hbtvm.frontends.predictors import (
    bagging,
    bayes,
    boosting,
    calibrated,
    calibration,
    clusters,
    discriminant,
    dummies,
    gaussian_processes,
    least_squares,
    likelihoods,
    mixtures,
    multiclass,
    neighbors,
    networks,
    several_targets,
    stacking,
    support_vectors,
    thresholds,
    voting,
)
from hbtvm.frontends.predictors.reading import Build, Reader
from hbtvm.frontends.transformers import TRANSFORMERS

__all__ = ["PREDICTORS", "SCORES", "Build", "Reader"]

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
    ("sklearn", "BisectingKMeans"): clusters.bisecting,
    ("sklearn", "MeanShift"): clusters.nearest_centre,
    ("sklearn", "AffinityPropagation"): clusters.nearest_centre,
    ("sklearn", "NearestCentroid"): clusters.nearest_centroid,
    ("sklearn", "GaussianMixture"): mixtures.mixture,
    ("sklearn", "BayesianGaussianMixture"): mixtures.mixture,
    ("sklearn", "KNeighborsClassifier"): neighbors.classifier,
    ("sklearn", "KNeighborsRegressor"): neighbors.regressor,
    ("sklearn", "RadiusNeighborsClassifier"): neighbors.radius_classifier,
    ("sklearn", "RadiusNeighborsRegressor"): neighbors.radius_regressor,
    ("sklearn", "LocalOutlierFactor"): neighbors.outlier_factor,
    ("sklearn", "LinearDiscriminantAnalysis"): discriminant.linear,
    ("sklearn", "QuadraticDiscriminantAnalysis"): discriminant.quadratic,
    ("sklearn", "MLPClassifier"): networks.classifier,
    ("sklearn", "MLPRegressor"): networks.regressor,
    ("sklearn", "GaussianNB"): bayes.gaussian,
    ("sklearn", "BernoulliNB"): bayes.bernoulli,
    ("sklearn", "MultinomialNB"): bayes.multinomial,
    ("sklearn", "ComplementNB"): bayes.complement,
    ("sklearn", "CategoricalNB"): bayes.categorical,
    ("sklearn", "SVC"): support_vectors.classifier,
    ("sklearn", "NuSVC"): support_vectors.classifier,
    ("sklearn", "SVR"): support_vectors.regressor,
    ("sklearn", "NuSVR"): support_vectors.regressor,
    ("sklearn", "OneClassSVM"): support_vectors.one_class,
    ("sklearn", "PLSRegression"): least_squares.partial_least_squares,
    ("sklearn", "PLSCanonical"): least_squares.partial_least_squares,
    ("sklearn", "CCA"): least_squares.partial_least_squares,
    ("sklearn", "GaussianProcessRegressor"): gaussian_processes.regressor,
    ("sklearn", "GaussianProcessClassifier"): gaussian_processes.classifier,
    ("sklearn", "_BinaryGaussianProcessClassifierLaplace"): gaussian_processes.binary_classifier,
    ("sklearn", "DummyClassifier"): dummies.classifier,
    ("sklearn", "DummyRegressor"): dummies.regressor,
}
"""By library and class name."""

TRANSFORMERS.update(
    {
        ("sklearn", "VotingClassifier"): voting.columns,
        ("sklearn", "VotingRegressor"): voting.columns,
        ("sklearn", "StackingClassifier"): stacking.columns,
        ("sklearn", "StackingRegressor"): stacking.columns,
    }
)

SCORES: dict[tuple[str, str], Reader] = {
    ("sklearn", "PCA"): likelihoods.principal_components,
    ("sklearn", "FactorAnalysis"): likelihoods.factor_analysis,
}
"""What ``score_samples`` gives of transformers."""
