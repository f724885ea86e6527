"""Predictions, computed and written one block of rows at a time within memory limits."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple

import numpy as np

from hbtvm.errors import HbtvmError, InputError
from hbtvm.serving.bodies import Share
from hbtvm.serving.datatypes import BYTES, NUMBERS
from hbtvm.serving.messages import Request, Response, write_response
from hbtvm.serving.served import Served

_CELLS = 1 << 17  # maximal number of input and output values in a block
_WORKING = 32  # bytes per value while a block is computed: rows twice, scores and outputs
_NUMBER = 26  # maximal bytes of a number in JSON

_TEXT = 128
"""Estimated maximal bytes of an output text (a class label or category); longer texts are counted later."""

_JOINED = 64 << 10  # maximal bytes of an answer written as one part
_INLINE_BYTES = 16 << 10  # maximal bytes of an answer that the event loop computes

_INLINE_SECONDS = 200e-6
"""Maximal seconds of an answer in the event loop, since all other clients wait for it."""


class Answer(NamedTuple):
    """The body of a response."""

    parts: list[bytes]  # parts of the body
    json_length: int | None  # bytes of its JSON if binary tensors follow, else None
    rows: int  # rows predicted


def answer(served: Served, request: Request, share: Share | None = None) -> Answer:
    """Compute and write the answer to a request.

    `share`: accounts for the answer's bytes; a block's before it is computed. None for few rows.
    Raises `InputError` if the tensors don't fit the model, or it has no such output. Raises `Refused` if the
    answer needs more memory than the limit (413) or than there is now (429).
    """
    if share is None:
        outputs = served.infer(request)
        body, json_length = write_response(served.head, request.identity, outputs)
        return Answer([body], json_length, len(outputs[0][1]))
    response = Response(served.head, request.identity)
    tensors = served.flat(request.tensors)
    rows = len(next(iter(tensors.values())))
    width = sum(tensor.size for tensor in tensors.values()) // max(1, rows)
    least, most = _row_bytes(served, request)
    block = max(1, _CELLS // max(1, width + most // _NUMBER))
    if any(len(tensor) != rows for tensor in tensors.values()):
        block = max(1, rows)  # refused later
    working = min(block, rows) * width * _WORKING
    share.require(rows * least)
    share.take(working)
    for start in range(0, max(1, rows), block):
        bound = min(block, rows - start) * most
        share.take(bound)
        part = {name: tensor[start : start + block] for name, tensor in tensors.items()}
        try:
            written = response.add(served.infer(request._replace(tensors=part)))
        except InputError as error:
            if not start:
                raise
            raise InputError(f"in the rows from {start} on: {error}") from error
        share.take(written - bound)
    share.take(-working)
    parts, json_length = response.finish()
    if sum(map(len, parts)) <= _JOINED:
        parts = [b"".join(parts)]
    return Answer(parts, json_length, rows)


def _row_bytes(served: Served, request: Request) -> tuple[int, int]:
    """Return a lower bound and a usual upper bound of the bytes of a row's outputs in the answer."""
    least = most = 0
    binary = {output.name: output.binary for output in request.wanted}
    for output in served.outputs if binary else served.outputs[:1]:
        if binary and output.name not in binary:
            continue
        width = 1 if output.width is None else output.width
        if output.datatype == BYTES:
            least, most = least + 2 * width, most + _TEXT * width
        elif binary.get(output.name, request.binary):
            size = width * NUMBERS[output.datatype].itemsize
            least, most = least + size, most + size
        else:
            least, most = least + 2 * width, most + _NUMBER * width
    return least, most


def inline_rows(served: Served) -> int:
    """Return how many rows the event loop may predict itself, from a few timed calls."""
    quick, count, seconds = 0, 1, 0.0
    with contextlib.suppress(HbtvmError):  # zeros or empty texts are unknown categories
        while seconds <= _INLINE_SECONDS and count <= _CELLS:
            request = Request(None, _example(served, count), (), False)
            seconds = min(_timed(served, request) for _ in range(3))
            quick = int(count * min(1.0, _INLINE_SECONDS / seconds))
            if count == 1 and seconds <= 5 * _INLINE_SECONDS:
                quick = 1
            count *= 4
        return min(quick, _INLINE_BYTES // max(1, _row_bytes(served, request)[1]))
    return 1


def _timed(served: Served, request: Request) -> float:
    start = time.perf_counter()
    answer(served, request)
    return time.perf_counter() - start


def _example(served: Served, rows: int) -> dict[str, np.ndarray]:
    """Return rows of zeros and empty texts."""
    tensors = {}
    for tensor in served.inputs:
        shape = (rows,) if tensor.width is None else (rows, tensor.width)
        empty = tensor.datatype == BYTES
        tensors[tensor.name] = (
            np.full(shape, "", object) if empty else np.zeros(shape, NUMBERS[tensor.datatype])
        )
    return tensors
