"""Steps from a request's body to its answer; errors of a model or its rows become refusals."""

from __future__ import annotations

import logging

from hbtvm.errors import HbtvmError, InputError
from hbtvm.serving.answers import Answer, answer
from hbtvm.serving.bodies import Bytes, Refused, Share, unpacked
from hbtvm.serving.messages import Request, parsed_size, read_request
from hbtvm.serving.plain.answers import answer_rows
from hbtvm.serving.plain.rows import RowsRequest, read_rows
from hbtvm.serving.served import Served

_log = logging.getLogger(__name__)


def worked(
    most: int,
    served: Served,
    plain: bool,
    data: Bytes,
    header_length: int | None,
    encoding: bytes,
    request: Request | RowsRequest | None,
    share: Share,
) -> Answer:
    """Decompress, parse and answer a request in a thread; each step accounts for its memory first."""
    if request is None:
        if encoding:
            data = unpacked(data, encoding, most, share)
        held = parsed_size(data, header_length)
        share.take(held)
        request = read(served, plain, data, header_length)
        if not isinstance(request, RowsRequest) and not any(
            tensor.dtype == object for tensor in request.tensors.values()
        ):
            share.take(sum(tensor.nbytes for tensor in request.tensors.values()) - held)
    elif isinstance(request, RowsRequest):
        share.take(len(data) + parsed_size(data, None))
    else:
        share.take(len(data) + sum(tensor.nbytes for tensor in request.tensors.values()))
    return computed(served, request, share)


def read(served: Served, plain: bool, data: Bytes, header_length: int | None) -> Request | RowsRequest:
    """Parse a request.

    `plain`: whether it is plain JSON rather than tensors.
    Raises `Refused` if it is not valid.
    """
    try:
        return read_rows(data) if plain else read_request(data, header_length)
    except (HbtvmError, MemoryError) as error:
        raise _refusal(served, error) from error


def computed(served: Served, request: Request | RowsRequest, share: Share | None = None) -> Answer:
    """Answer a parsed request; raises `Refused` if its rows don't fit the model, or memory is short."""
    try:
        if isinstance(request, RowsRequest):
            return answer_rows(served, request, share)
        return answer(served, request, share)
    except (HbtvmError, MemoryError) as error:
        raise _refusal(served, error) from error


def _refusal(served: Served, error: Exception) -> Refused:
    """Convert an error of a model or its rows to a response."""
    if isinstance(error, InputError):
        return Refused(400, str(error))
    _log.error("%s: %s", served.name, error)
    return Refused(500, str(error) or "there is not enough memory")
