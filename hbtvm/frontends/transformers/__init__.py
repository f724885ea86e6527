"""Front ends of transformers: short functions that turn a table of columns into another one."""

from hbtvm.frontends.transformers import (
    containers,
    functions,
    imputing,
    onehot,
    ordinal,
    projections,
    scaling,
    selection,
    texts,
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
        ("sklearn", "MissingIndicator"): imputing.missing_indicator,
        ("sklearn", "OneHotEncoder"): onehot.one_hot,
        ("sklearn", "OrdinalEncoder"): ordinal.ordinal,
        ("sklearn", "LabelEncoder"): ordinal.label_encoder,
        ("sklearn", "LabelBinarizer"): ordinal.label_binarizer,
        ("sklearn", "PCA"): projections.pca,
        ("sklearn", "IncrementalPCA"): projections.pca,
        ("sklearn", "FunctionTransformer"): functions.function_transformer,
        ("sklearn", "CountVectorizer"): texts.count_vectorizer,
        ("sklearn", "TfidfVectorizer"): texts.tfidf_vectorizer,
        ("sklearn", "TfidfTransformer"): texts.tfidf_transformer,
        ("sklearn", "HashingVectorizer"): texts.hashing_vectorizer,
        ("sklearn", "FeatureHasher"): texts.feature_hasher,
        ("sklearn", "DictVectorizer"): texts.dict_vectorizer,
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
