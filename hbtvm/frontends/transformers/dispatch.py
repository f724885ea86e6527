"""Choose the reader of an estimator's record by its class."""

from __future__ import annotations

from dataclasses import replace

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.damage import DAMAGE
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn.common import feature_names, is_fitted, require_fitted
from hbtvm.frontends.supported import MODELS, why
from hbtvm.frontends.transformers.where import Estimator, Where
from hbtvm.graph.columns.table import Table
from hbtvm.graph.compose import predictor_of
from hbtvm.graph.graph import Graph
from hbtvm.graph.predictor import Predictor
from hbtvm.words.printable import shown

MOST_COLUMNS = 1 << 20
"""Bound of a table's columns, as files may claim any number."""


def apply(record: Record, table: Table, where: Where) -> Table:
    """Apply a fitted transformer to a table.

    Parameters
    ----------
    record
        The transformer.
    table
        What it reads.
    where
        Its place; the class need not be known.

    Raises
    ------
    UnsupportedModel
        If its class, or one of its parameters, is not supported.
    ModelError
        If it is damaged, or was fitted on another number of columns.
    """
    where, how = where.of(record), where.how(record)
    if how.transforms is None:
        raise unsupported(record, where)
    if how.fitted and not is_fitted(record):
        raise where.unsupported("is not fitted; hbtvm compiles trained models.")
    if "n_features_in_" in record and "ColumnTransformer" not in record.kind:
        fitted = record.whole("n_features_in_")
        if fitted != len(table):
            raise where.damaged(f"it was fitted on {fitted} columns, but gets {len(table)}.")
    try:
        result = how.transforms(record, table, where)
    except ModelError:  # a ValueError as well
        raise
    except DAMAGE as error:
        raise where.damaged(f"{type(error).__name__}: {str(error)[:200]}.") from error
    require_width(len(result), where)
    return result


def read_predictor(record: Record, table: Table, where: Where) -> Predictor:
    """Return the operators of an estimator that predicts from a table.

    Raises
    ------
    UnsupportedModel
        If its class, or one of its parameters, is not supported.
    ModelError
        If it is damaged, or was fitted on another number of columns.
    """
    where, how = where.of(record), where.how(record)
    if how.predicts is not None:
        if record.library == "sklearn":
            require_fitted(record)
        return how.predicts(record, table, where)
    last = None if how.last is None else how.last(record, table, where, True)
    if last is not None:
        return read_predictor(*last)
    if how.model is None:
        raise unsupported(record, where)
    refuse_absent(record, table, where)
    return predictor_of(read_model(record, table, where), table)


def read_model(record: Record, table: Table, where: Where) -> Graph:
    """Return the graph of a bare model that reads a table; errors as in `read_predictor`."""
    if record.library == "sklearn":
        require_fitted(record)
    read = where.how(record).model
    assert read is not None
    graph = read(record)
    if graph.input.n_features != len(table):
        raise where.damaged(f"it was fitted on {graph.input.n_features} columns, but gets {len(table)}.")
    return graph


def refuse_absent(record: Record, table: Table, where: Where) -> None:
    """Refuse sparse rows for inner models that take absent entries for missing."""
    if record.library == "xgboost" and table.sparse is None:
        reason = "takes absent entries for missing, which is supported only for a model by itself"
        where.refuse_sparse(table, reason)


def predicts(how: Estimator) -> bool:
    """Return whether an estimator predicts itself, rather than by an inner estimator."""
    return how.model is not None or how.predicts is not None


def unsupported(record: Record, where: Where) -> UnsupportedModel:
    """Return the error for a step of an unsupported class, or in a place where its class can't be."""
    library = shown(record.library, 40) or "no library"
    article = "an" if record.kind[:1] in "AEIOU" else "a"
    step = f"{replace(where, kind='').step} is {article} {record.kind} ({library}), which is not supported"
    if (record.library, record.kind) in where.estimators:
        return UnsupportedModel(f"{step} in this place; {MODELS} lists what transforms and what predicts.")
    return UnsupportedModel(f"{step}{why(record.library, record.kind)}.")


def require_width(columns: int, where: Where) -> None:
    """Refuse tables that are too wide.

    Raises
    ------
    UnsupportedModel
        If there are more than `MOST_COLUMNS` columns.
    """
    if columns > MOST_COLUMNS:
        raise where.unsupported(f"makes more than {MOST_COLUMNS:,} columns, which is not supported.")


def names_in(record: Record, table: Table) -> tuple[str, ...] | None:
    """Return the names of an estimator's input columns, as its ``get_feature_names_out`` uses them."""
    names = feature_names(record)
    return names if names is not None and len(names) == len(table) else table.names
