"""Rows on a GPU for pipelines whose kernels read the caller's numbers unchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.rows.inputs import Inputs


class MatrixInputs(Inputs):
    """A pipeline's parameters for `hbtvm.runtime.cuda.rows.arrays.prepare`.

    Raises `InputError` unless the kernels' columns are the caller's columns, all and in order, with the same
    rules for missing and infinite values.

    `reader`: the reader of rows on the host.
    """

    def __init__(self, reader: FeedReader) -> None:
        rules = {(feed.allow_nan, feed.allow_inf) for feed in reader.feeds}
        if not reader.reads_arrays or len(rules) > 1:
            raise InputError(
                "the pipeline's columns are read in host memory; expected a data frame or rows there, got "
                "rows on a GPU."
            )
        ((allow_nan, allow_inf),) = rules
        spec = replace(reader.spec, allow_nan=allow_nan, allow_inf=allow_inf)
        super().__init__(spec, "float64", ("float32", "float64"))
        self._reader = reader

    def kernel_dtype(self, dtype: np.dtype) -> np.dtype:
        super().kernel_dtype(dtype)
        return self._reader.array_dtype(dtype)
