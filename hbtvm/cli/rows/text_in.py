"""Open files of text: plain, compressed by gzip, or standard input."""

from __future__ import annotations

import contextlib
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from hbtvm.cli.arguments import UsageError
from hbtvm.errors import InputError

STANDARD = "-"  # the name of standard input and output


def suffix_of(path: str | Path) -> str:
    """Return a file's suffix in small letters, without ``.gz``; that of CSV for standard input and output."""
    if str(path) == STANDARD:
        return ".csv"
    name = str(path).lower().removesuffix(".gz")
    return Path(name).suffix


def is_compressed(path: Path) -> bool:
    """Return whether a file's name says that gzip compressed it."""
    return path.suffix.lower() == ".gz"


def shown(path: Path) -> str:
    """Return a file's name for errors."""
    return "standard input" if str(path) == STANDARD else str(path)


def open_text(path: Path, newline: str | None = None) -> IO[str]:
    """Open a file of UTF-8 text to read."""
    if str(path) == STANDARD:
        return io.TextIOWrapper(sys.stdin.buffer, "utf-8-sig", newline=newline)
    if is_compressed(path):
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig", newline=newline))
    return open(path, encoding="utf-8-sig", newline=newline)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of reading text into usage errors."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown(path)}: this is not UTF-8 text ({error.reason})") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{shown(path)}: this is not a readable gzip file ({error})") from error


@contextlib.contextmanager
def in_file(path: str | Path, done: int) -> Iterator[None]:
    """Name the file in errors about rows, and count rows from 1 as users do.

    `done`: number of rows before these.
    """
    try:
        yield
    except InputError as error:
        if error.row is not None:
            raise InputError(f"{path}: {error.counted(done)}") from error
        raise
