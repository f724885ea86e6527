"""Predictions, computed and written one block of rows at a time within memory limits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

from hbtvm.errors import InputError
from hbtvm.serving.bodies import Share
from hbtvm.serving.datatypes import BYTES, NUMBERS
from hbtvm.serving.messages import Request, Response, write_response
from hbtvm.serving.served import Served

BLOCK_VALUES = 1 << 17  # maximal number of input and output values in a block
WORKING_BYTES = 32  # bytes per value while a block is computed: rows twice, scores and outputs
NUMBER_BYTES = 26  # maximal bytes of a number in JSON

TEXT_BYTES = 128
"""Estimated maximal bytes of an output text (a class label or category); longer texts are counted later."""

_JOINED = 64 << 10  # maximal bytes of an answer written as one part


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
    least, most = row_bytes(served, request)
    block = max(1, BLOCK_VALUES // max(1, width + most // NUMBER_BYTES))
    if any(len(tensor) != rows for tensor in tensors.values()):
        block = max(1, rows)  # refused later
    working = min(block, rows) * width * WORKING_BYTES
    share.require(rows * least)
    share.take(working)
    for start in range(0, max(1, rows), block):
        bound = min(block, rows - start) * most
        share.take(bound)
        part = {name: tensor[start : start + block] for name, tensor in tensors.items()}
        with rows_from(start):
            written = response.add(served.infer(request._replace(tensors=part)))
        share.take(written - bound)
    share.take(-working)
    parts, json_length = response.finish()
    if sum(map(len, parts)) <= _JOINED:
        parts = [b"".join(parts)]
    return Answer(parts, json_length, rows)


@contextlib.contextmanager
def rows_from(start: int) -> Iterator[None]:
    """Say in errors about a block's rows which row of the request is the block's first."""
    try:
        yield
    except InputError as error:
        if not start:
            raise
        raise InputError(f"in the rows from {start} on: {error}") from error


def row_bytes(served: Served, request: Request) -> tuple[int, int]:
    """Return a lower bound and a usual upper bound of the bytes of a row's outputs in the answer."""
    least = most = 0
    binary = {output.name: output.binary for output in request.wanted}
    for output in served.outputs if binary else served.outputs[:1]:
        if binary and output.name not in binary:
            continue
        width = 1 if output.width is None else output.width
        if output.datatype == BYTES:
            least, most = least + 2 * width, most + TEXT_BYTES * width
        elif binary.get(output.name, request.binary):
            size = width * NUMBERS[output.datatype].itemsize
            least, most = least + size, most + size
        else:
            least, most = least + 2 * width, most + NUMBER_BYTES * width
    return least, most
