"""Files of predictions, written by a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_AHEAD = 4
"""Tables that wait to be written at most."""


@contextlib.contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Write tables by a thread of its own, so that predicting goes on meanwhile.

    Parameters
    ----------
    path
        Of a Parquet file.
    schema
        Of the tables.

    Raises
    ------
    OSError
        If the file can't be written; by the call after that which could not, or at the end.
    """
    waiting: queue.Queue[pa.Table | None] = queue.Queue(_AHEAD)
    failed: list[BaseException] = []

    def work(writer: pq.ParquetWriter) -> None:
        while (table := waiting.get()) is not None:
            try:
                if not failed:
                    writer.write_table(table)
            except BaseException as error:
                failed.append(error)

    def write(table: pa.Table) -> None:
        if failed:
            raise failed[0]
        waiting.put(table)

    # Scores hardly repeat: looking for values that do takes most of the time of writing them.
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    with pq.ParquetWriter(path, schema, use_dictionary=texts) as writer:
        thread = threading.Thread(target=work, args=(writer,), daemon=True)
        thread.start()
        try:
            yield write
        finally:
            waiting.put(None)
            thread.join()
        if failed:
            raise failed[0]
