"""The estimator classes that are supported, each with the function that reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import (
    lightgbm_estimator,
    pipelines,
    sklearn_boosting,
    sklearn_forest,
    sklearn_hist,
    sklearn_isolation,
    sklearn_linear,
    xgboost_estimator,
)
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.frontends.pipeline_inputs import COMPOSED
from hbtvm.frontends.sklearn_common import require_fitted
from hbtvm.frontends.supported import refusal, refusal_of_dict
from hbtvm.frontends.transformers.dispatch import MODELS
from hbtvm.graph.graph import Graph
from hbtvm.printable import shown

Reader = Callable[[Record], Graph]

READERS: dict[tuple[str, str], Reader] = {
    ("sklearn", "DecisionTreeClassifier"): sklearn_forest.read_tree,
    ("sklearn", "DecisionTreeRegressor"): sklearn_forest.read_tree,
    ("sklearn", "ExtraTreeClassifier"): sklearn_forest.read_tree,
    ("sklearn", "ExtraTreeRegressor"): sklearn_forest.read_tree,
    ("sklearn", "RandomForestClassifier"): sklearn_forest.read_forest,
    ("sklearn", "RandomForestRegressor"): sklearn_forest.read_forest,
    ("sklearn", "ExtraTreesClassifier"): sklearn_forest.read_forest,
    ("sklearn", "ExtraTreesRegressor"): sklearn_forest.read_forest,
    ("imblearn", "BalancedRandomForestClassifier"): sklearn_forest.read_forest,
    ("sklearn", "GradientBoostingClassifier"): sklearn_boosting.read,
    ("sklearn", "GradientBoostingRegressor"): sklearn_boosting.read,
    ("sklearn", "HistGradientBoostingClassifier"): sklearn_hist.read,
    ("sklearn", "HistGradientBoostingRegressor"): sklearn_hist.read,
    ("sklearn", "IsolationForest"): sklearn_isolation.read,
    **{("sklearn", name): sklearn_linear.read_regressor for name in sklearn_linear.REGRESSORS},
    **{("sklearn", name): sklearn_linear.read_generalised for name in sklearn_linear.GENERALISED},
    **{("sklearn", name): sklearn_linear.read_classifier for name in sklearn_linear.CLASSIFIERS},
    ("sklearn", "RANSACRegressor"): sklearn_linear.read_ransac,
    ("xgboost", "Booster"): xgboost_estimator.read_booster,
    ("xgboost", "XGBClassifier"): xgboost_estimator.read_estimator,
    ("xgboost", "XGBRegressor"): xgboost_estimator.read_estimator,
    ("xgboost", "XGBRanker"): xgboost_estimator.read_estimator,
    ("xgboost", "XGBRFClassifier"): xgboost_estimator.read_estimator,
    ("xgboost", "XGBRFRegressor"): xgboost_estimator.read_estimator,
    ("xgboost", "XGBModel"): xgboost_estimator.read_estimator,
    ("lightgbm", "Booster"): lightgbm_estimator.read_booster,
    ("lightgbm", "LGBMClassifier"): lightgbm_estimator.read_estimator,
    ("lightgbm", "LGBMRegressor"): lightgbm_estimator.read_estimator,
    ("lightgbm", "LGBMRanker"): lightgbm_estimator.read_estimator,
    ("lightgbm", "LGBMModel"): lightgbm_estimator.read_estimator,
}
"""By library and class name. A class's module may differ by release, so it does not matter."""


def read(model: Any) -> Graph:
    """Read what a pickle holds.

    Parameters
    ----------
    model
        A `Record`; any other value of a pickle is refused.

    Raises
    ------
    UnsupportedModel
        If it is none of `READERS` and no pipeline of such, not fitted, or of a kind that is not supported.
    ModelError
        If it is damaged.
    """
    require_supported(model)
    try:
        if class_of(model) in COMPOSED:
            return pipelines.read(model, READERS)
        if model.library == "sklearn":
            require_fitted(model)
        reader = READERS[model.library, model.kind]
        return reader(model)
    except ModelError:  # a ValueError as well
        raise
    except (AttributeError, TypeError, KeyError, IndexError, ValueError, OverflowError) as error:
        raise ModelError(
            f"the {model.kind} is damaged: {type(error).__name__}: {shown(error, most=200)}."
        ) from error


MODELS["predictor"] = pipelines.reader(READERS)


def require_supported(model: Any) -> None:
    """Refuse what no reader reads, with a word on what to pass instead.

    Parameters
    ----------
    model
        A value of a pickle, or an object in memory.

    Raises
    ------
    UnsupportedModel
        If it is none of `READERS`, and nothing that may hold one.
    """
    if isinstance(model, type):
        raise UnsupportedModel(f"expected a trained model, got the class {model.__name__}.")
    if isinstance(model, Global):
        raise UnsupportedModel(f"expected a trained model, got {kind_of(model)}.")
    if isinstance(model, dict):
        raise UnsupportedModel(
            refusal_of_dict({key: is_supported(class_of(value)) for key, value in model.items()})
        )
    library, name = class_of(model)
    if not is_supported((library, name)):
        raise UnsupportedModel(refusal(library, name))


def is_supported(kind: tuple[str, str]) -> bool:
    """Whether there is a front end for a class, given by library and name, whatever an object of it holds."""
    return kind in READERS or kind in COMPOSED


def class_of(model: Any) -> tuple[str, str]:
    """The library and the name of an object's class, be it in memory or a `Record`."""
    if isinstance(model, Record):
        return model.library, model.kind
    kind = type(model)
    return kind.__module__.partition(".")[0], kind.__name__
