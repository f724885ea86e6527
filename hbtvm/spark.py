"""Predict on Spark: DataFrames in, DataFrames out, by ``mapInArrow``.

Workers need hbtvm, numpy and pyarrow; neither a training library nor a compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from hbtvm.streaming.shipped import Shipped


def predict(
    frame: DataFrame,
    package: str | os.PathLike[str] | bytes,
    output: str | None = None,
    *,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    threads: int = 1,
) -> DataFrame:
    """Predict for each row of a DataFrame.

    Parameters
    ----------
    frame
        The rows; only kept columns and those of the model are read. A model trained with column names finds
        its columns by name.
    package
        The compiled model: its path on the driver, or its content. Each executor receives it once.
    output
        As of `hbtvm.Model.predict`, ``"transform"`` or ``"contributions"``.
    keep
        Columns, such as ids, that are copied to the result before the predictions.
    drop
        Other columns that are not features, for a model without column names.
    threads
        Threads of a task; Spark counts a task as one core.

    Returns
    -------
    A lazy DataFrame: kept columns, then the predictions, named as in the files of ``hbtvm predict``.

    Raises
    ------
    InputError
        If the columns are not the model's, or it has no such output.
    PackageError
        If the package can't be read, or this machine can't run it.
    """
    shipped = Shipped.of(package, output, keep, drop, threads)
    scorer = shipped.scorer(to_arrow_schema(frame.schema))
    narrow = frame.select(*(col(f"`{name.replace('`', '``')}`") for name in scorer.columns))
    return narrow.mapInArrow(_scoring(frame, shipped), from_arrow_schema(scorer.schema))


Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _scoring(frame: DataFrame, shipped: Shipped) -> Task:
    """Return the function of a task."""
    here: Callable[[], Any] = lambda: shipped  # noqa: E731
    try:
        context = frame.sparkSession.sparkContext
    except Exception:  # Spark Connect has no context: the package is part of the plan
        pass
    else:
        sent = context.broadcast(shipped)
        here = lambda: sent.value  # noqa: E731

    def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scorer = None
        for batch in batches:
            if scorer is None:
                scorer = here().scorer(batch.schema)
            yield scorer(batch)

    return score
