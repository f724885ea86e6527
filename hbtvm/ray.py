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
_received: dict[str, Shipped] = {}  # packages that came to this process, by the number of their object


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
        Only columns that the model reads, and those kept, are read. A model that was trained with column
        names finds its columns by these.
    package
        The compiled model: its path on the driver, or its content. It is in Ray's object store once, and
        loaded once by each worker.
    output, keep, drop
        As of `hbtvm.spark.predict`.
    threads
        CPUs of a task.
    batch_size
        Rows of a batch.

    Returns
    -------
    A Dataset, computed when it is asked for: what is kept, then the predictions, named as in the files of
    ``hbtvm predict``.

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
    """A reference that is passed on as it is: arguments that are references are fetched for each task."""

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
    """A task."""
    scorer = sent.get().scorer(table.schema)
    return pa.Table.from_batches([scorer(table)], schema=scorer.schema)
