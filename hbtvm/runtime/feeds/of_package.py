"""The reader of a package's rows."""

from __future__ import annotations

from collections.abc import Collection

from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.rows.inputs import Inputs
from hbtvm.runtime.text.library import TextLibrary


def reader_of(package: Package, dtypes: Collection[str], library: TextLibrary) -> Inputs | FeedReader:
    """Return the reader of a package's rows for kernels of some types of rows."""
    compare_dtype = "float64" if package.stages else package.forest["compare_dtype"]
    feeds = package.parts.feeds
    if feeds:
        return FeedReader(package.input, feeds, compare_dtype, dtypes, package.rows_apart, library)
    return Inputs(package.input, compare_dtype, dtypes or ("float64",), package.rows_apart)
