"""Pickle and joblib files to inert values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hbtvm.frontends.pickles.budget import Budget
from hbtvm.frontends.pickles.operations import read
from hbtvm.frontends.pickles.source import Source, content_of

MAX_BYTES = 4 << 30  # bytes to which a compressed file may expand unless the user allows more


def load(path: Path, max_bytes: int | None = None) -> Any:
    """Read a pickle or joblib file, compressed or not, without running any of it.

    `path`: the file; its first bytes tell whether and how it is compressed.
    `max_bytes`: bound of a compressed file's expanded bytes, `MAX_BYTES` by default; also raises the bound of
        its objects' memory, which otherwise depends on its size.
    Returns plain values, numpy arrays, and a `Record` for each object of a class. Raises `ModelError` if the
    file is not a pickle, is damaged, or needs too much memory. Raises `OSError` if it can't be read.
    """
    with path.open("rb") as file:
        source = Source(content_of(file, MAX_BYTES if max_bytes is None else max_bytes))
        return read(source, Budget(max_bytes or 0))
