"""Predict in DuckDB: a model as a function of SQL, rows in and out by Arrow."""

from __future__ import annotations

import os
from collections.abc import Sequence

from hbtvm.errors import InputError, InputTypeError, missing_package

try:
    import duckdb
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise missing_package("hbtvm.duckdb needs", error.name, "hbtvm[duckdb]") from None

from hbtvm.runtime.model import Model
from hbtvm.streaming.matching import some
from hbtvm.streaming.structs import StructScorer
from hbtvm.words.quantities import count


def register(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    model: Model | str | os.PathLike[str] | bytes,
    output: str | None = None,
    *,
    threads: int = 1,
) -> None:
    """Register a model as a scalar function: ``SELECT churn(t) FROM t``.

    The function takes a row or a struct, in which a model trained with column names finds its columns by
    name, in any order and among others. It also takes the columns that the model reads, in the order of
    training. NULL in a column is a missing value; a struct that is NULL gives NULL.

    Parameters
    ----------
    connection
        The function belongs to its database, for as long as the connection is open; cursors of it see the
        function, too.
    name
        Name of the function. A function that the connection registered by that name is replaced.
    model
        The model, or its package: the path or the content.
    output
        As of `hbtvm.Model.predict`, ``"transform"`` or ``"contributions"``. An output of several columns,
        such as the probabilities ``"proba"``, is a struct with the names of ``hbtvm predict``:
        ``churn(t).yes``.
    threads
        Threads of one call, if the model is loaded here. DuckDB calls the function from its own threads, with
        up to 2,048 rows each, so that 1 is best.

    Raises
    ------
    InputError
        If the model has no such output, or the name is that of another function.
    PackageError
        If the package can't be read, or this machine can't run it.
    """
    _check_name(name)
    scorer = StructScorer(model, output, threads)

    def predict(*arguments: pa.ChunkedArray) -> pa.Array:
        try:
            return scorer(_rows(arguments, scorer.columns, name))
        except InputError as error:
            raise InputError(f"{name}: {error}") from error

    with connection.cursor() as cursor:
        result = cursor.from_arrow(pa.schema([("result", scorer.type)]).empty_table()).types[0]
        if not _remove(connection, name):
            known = cursor.execute(
                "SELECT 1 FROM duckdb_functions() WHERE lower(function_name) = lower(?)", [name]
            )
            if known.fetchone():
                raise InputError(
                    f"there is already a function {name!r}, which this connection did not register; "
                    "choose another name."
                )
    connection.create_function(name, predict, None, result, type="arrow", null_handling="special")


def unregister(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Remove a function that `register` added by the same connection.

    Raises
    ------
    InputError
        If there is none.
    """
    _check_name(name)
    if not _remove(connection, name):
        raise InputError(f"this connection registered no function {name!r}.")


def _remove(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    try:
        connection.remove_function(name)
    except duckdb.InvalidInputException:
        return False
    return True


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InputTypeError(f"name is {name!r}; expected the function's name, such as 'churn'.")


def _rows(arguments: Sequence[pa.ChunkedArray], columns: list[str], name: str) -> pa.StructArray:
    """Return the rows of a call: its only argument, or one of each of the model's columns.

    Raises `InputError` if their number is wrong.
    """
    arrays = [argument.combine_chunks() for argument in arguments]
    if len(arrays) == 1 and pa.types.is_struct(arrays[0].type):
        return arrays[0]
    if len(arrays) != len(columns):
        raise InputError(
            f"got {count(len(arrays), 'column')}; expected a row, as in SELECT {name}(t) FROM t, or the "
            f"model's {len(columns)} columns in their order: {some(columns)}."
        )
    return pa.StructArray.from_arrays(arrays, names=columns)
