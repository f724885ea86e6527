"""Conversion of rows of numbers for kernels, equal to `Model`'s conversion of arrays."""

from __future__ import annotations

from dataclasses import dataclass

from hbtvm.compiler.exporting.methods import DTYPES
from hbtvm.errors import PackageError
from hbtvm.graph.columns.table import Raw
from hbtvm.runtime.feeds.of_package import reader_of
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.package.file import Package
from hbtvm.runtime.rows.inputs import Inputs
from hbtvm.runtime.text.library import TextLibrary


def row_reader(package: Package) -> Inputs | FeedReader:
    """Return the reader of a package's rows in Python."""
    types = DTYPES if package.stages else sorted({kernel.dtype for kernel in package.kernels})
    return reader_of(package, types, TextLibrary(package.text_library))


@dataclass(frozen=True)
class Conversion:
    """The fields of C's `struct conversion` for rows of a type; types are numbers."""

    through: int
    to: int
    exact: bool


@dataclass(frozen=True)
class Rows:
    """The fields of C's `struct input`."""

    columns: int  # columns of the caller's rows
    read: tuple[int, ...]  # the caller's column of each of the model's columns; empty if equal
    missing: float | None  # a number that means NaN
    conversions: tuple[Conversion, Conversion]  # for float32 and float64 rows


def rows_of(package: Package, inputs: Inputs | FeedReader) -> Rows:
    """Return the conversion of a package's rows.

    `inputs`: the reader of its rows in Python.
    Raises `PackageError` if rows have other values than numbers, or numpy computes a column. The text
    continues a sentence that begins with the package.
    """
    spec, read = package.input, tuple[int, ...]()
    if spec.rows_are_values:
        raise PackageError("reads texts or other values, and rows in C are numbers")
    if isinstance(inputs, FeedReader):
        read = _columns(package, inputs)
    elif spec.categories and spec.numbers_are_categories:
        raise PackageError("knows categories by their values, and rows in C are numbers")
    compare = "float64" if package.stages else package.forest["compare_dtype"]
    types = DTYPES if package.stages else {kernel.dtype for kernel in package.kernels}
    missing = spec.missing_value if isinstance(inputs, Inputs) else None
    narrow, wide = (_conversion(dtype, compare, {*types}) for dtype in DTYPES)
    return Rows(spec.n_features, read, missing, (narrow, wide))


def _columns(package: Package, reader: FeedReader) -> tuple[int, ...]:
    """Return the columns of a pipeline's rows that its kernels read, which must be unchanged numbers."""
    columns = []
    for feed in reader.feeds:
        if feed.steps or not isinstance(feed.source, Raw):
            where = feed.where or "a column"
            raise PackageError(
                f"has categories, or steps that no kernel computes ({where}); rows in C are numbers"
            )
        columns.append(feed.source.index)
    return () if columns == list(range(package.input.n_features)) else tuple(columns)


def _conversion(source: str, compare: str, types: set[str]) -> Conversion:
    if compare == "float32" or "float64" not in types:
        through = "float32"
    else:
        through = "float32" if source == "float32" and "float32" in types else "float64"
    exact = compare == "float64" and through == "float32" and source == "float64"
    to = through if through in types else "float64"
    return Conversion(DTYPES.index(through), DTYPES.index(to), exact)
