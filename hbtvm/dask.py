"""Predict on Dask: DataFrames in, DataFrames out, by ``map_partitions``.

Workers need hbtvm, numpy, pandas and pyarrow; neither a training library nor a compiler.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import tokenize
from dask.dataframe import DataFrame

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
    """Predict for each row of a Dask DataFrame.

    Parameters
    ----------
    package
        The compiled model: its path on the caller's machine, or its content. Each worker receives it once.
    frame, output, keep, drop
        As for `hbtvm.spark.predict`.
    threads
        For one partition.

    Returns
    -------
    A lazy DataFrame with the same partitions and index: kept columns, then the predictions, named as in the
    files of ``hbtvm predict``.

    Raises
    ------
    InputError
        If the columns are not the model's, or it has no such output.
    PackageError
        If the package can't be read, or this machine can't run it.
    """
    shipped = Shipped.of(package, output, keep, drop, threads)
    scorer = shipped.scorer(pa.Schema.from_pandas(frame._meta, preserve_index=False))
    key = tokenize(shipped.digest, shipped.output, shipped.keep, shipped.drop, shipped.threads)
    sent = dask.delayed(shipped, pure=True, traverse=False, name=f"hbtvm-package-{key}")
    empty = _scored(frame._meta[scorer.columns], shipped)
    return frame[scorer.columns].map_partitions(_scored, sent, meta=empty)


def _scored(part: pd.DataFrame, shipped: Shipped) -> pd.DataFrame:
    """Predict a partition."""
    table = _table(part)
    predictions = shipped.scorer(table.schema)(table).to_pandas()
    return predictions.set_index(part.index)


def _table(part: pd.DataFrame) -> pa.Table:
    """Convert a partition to Arrow; pyarrow must not turn NaN in numpy's numbers into null."""
    columns = {}
    for name in part.columns:
        column = part[name]
        plain = isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiu"
        columns[name] = pa.array(column.to_numpy() if plain else column, from_pandas=not plain)
    return pa.table(columns)
