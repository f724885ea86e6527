"""Stages of Spark ML. Those that are saved need no fitting."""

from __future__ import annotations

from hbtvm.frontends.spark import categories, columns, linear, predictors, trees
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("pyspark", "Spark ML (`pip install 'hbtvm[parquet]'`)"): {
        "VectorAssembler": Estimator(transforms=columns.assembler, fitted=False),
        "StringIndexerModel": Estimator(transforms=categories.string_indexer, fitted=False),
        "OneHotEncoderModel": Estimator(transforms=categories.one_hot, fitted=False),
        "IndexToString": Estimator(transforms=categories.index_to_string, fitted=False),
        "ImputerModel": Estimator(transforms=columns.imputer, fitted=False),
        "Bucketizer": Estimator(transforms=columns.bucketizer, fitted=False),
        "Binarizer": Estimator(transforms=columns.binarizer, fitted=False),
        "StandardScalerModel": Estimator(transforms=columns.standard_scaler, fitted=False),
        "MinMaxScalerModel": Estimator(transforms=columns.min_max_scaler, fitted=False),
        "MaxAbsScalerModel": Estimator(transforms=columns.max_abs_scaler, fitted=False),
        "RobustScalerModel": Estimator(transforms=columns.robust_scaler, fitted=False),
        "Normalizer": Estimator(transforms=columns.normalizer, fitted=False),
        "PCAModel": Estimator(transforms=columns.pca, fitted=False),
        "VectorSlicer": Estimator(transforms=columns.slicer, fitted=False),
        "ChiSqSelectorModel UnivariateFeatureSelectorModel VarianceThresholdSelectorModel": Estimator(
            transforms=columns.selector, fitted=False
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
        "NaiveBayesModel": Estimator(predicts=predictors.naive_bayes, fitted=False),
        "KMeansModel": Estimator(predicts=predictors.k_means, fitted=False),
    },
}
