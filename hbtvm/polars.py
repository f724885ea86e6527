"""Predict in polars: an expression of structs, for eager, lazy and streaming queries."""

from __future__ import annotations

import os

from hbtvm.errors import InputError, InputTypeError, missing_package

try:
    import polars as pl
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise missing_package("hbtvm.polars needs", error.name, "hbtvm[polars]") from None

from hbtvm.runtime.model import Model
from hbtvm.streaming.structs import StructScorer


def predict(
    rows: pl.Expr,
    model: Model | str | os.PathLike[str] | bytes,
    output: str | None = None,
    *,
    threads: int | None = None,
) -> pl.Expr:
    """Return the expression of a model's predictions.

    Parameters
    ----------
    rows
        An expression of structs, ``pl.struct("age", "city")`` or ``pl.struct(pl.all())``, in which a model
        trained with column names finds its columns by name, in any order and among others. Null in a field is
        a missing value; a struct that is null gives null.
    model
        The model, or its package: the path or the content. It is loaded now.
    output
        As of `hbtvm.Model.predict`, ``"transform"`` or ``"contributions"``.
    threads
        Threads of one call, if the model is loaded here; as for `hbtvm.load`. The streaming engine calls the
        model from its own threads.

    Returns
    -------
    An element-wise expression, named and typed as the column of ``hbtvm predict``: ``label`` or
    ``prediction``, say. An output of several columns, such as the probabilities ``"proba"``, is a struct with
    their names: ``.struct.field("yes")``, ``.struct.unnest()``. The type is part of a lazy frame's schema.

    Raises
    ------
    InputError
        If the model has no such output; when the query runs, if the fields are not the model's columns.
    PackageError
        If the package can't be read, or this machine can't run it.
    """
    if not isinstance(rows, pl.Expr):
        raise InputTypeError(f"rows is {type(rows).__name__}; expected an expression: pl.struct(pl.all()).")
    scorer = StructScorer(model, output, threads)
    empty = pl.Series(scorer.name, pa.array([], scorer.type))

    def score(column: pl.Series) -> pl.Series:
        if column.dtype != pl.Struct:
            raise InputError(
                f"got a column of {column.dtype}; expected structs, such as pl.struct({column.name!r}, ...)."
            )
        return pl.Series(column.name, scorer(column.to_arrow()), empty.dtype)

    return rows.map_batches(score, empty.dtype, is_elementwise=True).alias(scorer.name)
