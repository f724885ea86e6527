"""Predict on Ray: Datasets in, Datasets out, by ``map_batches``.

Workers need hbtvm, numpy and pyarrow; neither a training library nor a compiler.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa
import ray
from ray.data import Dataset

from hbtvm.errors import InputError
from hbtvm.streaming.shipped import Shipped

_ROWS = 65_536  # rows of a batch
_received: dict[str, Shipped] = {}  # packages received by this process, by object id


def predict(
    rows: Dataset,
    package: str | os.PathLike[str] | bytes,
    output: str | None = None,
    *,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    threads: int = 1,
    batch_size: int = _ROWS,
) -> Dataset:
    """Predict for each row of a Dataset.

    Parameters
    ----------
    rows
        The rows; only kept columns and those of the model are read. A model trained with column names finds
        its columns by name.
    package
        The compiled model: its path on the driver, or its content. Ray's object store holds it once, and each
        worker loads it once.
    output, keep, drop
        As for `hbtvm.spark.predict`.
    threads
        CPUs of a task.
    batch_size
        Rows of a batch.

    Returns
    -------
    A lazy Dataset: kept columns, then the predictions, named as in the files of ``hbtvm predict``.

    Raises
    ------
    InputError
        If the columns are not the model's, it has no such output, or the rows have no columns.
    PackageError
        If the package can't be read, or this machine can't run it.
    """
    shipped = Shipped.of(package, output, keep, drop, threads)
    known = rows.schema()
    if known is None:
        raise InputError("the dataset is empty, so its columns are not known.")
    schema = pa.schema(list(zip(known.names, known.types, strict=True)))
    scorer = shipped.scorer(schema)
    return rows.select_columns(scorer.columns).map_batches(
        _score,
        fn_kwargs={"sent": _Sent(ray.put(shipped))},
        batch_format="pyarrow",
        batch_size=batch_size,
        num_cpus=threads,
        zero_copy_batch=True,
    )


class _Sent:
    """A wrapped reference: Ray would fetch a bare reference for each task."""

    def __init__(self, reference: ray.ObjectRef) -> None:
        self.reference = reference

    def get(self) -> Shipped:
        key = self.reference.hex()
        shipped = _received.get(key)
        if shipped is None:
            _received.clear()
            shipped = _received[key] = ray.get(self.reference)
        return shipped


def _score(table: pa.Table, sent: _Sent) -> pa.Table:
    """Predict a batch."""
    scorer = sent.get().scorer(table.schema)
    return pa.Table.from_batches([scorer(table)], schema=scorer.schema)
