"""Front ends of estimators that predict, as operators over a table: the registry."""

from __future__ import annotations

from hbtvm.frontends.predictors import (
    bayes,
    clusters,
    discriminant,
    dummies,
    least_squares,
    mixtures,
    neighbors,
    networks,
    support_vectors,
)
from hbtvm.frontends.predictors.reading import Build, Reader

__all__ = ["PREDICTORS", "Build", "Reader"]

PREDICTORS: dict[tuple[str, str], Reader] = {
    ("sklearn", "KMeans"): clusters.k_means,
    ("sklearn", "MiniBatchKMeans"): clusters.k_means,
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
    ("sklearn", "DummyClassifier"): dummies.classifier,
    ("sklearn", "DummyRegressor"): dummies.regressor,
}
"""By library and class name."""
