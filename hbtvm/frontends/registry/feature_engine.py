"""Transformers of feature-engine."""

from __future__ import annotations

from hbtvm.frontends.feature_engine import creation, dates, encoders, numbers, wrappers
from hbtvm.frontends.registry.scikit_learn import PIPELINE
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("feature_engine", "feature-engine"): {
        "Pipeline": PIPELINE,
        **{
            names: Estimator(transforms=read, frames=True)
            for names, read in {
                "MeanMedianImputer ArbitraryNumberImputer EndTailImputer CategoricalImputer": numbers.imputer,
                "AddMissingIndicator": numbers.indicator,
                "OneHotEncoder": encoders.one_hot,
                "RareLabelEncoder": encoders.rare,
                "OrdinalEncoder MeanEncoder CountFrequencyEncoder WoEEncoder DecisionTreeEncoder": (
                    encoders.by_value
                ),
                "EqualFrequencyDiscretiser EqualWidthDiscretiser GeometricWidthDiscretiser "
                "ArbitraryDiscretiser DecisionTreeDiscretiser": numbers.discretiser,
                "Winsorizer ArbitraryOutlierCapper": numbers.capper,
                "LogTransformer LogCpTransformer": numbers.log,
                "PowerTransformer": numbers.power,
                "ReciprocalTransformer": numbers.reciprocal,
                "BoxCoxTransformer": numbers.box_cox,
                "YeoJohnsonTransformer": numbers.yeo_johnson,
                "ArcSinhTransformer": numbers.arcsinh,
                "ArcsinTransformer": numbers.arcsin,
                "MathFeatures": creation.mathematics,
                "RelativeFeatures": creation.relations,
                "SklearnTransformerWrapper": wrappers.wrapper,
                "MeanNormalizationScaler": numbers.mean_normalization,
                "CyclicalFeatures": numbers.cyclical,
                "DatetimeFeatures": dates.datetime_features,
                "DropFeatures DropConstantFeatures DropDuplicateFeatures DropCorrelatedFeatures "
                "SmartCorrelatedSelection DropHighPSIFeatures SelectByInformationValue SelectByShuffling "
                "SelectBySingleFeaturePerformance SelectByTargetMeanPerformance RecursiveFeatureElimination "
                "RecursiveFeatureAddition ProbeFeatureSelection MRMR": numbers.dropped,
            }.items()
        },
    },
}
