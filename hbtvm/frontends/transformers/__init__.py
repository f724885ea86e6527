"""Front ends of transformers: short functions that turn a table of columns into another one."""

from hbtvm.frontends.transformers import (
    clusters,
    containers,
    functions,
    imputing,
    kernel_maps,
    neighbor_imputing,
    onehot,
    ordinal,
    projections,
    scaling,
    selection,
)
from hbtvm.frontends.transformers.dispatch import TRANSFORMERS, Transformer, apply
from hbtvm.frontends.transformers.where import Where

__all__ = ["TRANSFORMERS", "Transformer", "Where", "apply"]

TRANSFORMERS.update(
    {
        ("sklearn", "Pipeline"): containers.pipeline,
        ("sklearn", "ColumnTransformer"): containers.column_transformer,
        ("sklearn", "FeatureUnion"): containers.feature_union,
        ("sklearn", "FrozenEstimator"): containers.wrapped,
        ("sklearn", "StandardScaler"): scaling.standard,
        ("sklearn", "MinMaxScaler"): scaling.min_max,
        ("sklearn", "MaxAbsScaler"): scaling.max_abs,
        ("sklearn", "RobustScaler"): scaling.robust,
        ("sklearn", "Normalizer"): scaling.normalizer,
        ("sklearn", "Binarizer"): scaling.binarizer,
        ("sklearn", "SimpleImputer"): imputing.simple_imputer,
        ("sklearn", "KNNImputer"): neighbor_imputing.knn_imputer,
        ("sklearn", "MissingIndicator"): imputing.missing_indicator,
        ("sklearn", "OneHotEncoder"): onehot.one_hot,
        ("sklearn", "OrdinalEncoder"): ordinal.ordinal,
        ("sklearn", "LabelEncoder"): ordinal.label_encoder,
        ("sklearn", "LabelBinarizer"): ordinal.label_binarizer,
        ("sklearn", "PCA"): projections.pca,
        ("sklearn", "IncrementalPCA"): projections.pca,
        ("sklearn", "TruncatedSVD"): projections.truncated_svd,
        ("sklearn", "GaussianRandomProjection"): projections.random_projection,
        ("sklearn", "SparseRandomProjection"): projections.random_projection,
        ("sklearn", "FastICA"): projections.fast_ica,
        ("sklearn", "FactorAnalysis"): projections.factor_analysis,
        ("sklearn", "PLSRegression"): projections.partial_least_squares,
        ("sklearn", "PLSCanonical"): projections.partial_least_squares,
        ("sklearn", "CCA"): projections.partial_least_squares,
        ("sklearn", "PLSSVD"): projections.partial_least_squares,
        ("sklearn", "LinearDiscriminantAnalysis"): projections.linear_discriminant,
        ("sklearn", "RBFSampler"): kernel_maps.rbf_sampler,
        ("sklearn", "SkewedChi2Sampler"): kernel_maps.skewed_chi2_sampler,
        ("sklearn", "AdditiveChi2Sampler"): kernel_maps.additive_chi2_sampler,
        ("sklearn", "Nystroem"): kernel_maps.nystroem,
        ("sklearn", "KernelPCA"): kernel_maps.kernel_pca,
        ("sklearn", "KMeans"): clusters.distances,
        ("sklearn", "MiniBatchKMeans"): clusters.distances,
        ("sklearn", "BisectingKMeans"): clusters.distances,
        ("sklearn", "FunctionTransformer"): functions.function_transformer,
        ("sklearn", "VarianceThreshold"): selection.variance_threshold,
        ("sklearn", "SelectKBest"): selection.univariate,
        ("sklearn", "SelectPercentile"): selection.univariate,
        ("sklearn", "SelectFpr"): selection.univariate,
        ("sklearn", "SelectFdr"): selection.univariate,
        ("sklearn", "SelectFwe"): selection.univariate,
        ("sklearn", "GenericUnivariateSelect"): selection.generic_univariate,
        ("sklearn", "SelectFromModel"): selection.from_model,
        ("sklearn", "RFE"): selection.by_support,
        ("sklearn", "RFECV"): selection.by_support,
        ("sklearn", "SequentialFeatureSelector"): selection.by_support,
    }
)
TRANSFORMERS.update(dict.fromkeys(containers.SEARCHES, containers.wrapped))
