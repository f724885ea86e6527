"""scikit-learn's estimators."""

from __future__ import annotations

from hbtvm.frontends import target
from hbtvm.frontends.predictors import (
    bayes,
    calibration,
    clusters,
    dummies,
    kernels,
    least_squares,
    neighbors,
    networks,
    support_vectors,
)
from hbtvm.frontends.predictors.gaussian import discriminant, envelopes, likelihoods, mixtures
from hbtvm.frontends.predictors.gaussian import processes as gaussian_processes
from hbtvm.frontends.predictors.meta import (
    bagging,
    boosting,
    calibrated,
    multiclass,
    self_training,
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
from hbtvm.frontends.transformers import containers, curves, functions, polynomials, scaling, splines, texts
from hbtvm.frontends.transformers.encoders import onehot, ordinal
from hbtvm.frontends.transformers.imputers import iterative as iterative_imputing
from hbtvm.frontends.transformers.imputers import neighbors as neighbor_imputing
from hbtvm.frontends.transformers.imputers import simple as imputing
from hbtvm.frontends.transformers.projections import clusters as distances
from hbtvm.frontends.transformers.projections import embeddings, kernel_maps
from hbtvm.frontends.transformers.projections import matrices as projections
from hbtvm.frontends.transformers.selectors import selection
from hbtvm.frontends.transformers.where import Estimator, Section

PIPELINE = Estimator(
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

SECTIONS: dict[tuple[str, str], Section] = {
    ("sklearn", "scikit-learn, containers"): {
        "Pipeline": PIPELINE,
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
        "SparsePCA MiniBatchSparsePCA": Estimator(transforms=projections.sparse_pca),
        "BernoulliRBM": Estimator(transforms=projections.boltzmann_machine),
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
        "PolynomialCountSketch": Estimator(transforms=kernel_maps.polynomial_count_sketch),
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
        "SGDOneClassSVM": Estimator(predicts=support_vectors.linear_one_class),
        "KernelRidge": Estimator(predicts=kernels.kernel_ridge),
        "LabelPropagation LabelSpreading": Estimator(predicts=kernels.label_propagation),
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
        "Birch": Estimator(predicts=clusters.birch, transforms=distances.distances),
        "EllipticEnvelope": Estimator(predicts=envelopes.elliptic),
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
        "SelfTrainingClassifier": Estimator(inner=self_training.unwrapped, last=self_training.last),
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
}
