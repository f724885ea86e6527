"""Answers in plain JSON: an object of outputs for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from hbtvm.serving.answers import BLOCK_VALUES, NUMBER_BYTES, TEXT_BYTES, WORKING_BYTES, Answer, rows_from
from hbtvm.serving.bodies import Share
from hbtvm.serving.datatypes import BYTES, to_json
from hbtvm.serving.plain.rows import RowsRequest
from hbtvm.serving.served import Served
from hbtvm.serving.tensors import Tensor

_STRUCTURES = 64  # structures computed at a time


def answer_rows(served: Served, request: RowsRequest, share: Share | None = None) -> Answer:
    """Compute and write the answer to a request.

    `share`: accounts for the answer's bytes; a block's before it is computed. None for few rows.
    Raises `InputError` if the rows don't fit the model, or it has no such output. Raises `Refused` if the
    answer needs more memory than the limit (413) or than there is now (429).
    """
    names = served.outputs_of(request.outputs)
    rows = request.rows
    step = max(1, len(rows))
    if share is not None:
        share.require(len(rows) * sum(len(name) + 4 for name in names))
        width = 1 if served.structures is not None else served.rows.width
        step = _STRUCTURES if served.structures is not None else max(1, BLOCK_VALUES // max(1, width))
    parts = [orjson.dumps(served.head)[:-1] + b',"predictions":[']
    for start in range(0, max(1, len(rows)), step):
        block = rows[start : start + step]
        with rows_from(start):
            parts.append(_written(served, block, names, share))
        if start + step < len(rows):
            parts.append(b",")
    parts.append(b"]}")
    return Answer([b"".join(parts)] if share is None else parts, None, len(rows))


def _written(served: Served, block: list[Any], names: Sequence[str], share: Share | None) -> bytes:
    """Return the JSON of a block's predictions, without brackets around them."""
    owners = None
    if served.structures is None:
        rows: Any = served.rows.of(block)
        count, working = len(block), len(block) * served.rows.width * WORKING_BYTES
    else:
        rows = served.structures.of(block)
        owners = served.structures.owners(rows)
        count = len(block) if owners is None else len(owners)
        working = served.structures.bytes(rows)
    held = 0
    if share is not None:
        held = working + count * sum(_most_bytes(served.tensor(name)) for name in names)
        share.take(held)
    columns = [_column(served.tensor(name), served.compute(name, rows)) for name in names]
    objects: list[Any] = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    if owners is not None:
        groups: list[list[Any]] = [[] for _ in block]
        for owner, item in zip(owners.tolist(), objects, strict=True):
            groups[owner].append(item)
        objects = groups
    text = orjson.dumps(objects)[1:-1]
    if share is not None:
        share.take(len(text) - held)
    return text


def _column(output: Tensor, values: np.ndarray) -> list[Any]:
    """Return an output's value of each row: a number, a text, a list, or probabilities by class."""
    if values.ndim == 1:
        column: list[Any] = to_json(values)
        return column
    flat, width = to_json(values), values[0].size
    table = [flat[at : at + width] for at in range(0, len(flat), width)]
    if len(output.labels) != width:
        return table
    return [dict(zip(output.labels, row, strict=True)) for row in table]


def _most_bytes(output: Tensor) -> int:
    """Return a usual upper bound of the bytes of an output of a row."""
    value = TEXT_BYTES if output.datatype == BYTES else NUMBER_BYTES
    return len(output.name) + (output.width or 1) * value + sum(len(label) + 4 for label in output.labels)
