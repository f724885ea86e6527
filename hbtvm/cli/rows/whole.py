"""Read a file's first rows at once, in a form that the training library takes, too."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.arrow_in import ArrowBatches, ParquetFile
from hbtvm.cli.rows.csv_in import Header, usual_delimiter
from hbtvm.cli.rows.data_in import SUFFIXES, Data, refuse_dialect
from hbtvm.cli.rows.text_in import suffix_of
from hbtvm.errors import InputError, missing_package
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.feeds.file_columns import Columns, columns_of
from hbtvm.runtime.model import Model
from hbtvm.streaming.matching import positions

_BATCH = 65_536


def first_rows(
    path: Path,
    model: Model,
    most: int,
    *,
    header: Header = "auto",
    delimiter: str | None = None,
    na: Collection[str] = (),
    drop: Collection[str] = (),
) -> Any:
    """Return at most `most` rows of a data file.

    `header`, `delimiter`, `na`, `drop`: as for `hbtvm.cli.rows.data_in.Data`.
    Returns a pandas frame of the model's columns if it knows their names; else an array, a sparse matrix or a
    list. Raises `UsageError` if the file can't be read, has no rows, or lacks columns of the model.
    """
    spec = model.package.input
    columns = None if model.pipeline is None else columns_of(model.pipeline)
    suffix = suffix_of(path)
    named = spec.feature_names not in (None, tuple(f"Column_{i}" for i in range(spec.n_features)))
    if named and suffix not in (".npy", ".npz") and header != "no":
        rows = _frame(path, spec, columns, most, drop, delimiter, na)
    else:
        dialect: dict[str, Any] = {"header": header, "delimiter": delimiter, "na": na}
        with Data(path, spec, drop=drop, pipeline=columns, **dialect) as data:
            rows = _joined(data.blocks(), most)
    if rows is None or not (len(rows) if isinstance(rows, list) else rows.shape[0]):
        raise UsageError(f"{path}: there are no rows to compare")
    return rows


def _joined(blocks: Iterator[Any], most: int) -> Any:
    """Return the first rows of blocks in one piece; None if there are none."""
    parts: list[Any] = []
    done = 0
    for block in blocks:
        if hasattr(block, "num_rows"):  # a batch of Arrow
            block = np.column_stack([column.to_numpy(zero_copy_only=False) for column in block.columns])
        part = block[: most - done]
        parts.append(part)
        done += len(part) if isinstance(part, list) else part.shape[0]
        if done >= most:
            break
    if not parts:
        return None
    if isinstance(parts[0], list):
        return [row for part in parts for row in part]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from scipy import sparse

    return sparse.vstack(parts, format="csr")


def _frame(
    path: Path,
    spec: InputSpec,
    columns: Columns | None,
    most: int,
    drop: Collection[str],
    delimiter: str | None,
    na: Collection[str],
) -> Any:
    """Return a pandas frame of the model's columns, in its order."""
    try:
        import pandas
    except ImportError:
        raise missing_package("comparing rows with column names needs", "pandas", "hbtvm[pandas]") from None
    texts = _texts(spec if columns is None else columns.spec)
    suffix = suffix_of(path)
    if suffix not in (".csv", ".tsv"):
        refuse_dialect(path, delimiter, na)
    match suffix:
        case ".csv" | ".tsv":
            try:
                frame = pandas.read_csv(
                    path,
                    sep=delimiter or usual_delimiter(path),
                    dtype=dict.fromkeys(texts, str),
                    keep_default_na=False,
                    na_values=["", *na],
                    nrows=most,
                    encoding="utf-8-sig",
                )
            except ValueError as error:  # of pandas' parser, too
                reason = next(iter(str(error).splitlines()), "")
                raise UsageError(f"{path}: this is not a readable CSV file ({reason})") from error
        case ".json" | ".jsonl" | ".ndjson":
            with Data(path, spec, pipeline=columns) as data:
                frame = pandas.DataFrame(_joined(data.blocks(), most)).reindex(columns=spec.feature_names)
        case ".parquet" | ".arrow" | ".feather":
            frame = _arrow(path, spec, most, drop)
        case other:
            raise UsageError(
                f"{path}: data with the suffix {other!r} can't be read; known are {', '.join(SUFFIXES)}"
            )
    frame = frame.iloc[:, _positions(path, list(frame.columns), spec, drop)]
    if columns is None:
        spec = _placed(path, frame, spec)
    frame.columns = spec.feature_names
    if columns is not None:
        return _filled(frame, columns)
    for index, known in spec.categories.items():
        column = frame.iloc[:, index]
        if known and column.dtype != "category":
            levels = [*known, *(value for value in column.dropna().unique() if value not in known)]
            frame.isetitem(index, pandas.Categorical(column, categories=levels))
    return frame


def _texts(spec: InputSpec) -> list[str]:
    """Return the columns whose values the model knows as texts."""
    names = spec.feature_names or ()
    return [names[i] for i, known in spec.categories.items() if any(isinstance(v, str) for v in known)]


def _positions(path: Path, names: list[str], spec: InputSpec, drop: Collection[str]) -> list[int]:
    """Return the positions of the model's columns."""
    try:
        return positions(names, spec, range(spec.n_features), drop)
    except InputError as error:
        raise UsageError(f"{path}: {str(error).rstrip('.')}") from error


def _placed(path: Path, frame: Any, spec: InputSpec) -> InputSpec:
    """Return the model's input, with categories placed by the frame's types."""
    kinds = [str(kind) for kind in frame.dtypes]
    words = [i for i, kind in enumerate(kinds) if kind in ("object", "str", "string")]
    sure = [i for i, kind in enumerate(kinds) if kind == "category" or i in words]
    try:
        return spec.placed(sure, words)
    except InputError as error:
        raise UsageError(f"{path}: {error}") from error


def _arrow(path: Path, spec: InputSpec, most: int, drop: Collection[str]) -> Any:
    """Return the first rows of a Parquet or Arrow file as a pandas frame of the model's columns."""
    file = ParquetFile(
        path, InputSpec(spec.n_features), None if suffix_of(path) == ".parquet" else ArrowBatches
    )
    try:
        batches, done = [], 0
        keep = _positions(path, list(file.names or ()), spec, drop)
        for batch, _ in file.blocks(_BATCH, keep):
            batches.append(batch.slice(0, most - done))
            done += batches[-1].num_rows
            if done >= most:
                break
    finally:
        file.close()
    if not batches:
        raise UsageError(f"{path}: there are no rows to compare")
    import pyarrow

    return pyarrow.Table.from_batches(batches).to_pandas()


def _filled(frame: Any, columns: Columns) -> Any:
    """Return a frame in which missing values of texts are those that the pipeline knows."""
    for at, raw in enumerate(columns.of):
        if columns.empty.get(at, np.nan) in ("", None):
            column = frame.iloc[:, raw]
            if column.dtype != "category" and column.isna().any() and column.dtype.kind not in "fiub":
                frame.isetitem(raw, column.astype(object).where(column.notna(), columns.empty[at]))
    return frame
