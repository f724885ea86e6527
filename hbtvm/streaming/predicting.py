"""Predictions of pieces of files, and files of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from hbtvm.atomic import make_folder, replacing
from hbtvm.errors import InputError
from hbtvm.streaming.reading import Piece
from hbtvm.streaming.scorer import Scorer
from hbtvm.streaming.writing import writing

_GROUP = 1 << 16
"""Rows that are written at a time at least, where a file has as many."""

Told = Callable[[int, int], None]
"""Takes the rows and the files done since it was called last."""


def untold(rows: int, files: int) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Scored:
    """Predictions of a piece.

    Attributes
    ----------
    batches
        In order.
    error
        Why there are no more.
    refused
        Whether that is the model's.
    """

    batches: Sequence[pa.RecordBatch] = ()
    error: InputError | None = None
    refused: bool = False


def score(scorer: Scorer, piece: Piece) -> Scored:
    """Predict for a piece."""
    made: list[pa.RecordBatch] = []
    try:
        for batch in piece():
            try:
                made.append(scorer(batch))
            except InputError as error:
                return Scored(made, error, True)
    except InputError as error:
        return Scored(made, error)
    return Scored(made)


def write(
    out: Path,
    schema: pa.Schema,
    scored: Iterable[Scored],
    source: str,
    before: int = 0,
    told: Told = untold,
) -> int:
    """Write a file of predictions, which is there when all of them are.

    Parameters
    ----------
    out
        Its path.
    schema
        Of the predictions.
    scored
        In order.
    source
        The file of rows, for errors.
    before
        Rows of that file before these.
    told
        Called with the rows of each piece.

    Returns
    -------
    How many predictions there are.

    Raises
    ------
    InputError
        If rows don't fit the model, or can't be read.
    OSError
        If the file can't be written.
    """
    done = 0
    make_folder(out.parent)
    with replacing(out) as temporary, writing(temporary, schema) as put:
        group: list[pa.RecordBatch] = []
        rows = 0
        for piece in scored:
            count = sum(batch.num_rows for batch in piece.batches)
            if piece.error is not None:
                first = before + done + count + 1
                at = f"{source}, rows from {first:,} on: " if piece.refused else ""
                raise InputError(f"{at}{piece.error}") from piece.error
            group += piece.batches
            rows += count
            if rows >= _GROUP:
                put(pa.Table.from_batches(group))
                group, rows = [], 0
            done += count
            told(count, 0)
        if rows:
            put(pa.Table.from_batches(group))
    return done
