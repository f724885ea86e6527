"""What pipelines take: the caller's columns, as the first estimators that read them were fitted on these."""

from __future__ import annotations

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import column_count, feature_names, require_fitted
from hbtvm.frontends.transformers import Where
from hbtvm.frontends.transformers.containers import steps_of
from hbtvm.frontends.transformers.dispatch import predicts, unsupported
from hbtvm.frontends.transformers.where import Estimator
from hbtvm.graph.graph import InputSpec

_MOST_INPUTS = 1 << 17
"""Columns that a pipeline may read: files may claim any number, and each is an object here."""


def outer_steps(model: Record, where: Where) -> tuple[tuple[str, str], ...]:
    """Names and classes of the outermost pipeline's steps; none if there is none."""
    while (inner := where.how(model).inner) is not None:
        where = where.child("within")
        model = inner(model, where)
    if model.kind != "Pipeline":
        return ()
    return tuple((name, estimator.kind) for name, estimator, _ in steps_of(model, where))


def _within(model: Record, where: Where) -> list[Record]:
    """The estimators that get the rows as an estimator gets them, if it does nothing to them itself."""
    how = where.how(model)
    if how.first is not None:
        return how.first(model, where)
    if how.inner is not None:
        return [how.inner(model, where)]
    return _members(model) if how.predicts is not None else []


def _members(model: Record) -> list[Record]:
    """The estimators of an ensemble that read what it reads."""
    found = model.get("estimators_", None) or model.get("calibrated_classifiers_", None)
    if not isinstance(found, (list, tuple)):
        found = [model.get("estimator_", None) or model.get("estimator", None)]
    return [one for one in found if isinstance(one, Record)]


def inputs_of(model: Record, where: Where) -> InputSpec:
    """What the pipeline takes: the columns of the first step that knows them."""
    if _takes_values(model, where):
        return InputSpec(n_features=1, rows_are_values=True)
    found = _first(model, where)
    if found is None:
        if where.how(model).rows == "labels":
            return InputSpec(n_features=1, rows_are_values=True)
        if where.how(model).rows == "vectors":
            return InputSpec(n_features=1, takes_vectors=True)
        return _of_last(model, where)
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
    if where.how(model).rows == "values":
        return True
    parts = _within(model, where)
    return bool(parts) and all(_takes_values(part, where.child("within")) for part in parts)


def _first(model: Record, where: Where) -> tuple[int, tuple[str, ...] | None] | None:
    """The number of columns, and names, of the first estimator that was fitted on the caller's columns."""
    if "n_features_in_" in model:
        return column_count(model), feature_names(model)
    if model.is_a("sklearn", "SelectFromModel"):
        # Its model knows how many there are, and of XGBoost's and LightGBM's only their readers do.
        inner = _members(model)[0]
        found = _first(inner, where)
        count = found[0] if found else _of_last(inner, where).n_features
        return count, feature_names(model)
    every = (_first(part, where.child("within")) for part in _within(model, where))
    return next((one for one in every if one is not None), None)


def _of_last(model: Record, where: Where) -> InputSpec:
    """The columns of a model that alone knows them (XGBoost's and LightGBM's say so in their own ways)."""
    while (read := where.how(model).model) is None:
        if model.kind == "Pipeline":
            steps = [(estimator, place) for _, estimator, place in steps_of(model, where)]
        else:
            steps = [(part, where.child("within")) for part in _within(model, where)]
        if not steps and where.how(model) == Estimator():
            raise unsupported(model, where, predicts)
        if not steps:
            raise UnsupportedModel(f"{where.of(model).step} is not fitted; hbtvm compiles trained models.")
        model, where = steps[-1]
    if model.library == "sklearn":
        require_fitted(model)
    return read(model).input


def _by_name(model: Record, where: Where) -> bool:
    """Whether columns are found by name: if all that get the caller's frame are ``ColumnTransformer``s."""
    if where.how(model).rows == "names":
        return True
    parts = _within(model, where)
    return bool(parts) and all(_by_name(part, where.child("within")) for part in parts)
