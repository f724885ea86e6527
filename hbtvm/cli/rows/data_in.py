"""Read rows from a file in blocks, with columns matched to the model's."""

from __future__ import annotations

import tokenize
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.arrow_in import ArrowBatches, ParquetFile
from hbtvm.cli.rows.csv_in import NONE, CsvFile, Header
from hbtvm.cli.rows.json_in import JsonFile
from hbtvm.cli.rows.npz_in import NpzFile
from hbtvm.cli.rows.text_in import is_compressed, shown, suffix_of
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.feeds.file_columns import Columns
from hbtvm.streaming.matching import columns, some
from hbtvm.words.similar import did_you_mean

SUFFIXES = (".csv", ".tsv", ".npy", ".npz", ".parquet", ".arrow", ".feather", ".json", ".jsonl", ".ndjson")

_CELLS = 500_000  # values of a block: memory stays flat, although a CSV field takes 60 bytes or more as text

_MOST_ROWS = 65_536


class DataFile(Protocol):
    """A file of rows."""

    names: tuple[str, ...] | None  # names of the columns, or None
    width: int  # number of columns

    def blocks(
        self, rows: int, read: Sequence[int], keep: Sequence[str] = ()
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Yield blocks of `rows` rows, with only the columns at the positions `read`.

        Beside each block come the values of the columns called `keep`: a list or an Arrow array for each.
        """

    def close(self) -> None:
        """Close the file."""


class Data:
    """A data file with columns matched to a model's.

    `path`: a file with one of `SUFFIXES`.
    `spec`: the model's input.
    `header`: see `CsvFile`.
    `drop`, `drop_present`: names of columns to leave out; only those of `drop` have to be there.
    `keep`: names of columns that `blocks` yields beside the rows.
    `delimiter`, `na`: see `CsvFile`.
    `pipeline`: columns of a pipeline, instead of `spec`.
    Raises `UsageError` if the file can't be read, or its columns aren't the model's.
    """

    def __init__(
        self,
        path: Path,
        spec: InputSpec,
        *,
        header: Header = "auto",
        drop: Collection[str] = (),
        drop_present: Collection[str] = (),
        keep: Sequence[str] = (),
        delimiter: str | None = None,
        na: Collection[str] = (),
        pipeline: Columns | None = None,
    ) -> None:
        self._path, self._pipeline, self._keep = shown(path), pipeline, keep
        spec = spec if pipeline is None else pipeline.spec
        suffix = suffix_of(path)
        if suffix in (".csv", ".tsv"):
            empty = NONE if pipeline is None else pipeline.empty
            self._file: DataFile = CsvFile(path, spec, header, empty, delimiter, na)
        else:
            refuse_dialect(path, delimiter, na)
            self._file = _open(path, spec, suffix)
        try:
            present = self._file.names or ()
            features = () if spec.feature_names is None else spec.feature_names
            drop_present = [name for name in drop_present if name in present and name not in features]
            self._read = self._matched(spec, {*drop, *drop_present})
        except BaseException:
            self.close()
            raise
        # Sparse rows store their entries only.
        dense = not isinstance(self._file, NpzFile)
        self._rows = max(1, min(_MOST_ROWS, _CELLS // self._file.width)) if dense else _MOST_ROWS

    def blocks(self) -> Iterator[Any]:
        """Yield blocks that the model accepts."""
        return (rows for rows, _ in self.kept_blocks())

    def kept_blocks(self) -> Iterator[tuple[Any, list[Any]]]:
        """Yield the blocks, and the columns to keep: lists of values or Arrow arrays."""
        pipeline = self._pipeline if isinstance(self._file, CsvFile) else None
        for rows, kept in self._file.blocks(self._rows, self._read, self._keep):
            yield rows if pipeline is None else pipeline.widened(rows), kept

    def _matched(self, spec: InputSpec, drop: Collection[str]) -> list[int]:
        """Return the positions of the columns to read."""
        file, pipeline = self._file, self._pipeline
        if isinstance(file, JsonFile):
            return []
        if self._keep and file.names is None:
            raise UsageError(f"{self._path}: there are no column names, so none can be kept by name")
        for name in self._keep:
            if name not in (file.names or ()):
                raise UsageError(
                    f"{self._path}: there is no column {name!r} to keep; there are {some(file.names or ())}"
                    f"{did_you_mean(name, file.names or ())}"
                )
        # Kept columns that the model lacks are not features.
        features = {name.replace(" ", "_") for name in spec.feature_names or ()}
        drop = {*drop, *(name for name in self._keep if name.replace(" ", "_") not in features)}
        if pipeline is not None and file.names is None:
            if file.width != pipeline.width:
                raise UsageError(
                    f"{self._path}: there are {file.width} columns, the model has {pipeline.width} features"
                )
            return list(pipeline.of)
        if pipeline is not None and spec.by_name:
            return _by_name(self._path, file.names or (), spec)
        return _match(self._path, file, spec, drop)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Data:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refuse_dialect(path: Path, delimiter: str | None, na: Collection[str]) -> None:
    """Raise a `UsageError` for options of a .csv file, if the file is of another format."""
    if delimiter or na:
        raise UsageError(f"--{'delimiter' if delimiter else 'na'} needs a .csv file, and this is {path}")


def _open(path: Path, spec: InputSpec, suffix: str) -> DataFile:
    """Open a file that is not CSV."""
    json = suffix in (".json", ".jsonl", ".ndjson")
    match suffix if json or not is_compressed(path) else ".gz":
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
                f"{path}: data with the suffix {other!r} can't be read; known are {', '.join(SUFFIXES)} "
                "and .csv.gz"
            )


def _match(path: str, file: DataFile, spec: InputSpec, drop: Collection[str]) -> list[int]:
    """Return the positions of the model's columns in the file."""
    if file.names is None:
        if drop:
            raise UsageError(f"{path}: there are no column names, so none can be dropped by name")
        keep = list(range(file.width))
    else:
        for name in drop:
            if name not in file.names:
                raise UsageError(
                    f"{path}: there is no column {name!r} to drop; there are {some(file.names)}"
                    f"{did_you_mean(name, file.names)}"
                )
        keep = [i for i, name in enumerate(file.names) if name not in drop]
        _compare(path, [file.names[i] for i in keep], spec)
    if len(keep) != spec.n_features:
        raise UsageError(f"{path}: there are {len(keep)} columns, the model has {spec.n_features} features")
    return keep


def _by_name(path: str, names: Sequence[str], spec: InputSpec) -> list[int]:
    """Return the positions of a pipeline's columns, which may come in any order and among others."""
    wanted = spec.feature_names or ()
    lacking = [name for name in wanted if name not in names]
    if lacking:
        raise UsageError(f"{path}: {columns(lacking)} of the model is missing; there are {some(names)}")
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise UsageError(f"{path}: column {twice[0]!r} appears twice")
    return [names.index(name) for name in wanted]


def _compare(path: str, names: Sequence[str], spec: InputSpec) -> None:
    """Compare names before reading, by the runtime's rules for data frames."""
    expected = spec.feature_names
    # LightGBM names unnamed columns, and replaces spaces by underscores.
    if expected is None or expected == tuple(f"Column_{i}" for i in range(spec.n_features)):
        return
    wanted = [name.replace(" ", "_") for name in expected]
    present = [name.replace(" ", "_") for name in names]
    if present == wanted:
        return
    lacking = [name for name, key in zip(expected, wanted, strict=True) if key not in present]
    if lacking:
        raise UsageError(f"{path}: {columns(lacking)} of the model is missing; there are {some(names)}")
    extra = [name for name, key in zip(names, present, strict=True) if key not in wanted]
    if extra:
        raise UsageError(
            f"{path}: {columns(extra)} was not in the training data; "
            f"to leave it out, say --drop {','.join(extra)}"
        )
    if len(present) > len(wanted):
        twice = next(name for i, name in enumerate(names) if present[i] in present[:i])
        raise UsageError(f"{path}: column {twice!r} appears twice")
    at = next(i for i, key in enumerate(present) if key != wanted[i])
    raise UsageError(
        f"{path}: columns are in another order than in training: column {at + 1} is {names[at]!r}, "
        f"expected {expected[at]!r}"
    )


class NpyFile:
    """A memory-mapped array file."""

    names: tuple[str, ...] | None = None

    def __init__(self, path: Path) -> None:
        try:
            # An array without rows can't be mapped.
            small = path.stat().st_size < 4096
            self._array = np.load(path, mmap_mode=None if small else "r", allow_pickle=False)
        except (ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
            raise UsageError(f"{path}: this is not a .npy file of numbers ({error})") from error
        if not isinstance(self._array, np.ndarray):
            raise UsageError(f"{path}: this is a .npz archive under another name, expected a .npy file")
        if self._array.ndim != 2:
            raise UsageError(f"{path}: the array's shape is {self._array.shape}, expected (rows, features)")
        self.width = self._array.shape[1]

    def blocks(
        self, rows: int, read: Sequence[int], keep: Sequence[str] = ()
    ) -> Iterator[tuple[Any, list[Any]]]:
        """See `DataFile`."""
        for start in range(0, len(self._array), rows):
            # A plain array rather than a memory map.
            yield np.array(self._array[start : start + rows]), []

    def close(self) -> None:
        """Do nothing: the last array that refers to the map closes it."""
