"""Prediction of pieces of files, and writing of predictions."""

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

_GROUP = 1 << 16  # minimal rows per write, if the file has as many
Progress = Callable[[int, int], None]  # called with the rows and files done since the last call


def no_progress(rows: int, files: int) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Scored:
    """Predictions of a piece."""

    batches: Sequence[pa.RecordBatch] = ()  # predictions in order
    error: InputError | None = None  # the error that ended the piece
    refused: bool = False  # whether the model raised it


def score(scorer: Scorer, piece: Piece) -> Scored:
    """Predict a piece."""
    batches: list[pa.RecordBatch] = []
    try:
        for batch in piece():
            try:
                batches.append(scorer(batch))
            except InputError as error:
                return Scored(batches, error, True)
    except InputError as error:
        return Scored(batches, error)
    return Scored(batches)


def write(
    out: Path,
    schema: pa.Schema,
    scored: Iterable[Scored],
    source: str,
    before: int = 0,
    progress: Progress = no_progress,
) -> int:
    """Write a file of predictions, which appears when it is complete.

    `out`: path of the file.
    `schema`: schema of the predictions.
    `scored`: predictions of pieces, in order.
    `source`: the input file, for errors.
    `before`: number of earlier rows in the input file.
    `progress`: called with the rows of each piece.
    Returns the number of predictions. Raises `InputError` if rows don't fit the model, or can't be read.
    Raises `OSError` if the file can't be written.
    """
    done = 0
    make_folder(out.parent)
    with replacing(out) as temporary, writing(temporary, schema) as put:
        group: list[pa.RecordBatch] = []
        rows = 0
        for piece in scored:
            count = sum(batch.num_rows for batch in piece.batches)
            if piece.error is not None:
                error, earlier = piece.error, before + done + count
                text = str(error)
                if error.row is not None:
                    text = f"{source}: {error.counted(earlier)}"
                elif piece.refused:
                    text = f"{source}, rows from {earlier + 1:,} on: {error.counted(earlier)}"
                raise InputError(text) from error
            group += piece.batches
            rows += count
            if rows >= _GROUP:
                put(pa.Table.from_batches(group))
                group, rows = [], 0
            done += count
            progress(count, 0)
        if rows:
            put(pa.Table.from_batches(group))
    return done
