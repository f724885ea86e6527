"""The model classes that are supported, and the sentence that refuses others."""

from __future__ import annotations

LIBRARIES = {
    "sklearn": (
        "DecisionTree, ExtraTree, RandomForest, ExtraTrees, GradientBoosting and HistGradientBoosting "
        "(Classifier and Regressor), and IsolationForest"
    ),
    "xgboost": "Booster, XGBClassifier, XGBRegressor, XGBRanker, XGBRFClassifier and XGBRFRegressor",
    "lightgbm": "Booster, LGBMClassifier, LGBMRegressor and LGBMRanker",
}
"""Supported classes in words, by the library's package."""


def refusal(library: str, name: str) -> str:
    """The sentence for a class that is not supported, naming those that are."""
    if library in LIBRARIES:
        return f"{library}'s {name} is not supported; supported of {library} are {LIBRARIES[library]}."
    return (
        f"a {name} (from module {library!r}) is no supported model; hbtvm compiles tree ensembles of "
        "scikit-learn, XGBoost and LightGBM."
    )
