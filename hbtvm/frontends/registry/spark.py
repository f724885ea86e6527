"""Stages of Spark ML."""

from __future__ import annotations

from hbtvm.frontends.spark import categories, columns, linear, predictors, trees
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("pyspark", "Spark ML (`pip install 'hbtvm[parquet]'`)"): {
        "VectorAssembler": Estimator(transforms=columns.assembler),
        "StringIndexerModel": Estimator(transforms=categories.string_indexer),
        "OneHotEncoderModel": Estimator(transforms=categories.one_hot),
        "IndexToString": Estimator(transforms=categories.index_to_string),
        "ImputerModel": Estimator(transforms=columns.imputer),
        "Bucketizer": Estimator(transforms=columns.bucketizer),
        "Binarizer": Estimator(transforms=columns.binarizer),
        "StandardScalerModel": Estimator(transforms=columns.standard_scaler),
        "MinMaxScalerModel": Estimator(transforms=columns.min_max_scaler),
        "MaxAbsScalerModel": Estimator(transforms=columns.max_abs_scaler),
        "RobustScalerModel": Estimator(transforms=columns.robust_scaler),
        "Normalizer": Estimator(transforms=columns.normalizer),
        "PCAModel": Estimator(transforms=columns.pca),
        "VectorSlicer": Estimator(transforms=columns.slicer),
        "ChiSqSelectorModel UnivariateFeatureSelectorModel VarianceThresholdSelectorModel": Estimator(
            transforms=columns.selector
        ),
        "LinearRegressionModel": Estimator(model=linear.regression),
        "GeneralizedLinearRegressionModel": Estimator(model=linear.generalised),
        "LogisticRegressionModel": Estimator(model=linear.logistic),
        "LinearSVCModel": Estimator(model=linear.support_vectors),
        "DecisionTreeClassificationModel RandomForestClassificationModel": Estimator(model=trees.classifier),
        "DecisionTreeRegressionModel RandomForestRegressionModel GBTRegressionModel": Estimator(
            model=trees.regressor
        ),
        "GBTClassificationModel": Estimator(model=trees.boosted_classifier),
        "NaiveBayesModel": Estimator(predicts=predictors.naive_bayes),
        "KMeansModel": Estimator(predicts=predictors.k_means),
    },
}
