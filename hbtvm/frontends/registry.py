"""The supported estimators by library and class: their readers, and their documentation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import pipelines, target
from hbtvm.frontends.lightgbm import estimator as lightgbm_estimator
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.frontends.predictors import (
    bayes,
    calibration,
    clusters,
    dummies,
    least_squares,
    neighbors,
    networks,
    support_vectors,
)
from hbtvm.frontends.predictors.gaussian import discriminant, likelihoods, mixtures
from hbtvm.frontends.predictors.gaussian import processes as gaussian_processes
from hbtvm.frontends.predictors.meta import (
    bagging,
    boosting,
    calibrated,
    multiclass,
    several_targets,
    stacking,
    thresholds,
    voting,
)
from hbtvm.frontends.sklearn import boosting as sklearn_boosting
from hbtvm.frontends.sklearn import forest as sklearn_forest
from hbtvm.frontends.sklearn import hist as sklearn_hist
from hbtvm.frontends.sklearn import isolation as sklearn_isolation
from hbtvm.frontends.sklearn import linear as sklearn_linear
from hbtvm.frontends.sklearn.common import require_fitted
from hbtvm.frontends.slices import slice_in_words
from hbtvm.frontends.supported import refusal, refusal_of_dict
from hbtvm.frontends.transformers import containers, curves, functions, polynomials, scaling, splines, texts
from hbtvm.frontends.transformers.encoders import onehot, ordinal
from hbtvm.frontends.transformers.imputers import iterative as iterative_imputing
from hbtvm.frontends.transformers.imputers import neighbors as neighbor_imputing
from hbtvm.frontends.transformers.imputers import simple as imputing
from hbtvm.frontends.transformers.projections import clusters as distances
from hbtvm.frontends.transformers.projections import embeddings, kernel_maps
from hbtvm.frontends.transformers.projections import matrices as projections
from hbtvm.frontends.transformers.selectors import selection
from hbtvm.frontends.transformers.where import Estimator, Where
from hbtvm.frontends.xgboost import estimator as xgboost_estimator
from hbtvm.graph.graph import Graph
from hbtvm.words.printable import shown

_PIPELINE = Estimator(
    transforms=containers.pipeline, last=containers.last_step, first=containers.first_step, fitted=False
)
_WRAPPER = Estimator(
    transforms=containers.wrapped, last=containers.last_wrapped, inner=containers.unwrapped, fitted=False
)
_TARGET = Estimator(
    predicts=target.predictor,
    last=target.last_regressor,
    inner=target.regressor_of,
    undoes=target.undone_graph,
)
_ELIMINATION = Estimator(transforms=selection.by_support, last=selection.last_eliminated, selects=True)
_UNIVARIATE = Estimator(transforms=selection.univariate, selects=True)
_PARTIAL = projections.partial_least_squares

_Section = dict[str, Estimator]
"""Estimators by the names of their classes: several where they are read alike, with a library if another."""

_SECTIONS: dict[tuple[str, str], _Section] = {
    ("sklearn", "scikit-learn, containers"): {
        "Pipeline": _PIPELINE,
        "ColumnTransformer": Estimator(transforms=containers.column_transformer, rows="names"),
        "FeatureUnion": Estimator(
            transforms=containers.feature_union, first=containers.parts_of_union, fitted=False
        ),
        "TransformedTargetRegressor": _TARGET,
        "GridSearchCV RandomizedSearchCV HalvingGridSearchCV HalvingRandomSearchCV": _WRAPPER,
        "skopt.BayesSearchCV optuna.OptunaSearchCV optuna_integration.OptunaSearchCV": _WRAPPER,
        "FrozenEstimator": _WRAPPER,
    },
    ("sklearn", "… numbers"): {
        "StandardScaler": Estimator(transforms=scaling.standard),
        "MinMaxScaler": Estimator(transforms=scaling.min_max),
        "MaxAbsScaler": Estimator(transforms=scaling.max_abs),
        "RobustScaler": Estimator(transforms=scaling.robust),
        "Normalizer": Estimator(transforms=scaling.normalizer, fitted=False),
        "Binarizer": Estimator(transforms=scaling.binarizer, fitted=False),
        "SimpleImputer": Estimator(transforms=imputing.simple_imputer),
        "KNNImputer": Estimator(transforms=neighbor_imputing.knn_imputer),
        "IterativeImputer": Estimator(transforms=iterative_imputing.iterative_imputer),
        "MissingIndicator": Estimator(transforms=imputing.missing_indicator),
        "KBinsDiscretizer": Estimator(transforms=curves.k_bins),
        "QuantileTransformer": Estimator(transforms=curves.quantile),
        "PowerTransformer": Estimator(transforms=curves.power),
        "SplineTransformer": Estimator(transforms=splines.spline),
        "PolynomialFeatures": Estimator(transforms=polynomials.polynomial),
        "FunctionTransformer": Estimator(transforms=functions.function_transformer, fitted=False),
    },
    ("sklearn", "… categories"): {
        "OneHotEncoder": Estimator(transforms=onehot.one_hot),
        "OrdinalEncoder": Estimator(transforms=ordinal.ordinal),
        "TargetEncoder": Estimator(transforms=ordinal.target),
        "LabelEncoder": Estimator(transforms=ordinal.label_encoder, rows="labels"),
        "LabelBinarizer": Estimator(transforms=ordinal.label_binarizer, rows="labels"),
    },
    ("sklearn", "… text"): {
        # A vocabulary may be given; hashes need none.
        "CountVectorizer": Estimator(transforms=texts.count_vectorizer, rows="values", fitted=False),
        "TfidfVectorizer": Estimator(transforms=texts.tfidf_vectorizer, rows="values", fitted=False),
        "TfidfTransformer": Estimator(transforms=texts.tfidf_transformer, fitted=False),
        "HashingVectorizer": Estimator(transforms=texts.hashing_vectorizer, rows="values", fitted=False),
        "FeatureHasher": Estimator(transforms=texts.feature_hasher, rows="values", fitted=False),
        "DictVectorizer": Estimator(transforms=texts.dict_vectorizer, rows="values"),
    },
    ("sklearn", "… selection"): {
        "VarianceThreshold": Estimator(transforms=selection.variance_threshold, selects=True),
        "SelectKBest SelectPercentile SelectFpr SelectFdr SelectFwe": _UNIVARIATE,
        "GenericUnivariateSelect": Estimator(transforms=selection.generic_univariate, selects=True),
        # It may take a model that was fitted elsewhere.
        "SelectFromModel": Estimator(transforms=selection.from_model, fitted=False, selects=True),
        "RFE RFECV": _ELIMINATION,
        "SequentialFeatureSelector": Estimator(transforms=selection.by_support, selects=True),
    },
    ("sklearn", "… projections"): {
        "PCA": Estimator(transforms=projections.pca, scores=likelihoods.principal_components),
        "IncrementalPCA": Estimator(transforms=projections.pca),
        "KernelCenterer": Estimator(transforms=projections.kernel_centerer),
        "TruncatedSVD NeighborhoodComponentsAnalysis": Estimator(transforms=projections.by_components),
        "FeatureAgglomeration": Estimator(transforms=projections.agglomeration),
        "GaussianRandomProjection SparseRandomProjection": Estimator(
            transforms=projections.random_projection
        ),
        "FastICA": Estimator(transforms=projections.fast_ica),
        "FactorAnalysis": Estimator(
            transforms=projections.factor_analysis, scores=likelihoods.factor_analysis
        ),
        "PLSRegression PLSCanonical CCA": Estimator(
            predicts=least_squares.partial_least_squares, transforms=_PARTIAL
        ),
        "PLSSVD": Estimator(transforms=_PARTIAL),
        "LinearDiscriminantAnalysis": Estimator(
            predicts=discriminant.linear, transforms=projections.linear_discriminant
        ),
        "KernelPCA": Estimator(transforms=kernel_maps.kernel_pca),
        "Nystroem": Estimator(transforms=kernel_maps.nystroem),
        "RBFSampler": Estimator(transforms=kernel_maps.rbf_sampler),
        "SkewedChi2Sampler": Estimator(transforms=kernel_maps.skewed_chi2_sampler),
        "AdditiveChi2Sampler": Estimator(transforms=kernel_maps.additive_chi2_sampler),
        "RandomTreesEmbedding": Estimator(transforms=embeddings.random_trees),
    },
    ("sklearn", "… linear"): {
        " ".join(sklearn_linear.REGRESSORS): Estimator(model=sklearn_linear.read_regressor),
        " ".join(sklearn_linear.GENERALISED): Estimator(model=sklearn_linear.read_generalised),
        " ".join(sklearn_linear.CLASSIFIERS): Estimator(model=sklearn_linear.read_classifier),
        "RANSACRegressor": Estimator(model=sklearn_linear.read_ransac),
    },
    ("sklearn", "… trees"): {
        "DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor": Estimator(
            model=sklearn_forest.read_tree
        ),
        "RandomForestClassifier RandomForestRegressor ExtraTreesClassifier ExtraTreesRegressor": Estimator(
            model=sklearn_forest.read_forest
        ),
        "GradientBoostingClassifier GradientBoostingRegressor": Estimator(model=sklearn_boosting.read),
        "HistGradientBoostingClassifier HistGradientBoostingRegressor": Estimator(model=sklearn_hist.read),
        "IsolationForest": Estimator(model=sklearn_isolation.read),
    },
    ("sklearn", "… kernels, neighbours"): {
        "SVC NuSVC": Estimator(predicts=support_vectors.classifier),
        "SVR NuSVR": Estimator(predicts=support_vectors.regressor),
        "OneClassSVM": Estimator(predicts=support_vectors.one_class),
        "KNeighborsClassifier": Estimator(predicts=neighbors.classifier),
        "KNeighborsRegressor": Estimator(predicts=neighbors.regressor),
        "RadiusNeighborsClassifier": Estimator(predicts=neighbors.radius_classifier),
        "RadiusNeighborsRegressor": Estimator(predicts=neighbors.radius_regressor),
        "NearestCentroid": Estimator(predicts=clusters.nearest_centroid),
        "LocalOutlierFactor": Estimator(predicts=neighbors.outlier_factor),
        "GaussianProcessRegressor": Estimator(predicts=gaussian_processes.regressor),
        "GaussianProcessClassifier": Estimator(predicts=gaussian_processes.classifier),
        "_BinaryGaussianProcessClassifierLaplace": Estimator(predicts=gaussian_processes.binary_classifier),
    },
    ("sklearn", "… densities, layers, clusters"): {
        "GaussianNB": Estimator(predicts=bayes.gaussian),
        "BernoulliNB": Estimator(predicts=bayes.bernoulli),
        "MultinomialNB": Estimator(predicts=bayes.multinomial),
        "ComplementNB": Estimator(predicts=bayes.complement),
        "CategoricalNB": Estimator(predicts=bayes.categorical),
        "QuadraticDiscriminantAnalysis": Estimator(predicts=discriminant.quadratic),
        "GaussianMixture BayesianGaussianMixture": Estimator(predicts=mixtures.mixture),
        "MLPClassifier": Estimator(predicts=networks.classifier),
        "MLPRegressor": Estimator(predicts=networks.regressor),
        "IsotonicRegression": Estimator(
            predicts=calibration.isotonic_regression, rows="vectors", transform_predicts=True
        ),
        "DummyClassifier": Estimator(predicts=dummies.classifier),
        "DummyRegressor": Estimator(predicts=dummies.regressor),
        "KMeans MiniBatchKMeans": Estimator(predicts=clusters.k_means, transforms=distances.distances),
        "BisectingKMeans": Estimator(predicts=clusters.bisecting, transforms=distances.distances),
        "MeanShift AffinityPropagation": Estimator(predicts=clusters.nearest_centre),
    },
    ("sklearn", "… ensembles over models"): {
        "VotingClassifier": Estimator(predicts=voting.classifier, transforms=voting.columns),
        "VotingRegressor": Estimator(predicts=voting.regressor, transforms=voting.columns),
        "StackingClassifier": Estimator(predicts=stacking.classifier, transforms=stacking.columns),
        "StackingRegressor": Estimator(predicts=stacking.regressor, transforms=stacking.columns),
        "BaggingClassifier": Estimator(predicts=bagging.classifier),
        "BaggingRegressor": Estimator(predicts=bagging.regressor),
        "AdaBoostClassifier": Estimator(predicts=boosting.classifier),
        "AdaBoostRegressor": Estimator(predicts=boosting.regressor),
        "CalibratedClassifierCV": Estimator(predicts=calibrated.classifier),
        "OneVsRestClassifier": Estimator(predicts=multiclass.one_vs_rest),
        "OneVsOneClassifier": Estimator(predicts=multiclass.one_vs_one),
        "OutputCodeClassifier": Estimator(predicts=multiclass.output_code),
        "_ConstantPredictor": Estimator(predicts=multiclass.constant_predictor),
        "MultiOutputClassifier": Estimator(predicts=several_targets.classifiers),
        "MultiOutputRegressor": Estimator(predicts=several_targets.regressors),
        "ClassifierChain": Estimator(predicts=several_targets.classifier_chain),
        "RegressorChain": Estimator(predicts=several_targets.regressor_chain),
        "FixedThresholdClassifier TunedThresholdClassifierCV": Estimator(predicts=thresholds.classifier),
    },
    ("imblearn", "imbalanced-learn"): {
        "Pipeline": _PIPELINE,
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
"""By library and by the row of the table in docs/reference/models.md that names them."""


def _estimators() -> dict[tuple[str, str], Estimator]:
    result = {}
    for (library, section), rows in _SECTIONS.items():
        for names, how in rows.items():
            for name in names.split():
                other, _, kind = name.rpartition(".")
                result[other or library, kind] = replace(how, section=section)
    return result


ESTIMATORS = _estimators()
"""By library and class name. A class's module may differ by release, so it does not matter."""


