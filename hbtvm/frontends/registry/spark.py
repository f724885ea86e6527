"""Stages of Spark ML. Those that are saved need no fitting."""

from __future__ import annotations

from hbtvm.frontends.spark import categories, clusters, columns, linear, predictors, trees
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
        "ElementwiseProduct": Estimator(transforms=columns.elementwise, fitted=False),
        "PolynomialExpansion": Estimator(transforms=columns.polynomial, fitted=False),
        "DCT": Estimator(transforms=columns.cosine_transform, fitted=False),
        "VectorSizeHint": Estimator(transforms=columns.size_hint, fitted=False),
        "VectorIndexerModel": Estimator(transforms=categories.vector_indexer, fitted=False),
        "VectorSlicer": Estimator(transforms=columns.slicer, fitted=False),
        "ChiSqSelectorModel UnivariateFeatureSelectorModel VarianceThresholdSelectorModel": Estimator(
            transforms=columns.selector, fitted=False
        ),
        "LinearRegressionModel": Estimator(model=linear.regression),
        "GeneralizedLinearRegressionModel": Estimator(model=linear.generalised),
        "AFTSurvivalRegressionModel": Estimator(model=linear.accelerated_failure_time),
        "LogisticRegressionModel": Estimator(model=linear.logistic),
        "LinearSVCModel": Estimator(model=linear.support_vectors),
        "DecisionTreeClassificationModel RandomForestClassificationModel": Estimator(model=trees.classifier),
        "DecisionTreeRegressionModel RandomForestRegressionModel GBTRegressionModel": Estimator(
            model=trees.regressor
        ),
        "GBTClassificationModel": Estimator(model=trees.boosted_classifier),
        "NaiveBayesModel": Estimator(predicts=predictors.naive_bayes, fitted=False),
        "MultilayerPerceptronClassificationModel": Estimator(predicts=predictors.perceptron, fitted=False),
        "FMRegressionModel": Estimator(predicts=predictors.factorization_regressor, fitted=False),
        "FMClassificationModel": Estimator(predicts=predictors.factorization_classifier, fitted=False),
        "IsotonicRegressionModel": Estimator(predicts=predictors.isotonic, fitted=False),
        "OneVsRestModel": Estimator(predicts=predictors.one_vs_rest, fitted=False),
        "KMeansModel": Estimator(predicts=clusters.k_means, fitted=False),
        "BisectingKMeansModel": Estimator(predicts=clusters.bisecting, fitted=False),
        "GaussianMixtureModel": Estimator(predicts=clusters.gaussian_mixture, fitted=False),
    },
}
