"""Rows to predict, from a file: opened, columns matched with the model's, and read in blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.arrow_in import ArrowBatches, JsonFile
from hbtvm.cli.categories import codes
from hbtvm.cli.csv_in import NONE, CsvFile, Header
from hbtvm.cli.npz_in import NpzFile
from hbtvm.cli.pipeline_in import Columns
from hbtvm.errors import InputError
from hbtvm.graph.graph import InputSpec

SUFFIXES = (".csv", ".npy", ".npz", ".parquet", ".arrow", ".feather", ".json", ".jsonl", ".ndjson")

_CELLS = 500_000
"""Values in a block: few enough that memory stays flat (a CSV field takes 60 bytes and more as text)."""

_MOST_ROWS = 65_536


class DataFile(Protocol):
    """A file of rows.

    Attributes
    ----------
    names
        Names of the columns, if it has any.
    width
        Number of columns.
    """

    names: tuple[str, ...] | None
    width: int

    def blocks(self, rows: int, keep: Sequence[int]) -> Iterator[Any]:
        """Read to the end, so many rows at a time, and of those only the columns at these positions."""

    def close(self) -> None:
        """Close the file."""


class Data:
    """A data file whose columns were matched with a model's.

    Parameters
    ----------
    path
        A file with one of `SUFFIXES`.
    spec
        What the model accepts.
    header
        See `CsvFile`.
    drop
        Names of columns to leave out.
    pipeline
        What a pipeline reads, in place of `spec`.

    Raises
    ------
    UsageError
        If the file can't be read, or its columns aren't the model's.
    """

    def __init__(
        self,
        path: Path,
        spec: InputSpec,
        *,
        header: Header = "auto",
        drop: Collection[str] = (),
        pipeline: Columns | None = None,
    ) -> None:
        self._path, self._pipeline = path, pipeline
        spec = spec if pipeline is None else pipeline.spec
        self._file = _open(path, spec, header, NONE if pipeline is None else pipeline.empty)
        try:
            self._keep = self._matched(spec, drop)
        except BaseException:
            self.close()
            raise
        # Sparse rows take their entries only, however many columns there are.
        dense = not isinstance(self._file, NpzFile)
        self._rows = max(1, min(_MOST_ROWS, _CELLS // self._file.width)) if dense else _MOST_ROWS

    def blocks(self) -> Iterator[Any]:
        """Read to the end; what comes can be given to the model."""
        blocks, pipeline = self._file.blocks(self._rows, self._keep), self._pipeline
        if pipeline is None or not isinstance(self._file, CsvFile):
            return blocks
        return map(pipeline.widened, blocks)

    def _matched(self, spec: InputSpec, drop: Collection[str]) -> list[int]:
        """Positions of the columns that are read."""
        file, pipeline = self._file, self._pipeline
        if isinstance(file, JsonFile):
            return []
        if pipeline is None or (len(pipeline.of) == pipeline.width == file.width and not spec.by_name):
            return _match(self._path, file, spec, drop)
        if file.names is not None and spec.by_name:
            return _by_name(self._path, file.names, spec)
        if file.names is None and file.width != pipeline.width:
            raise UsageError(
                f"{self._path}: there are {file.width} columns, the model has {pipeline.width} features"
            )
        return list(pipeline.of) if file.names is None else _match(self._path, file, spec, drop)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Data:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: Path, spec: InputSpec, header: Header, empty: Mapping[int, Any]) -> DataFile:
    match path.suffix.lower():
        case ".csv":
            return CsvFile(path, spec, header, empty)
        case ".npy":
            return NpyFile(path)
        case ".npz":
            return NpzFile(path)
        case ".parquet":
            return ParquetFile(path, spec)
        case ".arrow" | ".feather":
            return ParquetFile(path, spec, ArrowBatches)
        case ".json" | ".jsonl" | ".ndjson":
            return JsonFile(path, spec)
        case other:
            raise UsageError(
                f"{path}: data with the suffix {other!r} can't be read; known are {', '.join(SUFFIXES)}"
            )


def _match(path: Path, file: DataFile, spec: InputSpec, drop: Collection[str]) -> list[int]:
    """Positions of the model's columns in the file."""
    if file.names is None:
        if drop:
            raise UsageError(f"{path}: there are no column names, so none can be dropped by name")
        keep = list(range(file.width))
    else:
        for name in drop:
            if name not in file.names:
                raise UsageError(
                    f"{path}: there is no column {name!r} to drop; there are {_some(file.names)}"
                )
        keep = [i for i, name in enumerate(file.names) if name not in drop]
        _compare(path, [file.names[i] for i in keep], spec)
    if len(keep) != spec.n_features:
        raise UsageError(f"{path}: there are {len(keep)} columns, the model has {spec.n_features} features")
    return keep


def _by_name(path: Path, names: Sequence[str], spec: InputSpec) -> list[int]:
    """Positions of a pipeline's columns, in any order and among others."""
    wanted = spec.feature_names or ()
    lacking = [name for name in wanted if name not in names]
    if lacking:
        raise UsageError(f"{path}: {_columns(lacking)} of the model is not there; there are {_some(names)}")
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise UsageError(f"{path}: column {twice[0]!r} is there twice")
    return [names.index(name) for name in wanted]


