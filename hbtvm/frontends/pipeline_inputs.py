"""Input specifications of pipelines, from the first estimators that read the caller's columns."""

from __future__ import annotations

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import column_count, feature_names, require_fitted
from hbtvm.frontends.transformers import Where
from hbtvm.frontends.transformers.containers import steps_of
from hbtvm.frontends.transformers.dispatch import unsupported
from hbtvm.frontends.transformers.where import Estimator
from hbtvm.graph.graph import InputSpec

_MOST_INPUTS = 1 << 17
"""Bound of a pipeline's columns, which are objects, as files may claim any number."""


def outer_steps(model: Record, where: Where) -> tuple[tuple[str, str], ...]:
    """Return names and classes of the outermost pipeline's steps; empty without a pipeline."""
    while (inner := where.how(model).inner) is not None:
        where = where.child("within")
        model = inner(model, where)
    if model.kind != "Pipeline":
        return ()
    return tuple((name, estimator.kind) for name, estimator, _ in steps_of(model, where))


def _within(model: Record, where: Where) -> list[Record]:
    """Return the inner estimators that read an estimator's unchanged rows."""
    how = where.how(model)
    if how.first is not None:
        return how.first(model, where)
    if how.inner is not None:
        return [how.inner(model, where)]
    return _members(model) if how.predicts is not None else []


def _members(model: Record) -> list[Record]:
    """Return the estimators of an ensemble that read its rows."""
    members = model.get("estimators_", None) or model.get("calibrated_classifiers_", None)
    if not isinstance(members, (list, tuple)):
        members = [model.get("estimator_", None) or model.get("estimator", None)]
    return [member for member in members if isinstance(member, Record)]


def inputs_of(model: Record, where: Where) -> InputSpec:
    """Return the specification of a pipeline's rows: the columns of the first step that knows them."""
    if _takes_values(model, where):
        return InputSpec(n_features=1, rows_are_values=True)
    first = _first(model, where)
    if first is None:
        if where.how(model).rows == "labels":
            return InputSpec(n_features=1, rows_are_values=True)
        if where.how(model).rows == "vectors":
            return InputSpec(n_features=1, takes_vectors=True)
        return _of_last(model, where)
    count, names = first
    if count > _MOST_INPUTS:
        raise where.unsupported(f"was fitted on {count:,} columns; at most {_MOST_INPUTS:,} are supported.")
    if names is not None and len(names) != count:
        raise where.damaged(f"it has names of {len(names)} columns, but {count} columns.")
    return InputSpec(
        n_features=count, feature_names=names, by_name=names is not None and _by_name(model, where)
    )


def _takes_values(model: Record, where: Where) -> bool:
    """Return whether rows are single values: all readers of the caller's rows are vectorizers."""
    if where.how(model).rows == "values":
        return True
    parts = _within(model, where)
    return bool(parts) and all(_takes_values(part, where.child("within")) for part in parts)


def _first(model: Record, where: Where) -> tuple[int, tuple[str, ...] | None] | None:
    """Return the columns' number and names from the first estimator fitted on the caller's columns."""
    if "n_features_in_" in model:
        return column_count(model), feature_names(model)
    if model.is_a("skrub", "SelectCols", "DropCols"):
        names = model.sequence("columns_" if model.kind == "SelectCols" else "kept_cols_")
        return len(names), tuple(map(str, names))
    if model.is_a("sklearn", "SelectFromModel"):
        # Its model knows their number; for models of XGBoost and LightGBM, their readers do.
        inner = _members(model)[0]
        first = _first(inner, where)
        count = first[0] if first else _of_last(inner, where).n_features
        return count, feature_names(model)
    inputs = (_first(part, where.child("within")) for part in _within(model, where))
    return next((first for first in inputs if first is not None), None)


def _of_last(model: Record, where: Where) -> InputSpec:
    """Return the specification from the last step (of XGBoost or LightGBM) if only that knows the columns."""
    while (read := where.how(model).model) is None:
        if model.kind == "Pipeline":
            steps = [(estimator, place) for _, estimator, place in steps_of(model, where)]
        else:
            steps = [(part, where.child("within")) for part in _within(model, where)]
        if not steps and where.how(model) == Estimator():
            raise unsupported(model, where)
        if not steps:
            raise UnsupportedModel(f"{where.of(model).step} is not fitted; hbtvm compiles trained models.")
        model, where = steps[-1]
    if model.library == "sklearn":
        require_fitted(model)
    return read(model).input


def _by_name(model: Record, where: Where) -> bool:
    """Return whether columns are looked up by name: all readers of the rows are ``ColumnTransformer``s."""
    if where.how(model).rows == "names":
        return True
    parts = _within(model, where)
    return bool(parts) and all(_by_name(part, where.child("within")) for part in parts)
