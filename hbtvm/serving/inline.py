"""Limits of what the event loop predicts itself, from timed calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import numpy as np

from hbtvm.errors import HbtvmError
from hbtvm.serving.answers import BLOCK_VALUES, answer, row_bytes
from hbtvm.serving.datatypes import BYTES, NUMBERS
from hbtvm.serving.messages import Request
from hbtvm.serving.plain.answers import answer_rows
from hbtvm.serving.plain.rows import RowsRequest
from hbtvm.serving.served import Inline, Served

_BYTES = 16 << 10  # maximal bytes of an answer that the event loop computes
_STRUCTURES = 1024  # maximal bytes of a request of structures that it computes

_SECONDS = 200e-6
"""Maximal seconds of an answer in the event loop, since all other clients wait for it."""


def inline(served: Served) -> Inline:
    """Return how many rows of a request the event loop may predict itself."""
    if served.structures is not None:
        return Inline(0, _STRUCTURES)
    names = served.outputs_of(())
    example = served.rows.example

    def tensors(count: int) -> None:
        answer(served, Request(None, _zeros(served, count), (), False))

    def objects(count: int) -> None:
        answer_rows(served, RowsRequest([example] * count, names, 0))

    most = _BYTES // max(1, row_bytes(served, Request(None, {}, (), False))[1])
    return Inline(min(_quick(tensors), most), min(_quick(objects) * len(names), most))


def _quick(predict: Callable[[int], None]) -> int:
    """Return the number of rows that `predict` takes in `_SECONDS`."""
    quick, count, seconds = 0, 1, 0.0
    with contextlib.suppress(HbtvmError):  # zeros or empty texts are unknown categories
        while seconds <= _SECONDS and count <= BLOCK_VALUES:
            seconds = min(_timed(predict, count) for _ in range(3))
            quick = int(count * min(1.0, _SECONDS / seconds))
            if count == 1 and seconds <= 5 * _SECONDS:
                quick = 1
            count *= 4
        return quick
    return 1


def _timed(predict: Callable[[int], None], count: int) -> float:
    start = time.perf_counter()
    predict(count)
    return time.perf_counter() - start


def _zeros(served: Served, rows: int) -> dict[str, np.ndarray]:
    """Return rows of zeros and empty texts."""
    tensors = {}
    for tensor in served.inputs:
        shape = (rows,) if tensor.width is None else (rows, tensor.width)
        empty = tensor.datatype == BYTES
        tensors[tensor.name] = (
            np.full(shape, "", object) if empty else np.zeros(shape, NUMBERS[tensor.datatype])
        )
    return tensors