def _compare(path: Path, names: Sequence[str], spec: InputSpec) -> None:
    """Compare names as the runtime does with a data frame's; here, before anything is read."""
    expected = spec.feature_names
    # LightGBM makes names for columns that have none, and puts underscores for spaces.
    if expected is None or expected == tuple(f"Column_{i}" for i in range(spec.n_features)):
        return
    wanted = [name.replace(" ", "_") for name in expected]
    found = [name.replace(" ", "_") for name in names]
    if found == wanted:
        return
    lacking = [name for name, key in zip(expected, wanted, strict=True) if key not in found]
    if lacking:
        raise UsageError(f"{path}: {_columns(lacking)} of the model is not there; there are {_some(names)}")
    extra = [name for name, key in zip(names, found, strict=True) if key not in wanted]
    if extra:
        raise UsageError(
            f"{path}: {_columns(extra)} was not there in training; "
            f"to leave it out, say --drop {','.join(extra)}"
        )
    if len(found) > len(wanted):
        twice = next(name for i, name in enumerate(names) if found[i] in found[:i])
        raise UsageError(f"{path}: column {twice!r} is there twice")
    at = next(i for i, key in enumerate(found) if key != wanted[i])
    raise UsageError(
        f"{path}: columns are in another order than in training: column {at + 1} is {names[at]!r}, "
        f"expected {expected[at]!r}"
    )


def _columns(names: Sequence[str]) -> str:
    return f"column {names[0]!r}" + (f" (and {len(names) - 1} more)" if len(names) > 1 else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


class NpyFile:
    """An array file, mapped: only what is worked on is in memory."""

    names: tuple[str, ...] | None = None

    def __init__(self, path: Path) -> None:
        try:
            # An array without rows can't be mapped.
            small = path.stat().st_size < 4096
            self._array = np.load(path, mmap_mode=None if small else "r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise UsageError(f"{path}: this is no .npy file of numbers ({error})") from error
        if not isinstance(self._array, np.ndarray):
            raise UsageError(f"{path}: this is a .npz archive under another name, expected a .npy file")
        if self._array.ndim != 2:
            raise UsageError(f"{path}: the array's shape is {self._array.shape}, expected (rows, features)")
        self.width = self._array.shape[1]

    def blocks(self, rows: int, keep: Sequence[int]) -> Iterator[Any]:
        """See `DataFile`."""
        for start in range(0, len(self._array), rows):
            # A plain array rather than a memory map.
            yield np.array(self._array[start : start + rows])

    def close(self) -> None:
        """Nothing to do: the map is closed with the last array that refers to it."""


class ParquetFile:
    """A Parquet or Arrow file, read by pyarrow; nested columns can be dropped, but not used."""

    def __init__(self, path: Path, spec: InputSpec, opened: Callable[[Path], Any] | None = None) -> None:
        self._path = path
        self._spec = spec
        self._kind = "Parquet" if opened is None else "Arrow"
        # Parquet does not say which numbers are categories: it holds their values, the model takes codes.
        self._numbers = {
            index
            for index, known in spec.categories.items()
            if known and not (spec.numbers_are_categories or any(isinstance(value, str) for value in known))
        }
        opened = opened or arrow_parquet().ParquetFile
        with self._explained():
            self._file = opened(path)
        self.names: tuple[str, ...] | None = tuple(self._file.schema_arrow.names)
        self.width = len(self.names)
        twice = [name for i, name in enumerate(self.names) if name in self.names[:i]]
        if twice:
            raise UsageError(f"{path}: column {twice[0]!r} is there twice")

    def blocks(self, rows: int, keep: Sequence[int]) -> Iterator[Any]:
        """See `DataFile`; record batches, in which the model finds strings' codes by itself."""
        assert self.names is not None
        columns = [self.names[i] for i in keep]
        if self._spec.category_order:
            self._spec = self._placed(columns)
            self._numbers = {index for index, known in self._spec.categories.items() if known}
        batches = self._file.iter_batches(batch_size=rows, columns=columns)
        done = 0
        while True:
            with self._explained():
                batch = next(batches, None)
            if batch is None:
                return
            batch = batch.select(columns)
            if batch.num_rows:
                yield self._coded(batch, done) if self._numbers else batch
            done += batch.num_rows

    def _placed(self, columns: Sequence[str]) -> InputSpec:
        """What the model accepts, where the file's types tell which columns hold categories."""
        typed, words = category_types(self._file.schema_arrow)
        sure = [i for i, name in enumerate(columns) if name in typed or name in words]
        try:
            return self._spec.placed(sure, [i for i in sure if columns[i] in words])
        except InputError as error:
            raise UsageError(f"{self._path}: {error}") from error

    def _coded(self, batch: Any, done: int) -> np.ndarray:
        block = np.empty((batch.num_rows, batch.num_columns), object)
        for i in range(batch.num_columns):
            values = batch.column(i).to_pylist()
            if i in self._numbers:
                block[:, i] = codes(values, self._spec, i, str(self._path), done)
            else:
                block[:, i] = values
        return block

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Tell a damaged file, for which pyarrow has errors of several kinds, from one that can't be read."""
        try:
            yield
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            first = next(iter(str(error).splitlines()), "")
            raise UsageError(
                f"{self._path}: this is no {self._kind} file, or it is damaged ({first})"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def category_types(schema: Any) -> tuple[set[str], set[str]]:
    """Names of the columns of categories in an Arrow schema, and of those of text.

    Of categories that are numbers, Parquet keeps only what pandas noted beside the columns.
    """
    noted = (schema.pandas_metadata or {}).get("columns", [])
    typed = {str(column.get("field_name")) for column in noted if column.get("pandas_type") == "categorical"}
    typed |= {field.name for field in schema if str(field.type).startswith("dictionary")}
    words = {field.name for field in schema if str(field.type) in ("string", "large_string", "string_view")}
    return typed, words - typed


def arrow_parquet() -> Any:
    """The module `pyarrow.parquet`.

    Raises
    ------
    UsageError
        If it is not installed.
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UsageError("for .parquet files pyarrow is needed: pip install 'hbtvm[parquet]'") from None
    return parquet