def read(model: Any) -> Graph:
    """Read the value of a pickle.

    `model`: a `Record`; other values are refused.
    Raises `UnsupportedModel` if it is none of `ESTIMATORS`, not fitted, or of a kind that is not supported.
    Raises `ModelError` if it is damaged.
    """
    require_supported(model)
    try:
        return _read(model)
    except UnsupportedModel as error:
        part = slice_in_words(model, _read)
        if not part:
            raise
        raise UnsupportedModel(f"{error}{part}") from error


def _read(model: Record) -> Graph:
    try:
        read = ESTIMATORS[class_of(model)].model
        if read is None:
            return pipelines.read(model, Where(estimators=ESTIMATORS))
        if model.library == "sklearn":
            require_fitted(model)
        return read(model)
    except ModelError:  # a ValueError as well
        raise
    except (AttributeError, TypeError, KeyError, IndexError, ValueError, OverflowError) as error:
        raise ModelError(
            f"the {model.kind} is damaged: {type(error).__name__}: {shown(error, most=200)}."
        ) from error


def require_supported(model: Any) -> None:
    """Refuse unsupported models; errors say what to pass instead.

    `model`: a value of a pickle, or an object in memory.
    Raises `UnsupportedModel` if its class is none of `ESTIMATORS`.
    """
    if isinstance(model, type):
        raise UnsupportedModel(f"expected a trained model, got the class {model.__name__}.")
    if isinstance(model, Global):
        raise UnsupportedModel(f"expected a trained model, got {kind_of(model)}.")
    if isinstance(model, dict):
        raise UnsupportedModel(
            refusal_of_dict({key: class_of(value) in ESTIMATORS for key, value in model.items()})
        )
    library, name = class_of(model)
    if (library, name) not in ESTIMATORS:
        raise UnsupportedModel(refusal(library, name))


def class_of(model: Any) -> tuple[str, str]:
    """Return the library and the name of the class of an object in memory or a `Record`."""
    if isinstance(model, Record):
        return model.library, model.kind
    kind = type(model)
    return kind.__module__.partition(".")[0], kind.__name__
