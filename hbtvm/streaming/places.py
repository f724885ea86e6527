"""Output paths: apart from the rows, and distinct for each input file."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from hbtvm.errors import InputError


def output_of(file: str) -> str:
    """Return the name of the predictions for a file of rows; both are relative to their folders."""
    return str(Path(file).with_suffix(".parquet"))


def check_apart(data: Path, out: Path) -> None:
    """Refuse an output folder within the input folder or around it.

    Raises `InputError` if the folders overlap, after following links.
    """
    if _within(out, data):
        raise InputError(f"{out}: the predictions would be among the rows of {data}; name another folder.")
    if _within(data, out):
        raise InputError(f"{out}: this folder contains the rows {data}; name another for the predictions.")


def check_outputs(outputs: Iterable[tuple[str, str]], folds: bool) -> None:
    """Refuse input files whose predictions would overwrite each other.

    `outputs`: pairs of an input file's name and its output file's name.
    `folds`: whether names that differ only by case are the same file.
    Raises `InputError` for two files with the same output.
    """
    sources: dict[tuple[str, ...], str] = {}
    for source, out in outputs:
        key = tuple(_folded(part) if folds else part for part in Path(out).parts)
        if key in sources:
            _refuse(sources[key], source, out)
        sources[key] = source
    for key, source in sources.items():
        for i in range(1, len(key)):
            if key[:i] in sources:
                _refuse(sources[key[:i]], source, str(Path(*key[:i])))


def folds_case(path: Path) -> bool:
    """Return whether the file system of an existing file ignores the case of names."""
    return path.with_name(path.name.swapcase()).exists()


def _refuse(source: str, other: str, out: str) -> NoReturn:
    raise InputError(f"the predictions of {source} and of {other} would both go to {out}; rename a file.")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _within(inner: Path, outer: Path) -> bool:
    inner = inner.resolve()
    return outer.exists() and any(
        folder.exists() and folder.samefile(outer) for folder in (inner, *inner.parents)
    )
