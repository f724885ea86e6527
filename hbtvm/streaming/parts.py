"""Parts of a dataset, each predicted and written to its own file by a worker process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hbtvm.streaming.places import check_outputs, output_of
from hbtvm.streaming.predicting import score, write
from hbtvm.streaming.reading import Dataset, Source, rows_of_pieces
from hbtvm.streaming.shipped import Shipped

_ROWS = 1_000_000
"""Maximal rows of a part, if its file can be split: seconds of work, so that a dead worker loses little."""


@dataclass(frozen=True)
class Part:
    """Rows of a file; can be pickled."""

    source: Source
    out: str  # the file of predictions
    # `start`, `stop`: range of its pieces; a `stop` of None means the end
    start: int = 0
    stop: int | None = None
    before: int = 0  # number of earlier rows in the file

    def predict(self, shipped: Shipped) -> int:
        """Predict and write; return the number of rows.

        Raises `InputError` if rows don't fit the model, or can't be read. Raises `OSError` if the predictions
        can't be written.
        """
        scorer = shipped.scorer(self.source.schema)
        pieces = itertools.islice(self.source.pieces(scorer.columns), self.start, self.stop)
        scored = (score(scorer, piece) for piece in pieces)
        return write(Path(self.out), scorer.schema, scored, self.source.path, self.before)


def parts_of(rows: Dataset, out: Path, folds: bool = False) -> list[Part]:
    """Return the parts of a dataset whose predictions go to a folder.

    `folds`: whether the folder's file system ignores the case of names.
    Raises `InputError` if a file can't be read, or two parts' predictions would go to the same file.
    """
    parts = [(file, part) for file in rows.files for part in _parts_of(rows.source(file), out, file)]
    check_outputs([(file, os.path.relpath(part.out, out)) for file, part in parts], folds)
    return [part for _, part in parts]


def _parts_of(source: Source, out: Path, file: str) -> Iterator[Part]:
    name = out / output_of(file)
    cuts = _cuts(rows_of_pieces(source) or [])
    if len(cuts) < 2:
        yield Part(source, str(name))
        return
    for i, (start, stop, before) in enumerate(cuts):
        yield Part(source, str(name.with_stem(f"{name.stem}-{i:05}")), start, stop, before)


def _cuts(pieces: list[int]) -> list[tuple[int, int, int]]:
    """Return the first and last pieces of each part, and the number of earlier rows."""
    cuts = []
    start = rows = before = 0
    for i, count in enumerate(pieces):
        if rows and rows + count > _ROWS:
            cuts.append((start, i, before))
            start, before, rows = i, before + rows, 0
        rows += count
    if rows:
        cuts.append((start, len(pieces), before))
    return cuts
