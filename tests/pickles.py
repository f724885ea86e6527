"""Pickles that many releases of the libraries wrote, and what those libraries predicted.

``tests/data/pickles/make.py`` makes them, in environments that have these releases.
"""

from __future__ import annotations

import functools
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "data" / "pickles"


@dataclass(frozen=True)
class Release:
    """One archive.

    Attributes
    ----------
    files
        Content of each model's file, by the file's name.
    expected
        ``rows``, ``rows_missing``, and predictions as ``model/rows/method/part``.
    """

    files: dict[str, bytes]
    expected: dict[str, np.ndarray]

    def methods(self, model: str, rows: str) -> dict[str, Any]:
        """What the library predicted for a model, by method; a list where it gives one."""
        parts: dict[str, list[np.ndarray]] = {}
        for name, value in self.expected.items():
            if name.startswith(f"{model}/{rows}/"):
                parts.setdefault(name.split("/")[2], []).append(value)
        return {method: found[0] if len(found) == 1 else found for method, found in parts.items()}


@functools.cache
def release(name: str) -> Release:
    """An archive by its name, such as ``sklearn-1.0``."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
    with np.load(io.BytesIO(files.pop("expected.npz"))) as stored:
        expected = {name: stored[name] for name in stored.files}
    return Release(files, expected)


RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))
