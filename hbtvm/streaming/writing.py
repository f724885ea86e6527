"""Writing of prediction files in a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_AHEAD = 4  # maximal number of tables waiting to be written


@contextlib.contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Write tables in a separate thread, so that prediction continues meanwhile.

    `path`: path of a Parquet file.
    `schema`: schema of the tables.
    Raises `OSError` if the file can't be written; raised by the next call after the failure, or at the end.
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

    # Scores hardly repeat: building dictionaries would take most of the time of writing.
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
