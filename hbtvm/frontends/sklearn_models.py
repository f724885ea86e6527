"""scikit-learn: dispatch of a fitted estimator to the front end of its family."""

from __future__ import annotations

from typing import Any

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import sklearn_boosting, sklearn_forest, sklearn_hist, sklearn_isolation
from hbtvm.pipeline.pipeline import Pipeline

_READERS = {
    "DecisionTreeClassifier": sklearn_forest.read_tree,
    "DecisionTreeRegressor": sklearn_forest.read_tree,
    "ExtraTreeClassifier": sklearn_forest.read_tree,
    "ExtraTreeRegressor": sklearn_forest.read_tree,
    "RandomForestClassifier": sklearn_forest.read_forest,
    "RandomForestRegressor": sklearn_forest.read_forest,
    "ExtraTreesClassifier": sklearn_forest.read_forest,
    "ExtraTreesRegressor": sklearn_forest.read_forest,
    "GradientBoostingClassifier": sklearn_boosting.read,
    "GradientBoostingRegressor": sklearn_boosting.read,
    "HistGradientBoostingClassifier": sklearn_hist.read,
    "HistGradientBoostingRegressor": sklearn_hist.read,
    "IsolationForest": sklearn_isolation.read,
}

ESTIMATORS = tuple(_READERS)


def from_object(model: Any) -> Pipeline:
    """Read a fitted estimator of one of the classes `ESTIMATORS`.

    Raises
    ------
    UnsupportedModel
        If it is not fitted or has a part that is not supported.
    ModelError
        If its attributes are not those of a fitted estimator (a damaged pickle).
    """
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    name = type(model).__name__
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise UnsupportedModel(f"the {name} is not fitted; hbtvm compiles trained models.") from error
    try:
        return _READERS[name](model)
    except ModelError:
        raise
    except (AttributeError, TypeError, KeyError, IndexError, ValueError) as error:
        raise ModelError(f"the {name} is damaged: {type(error).__name__}: {error}.") from error
