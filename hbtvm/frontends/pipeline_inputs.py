"""What pipelines take: the caller's columns, as the first estimators that read them were fitted on these."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.predictors import PREDICTORS
from hbtvm.frontends.sklearn_common import column_count, feature_names, require_fitted
from hbtvm.frontends.transformers import TRANSFORMERS, Where
from hbtvm.frontends.transformers.containers import SEARCHES, steps_of, unwrapped
from hbtvm.frontends.transformers.dispatch import unsupported
from hbtvm.frontends.transformers.texts import VECTORIZERS
from hbtvm.graph.graph import Graph, InputSpec

Readers = Mapping[tuple[str, str], Callable[[Record], Graph]]
"""Front ends of models that predict, by library and class name."""

WRAPPERS = (*SEARCHES, ("sklearn", "FrozenEstimator"))
TARGET = ("sklearn", "TransformedTargetRegressor")
PIPELINES = (("sklearn", "Pipeline"), ("imblearn", "Pipeline"))
SELECTOR = ("sklearn", "SelectFromModel")

LABEL_ENCODER = ("sklearn", "LabelEncoder")
_OF_LABELS = (LABEL_ENCODER, ("sklearn", "LabelBinarizer"))
"""Transformers of targets: they take labels, shape (n,), not rows."""

_MOST_INPUTS = 1 << 17
"""Columns that a pipeline may read: files may claim any number, and each is an object here."""

COMPOSED = frozenset((*TRANSFORMERS, *PREDICTORS, TARGET))
"""Classes that `hbtvm.frontends.pipelines.read` reads, by library and name."""


def key_of(model: Record) -> tuple[str, str]:
    """Return the library and class of an estimator."""
    return model.library, model.kind


def regressor_of(model: Record, where: Where) -> Record:
    """Return the fitted regressor of a ``TransformedTargetRegressor``; `UnsupportedModel` if it has none."""
    if not isinstance(model.get("regressor_", None), Record):
        raise UnsupportedModel(f"{where.step} is not fitted; hbtvm compiles trained models.")
    return model.record("regressor_")


def outer_steps(model: Record) -> tuple[tuple[str, str], ...]:
    """Names and classes of the outermost pipeline's steps; none if there is none."""
    where = Where()
    while key_of(model) in (*WRAPPERS, TARGET):
        where = where.child("within")
        model = regressor_of(model, where) if key_of(model) == TARGET else unwrapped(model, where)
    if key_of(model) not in PIPELINES:
        return ()
    return tuple((name, estimator.kind) for name, estimator, _ in steps_of(model, where))


def _within(model: Record, where: Where) -> list[Record]:
    """The estimators that get the rows as an estimator gets them, if it does nothing to them itself."""
    key = key_of(model)
    if key in PIPELINES:
        return [estimator for _, estimator, _ in steps_of(model, where)][:1]
    if key in PREDICTORS:
        return _members(model)
    if key == ("sklearn", "FeatureUnion"):
        parts = [part[1] for part in model.sequence("transformer_list") if isinstance(part, (tuple, list))]
        return [part for part in parts if isinstance(part, Record)]
    if key in WRAPPERS:
        return [unwrapped(model, where)]
    return [regressor_of(model, where)] if key == TARGET else []


def _members(model: Record) -> list[Record]:
    """The estimators of an ensemble that read what it reads."""
    found = model.get("estimators_", None) or model.get("calibrated_classifiers_", None)
    if not isinstance(found, (list, tuple)):
        found = [model.get("estimator_", None) or model.get("estimator", None)]
    return [one for one in found if isinstance(one, Record)]


def inputs_of(model: Record, where: Where, readers: Readers) -> InputSpec:
    """What the pipeline takes: the columns of the first step that knows them."""
    if _takes_values(model, where):
        return InputSpec(n_features=1, rows_are_values=True)
    found = _first(model, where, readers)
    if found is None:
        if key_of(model) in _OF_LABELS:
            return InputSpec(n_features=1, rows_are_values=True)
        if model.kind == "IsotonicRegression":
            return InputSpec(n_features=1, takes_vectors=True)
        return _of_last(model, where, readers)
    count, names = found
    if count > _MOST_INPUTS:
        raise where.unsupported(f"was fitted on {count:,} columns; at most {_MOST_INPUTS:,} are supported.")
    if names is not None and len(names) != count:
        raise where.damaged(f"it has names of {len(names)} columns, but {count} columns.")
    return InputSpec(
        n_features=count, feature_names=names, by_name=names is not None and _by_name(model, where)
    )


def _takes_values(model: Record, where: Where) -> bool:
    """Whether rows are one value each: if all that get the caller's rows are vectorizers."""
    if key_of(model) in VECTORIZERS:
        return True
    parts = _within(model, where)
    return bool(parts) and all(_takes_values(part, where.child("within")) for part in parts)


def _first(model: Record, where: Where, readers: Readers) -> tuple[int, tuple[str, ...] | None] | None:
    """The number of columns, and names, of the first estimator that was fitted on the caller's columns."""
    if "n_features_in_" in model:
        return column_count(model), feature_names(model)
    if key_of(model) == SELECTOR:
        # Its model knows how many there are, and of XGBoost's and LightGBM's only their readers do.
        inner = _members(model)[0]
        found = _first(inner, where, readers)
        count = found[0] if found else _of_last(inner, where, readers).n_features
        return count, feature_names(model)
    every = (_first(part, where.child("within"), readers) for part in _within(model, where))
    return next((one for one in every if one is not None), None)


def _of_last(model: Record, where: Where, readers: Readers) -> InputSpec:
    """The columns of a model that alone knows them (XGBoost's and LightGBM's say so in their own ways)."""
    while key_of(model) not in readers:
        if key_of(model) in PIPELINES:
            steps = [(estimator, place) for _, estimator, place in steps_of(model, where)]
        else:
            steps = [(part, where.child("within")) for part in _within(model, where)]
        if not steps and key_of(model) not in COMPOSED:
            raise unsupported(model, where, readers)
        if not steps:
            raise UnsupportedModel(f"{where.of(model).step} is not fitted; hbtvm compiles trained models.")
        model, where = steps[-1]
    if model.library == "sklearn":
        require_fitted(model)
    return readers[key_of(model)](model).input


def _by_name(model: Record, where: Where) -> bool:
    """Whether columns are found by name: if all that get the caller's frame are ``ColumnTransformer``s."""
    if key_of(model) == ("sklearn", "ColumnTransformer"):
        return True
    parts = _within(model, where)
    return bool(parts) and all(_by_name(part, where.child("within")) for part in parts)
