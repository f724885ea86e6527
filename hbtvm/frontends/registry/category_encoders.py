"""Encoders of category_encoders."""

from __future__ import annotations

from hbtvm.frontends.category_encoders import encoders, hashing
from hbtvm.frontends.transformers.where import Estimator, Section

SECTIONS: dict[tuple[str, str], Section] = {
    ("category_encoders", "category_encoders"): {
        "OrdinalEncoder": Estimator(transforms=encoders.ordinal, frames=True),
        "OneHotEncoder BinaryEncoder BaseNEncoder GrayEncoder SumEncoder HelmertEncoder "
        "BackwardDifferenceEncoder PolynomialEncoder": Estimator(transforms=encoders.by_columns, frames=True),
        "TargetEncoder MEstimateEncoder JamesSteinEncoder WOEEncoder QuantileEncoder GLMMEncoder": Estimator(
            transforms=encoders.by_value, frames=True
        ),
        "SummaryEncoder": Estimator(transforms=encoders.summary, frames=True),
        "RankHotEncoder": Estimator(transforms=encoders.rank_hot, frames=True),
        "NestedCVWrapper": Estimator(
            transforms=encoders.nested, first=encoders.nested_encoder, fitted=False, frames=True
        ),
        "LeaveOneOutEncoder": Estimator(transforms=encoders.leave_one_out, frames=True),
        "CatBoostEncoder": Estimator(transforms=encoders.catboost, frames=True),
        "HashingEncoder": Estimator(transforms=hashing.hashing, frames=True),
        "CountEncoder": Estimator(transforms=encoders.counts, frames=True),
    },
}
