"""From an estimator's record to what it does to a table: the registry of transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.sklearn_common import feature_names, is_fitted
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.predictor import Predictor
from hbtvm.graph.table import Table
from hbtvm.printable import shown

Transformer = Callable[[Record, Table, Where], Table]
"""From an estimator, the table that it reads, and its place, to the table that it makes."""

TRANSFORMERS: dict[tuple[str, str], Transformer] = {}
"""By library and class name; filled by `hbtvm.frontends.transformers`."""

MODELS: dict[str, Callable[[Record, Table, Where], Predictor]] = {}
"""``"predictor"``: reads any estimator that predicts, for transformers that hold one.

Put there by `hbtvm.frontends.registry`, as models are read above transformers.
"""

_NEVER_FITTED = (
    *("Pipeline", "FeatureUnion", "FrozenEstimator", "FunctionTransformer", "Normalizer", "Binarizer"),
    # A vocabulary may be given; hashes need none.
    *("CountVectorizer", "TfidfVectorizer", "TfidfTransformer", "HashingVectorizer", "FeatureHasher"),
    # Searches say more; a selector may take a model that was fitted elsewhere.
    *(
        "GridSearchCV",
        "RandomizedSearchCV",
        "HalvingGridSearchCV",
        "HalvingRandomSearchCV",
        "SelectFromModel",
    ),
)
"""Classes that may do without attributes of fitting."""

MOST_COLUMNS = 1 << 20
"""Columns that a table may have. Files may claim any number."""


def apply(record: Record, table: Table, where: Where) -> Table:
    """Return what a fitted transformer makes of a table.

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
    where = where.of(record)
    reader = TRANSFORMERS.get((record.library, record.kind))
    if reader is None:
        raise unsupported(record, where, TRANSFORMERS)
    if record.library == "sklearn" and record.kind not in _NEVER_FITTED and not is_fitted(record):
        raise where.unsupported("is not fitted; hbtvm compiles trained models.")
    if "n_features_in_" in record and "ColumnTransformer" not in record.kind:
        fitted = record.whole("n_features_in_")
        if fitted != len(table):
            raise where.damaged(f"it was fitted on {fitted} columns, but gets {len(table)}.")
    try:
        result = reader(record, table, where)
    except ModelError:  # a ValueError as well
        raise
    except (AttributeError, TypeError, KeyError, IndexError, ValueError, OverflowError) as error:
        raise where.damaged(f"{type(error).__name__}: {str(error)[:200]}.") from error
    require_width(len(result), where)
    return result


def predictor(record: Record, table: Table, where: Where) -> Predictor:
    """What an estimator within a transformer predicts of a table; as `apply`."""
    return MODELS["predictor"](record, table, where)


def unsupported(record: Record, where: Where, known: Iterable[tuple[str, str]]) -> UnsupportedModel:
    """The error for a step whose class is not among those known."""
    library, listed = (
        shown(record.library, 40) or "no library",
        ", ".join(sorted({name for _, name in known})),
    )
    article = "an" if record.kind[:1] in "AEIOU" else "a"
    return UnsupportedModel(
        f"{replace(where, kind='').step} is {article} {record.kind} ({library}), which is not supported yet; "
        f"supported are {listed}."
    )


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
    """Names of the columns that an estimator reads, as its ``get_feature_names_out`` takes them."""
    own = feature_names(record)
    return own if own is not None and len(own) == len(table) else table.names
