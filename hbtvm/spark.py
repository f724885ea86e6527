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
        The rows; only columns that the model reads, and those kept, are read. A model that was trained with
        column names finds its columns by these.
    package
        The compiled model: its path on the driver, or its content. It is sent to each executor once.
    output
        As of `hbtvm.Model.predict`, or ``"transform"``.
    keep
        Columns that go into the result unchanged, in front of the predictions: ids, say.
    drop
        Other columns that are no features, of a model that knows its columns by their order alone.
    threads
        For one task; Spark counts a task as one core.

    Returns
    -------
    A DataFrame, computed when it is asked for: what is kept, then the predictions, named as in the files of
    ``hbtvm predict``.

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
    """The function of a task."""
    here: Callable[[], Any] = lambda: shipped  # noqa: E731
    try:
        context = frame.sparkSession.sparkContext
    except Exception:  # Spark Connect has none: the package then goes with the plan
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
