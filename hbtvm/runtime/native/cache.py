"""Keep what was compiled from the executor's C in a folder of the user's: the next process reads it there.

Compiling the executor takes a few seconds of each command that compiles a model. The folder is
``$HBTVM_CACHE_DIR``, by default ``hbtvm`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; where the variable is
empty, or the user has no home, nothing is kept. As its files are code that will run, they count only if no
other user can write them or replace a folder above. A file that is damaged, or can't be written, is no error:
the C is compiled again.

An entry's name is the SHA-256 of what it was made from, and its content begins with the SHA-256 of the rest.
Other files in the folder are the user's: they are neither read nor removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from hbtvm.runtime.native.elf import problem

VARIABLE = "HBTVM_CACHE_DIR"

KERNELS = "HBTVM_KERNEL_CACHE_DIR"
"""Variable that names a folder for built kernels; by default they are not kept."""

MOST = 32
"""Files that are kept, those last used: a few for each release, compiler and instruction set."""

MOST_KERNELS = 8192
"""Kernels that are kept, those last used: some 500 MB."""

_DIGEST = hashlib.sha256().digest_size
_ENTRY = re.compile("[0-9a-f]{64}")
_UNFINISHED = re.compile(r"\.hbtvm-[0-9a-f]{64}-\w{8}")
"""Names of entries, and of those that are being written."""


def kept(
    compiler: str,
    options: Iterable[str],
    sources: Iterable[Path],
    make: Callable[[], bytes],
    variable: str = VARIABLE,
    library: bool = True,
) -> bytes:
    """Return what was made before from the same, or make it.

    Parameters
    ----------
    compiler
        Its path; another file there counts as another compiler.
    options
        All of its options.
    sources
        Files that are read, headers included.
    make
        Compiles them.
    variable
        Variable of the environment that names the folder: `VARIABLE` or `KERNELS`.
    library
        Whether the content begins with a library or object for a CPU, to be checked.
    """
    path = None
    with contextlib.suppress(OSError):
        folder = _folder(variable)
        path = folder / _key(compiler, options, sources) if folder else None
    found = _read(path) if path else None
    if found is None or (library and _is_damaged(found)):
        found = make()
        if path:
            _write(path, found, MOST_KERNELS if variable == KERNELS else MOST)
    return found


def _is_damaged(code: bytes) -> bool:
    """Return whether it is of no use whatever its digest says."""
    return sys.platform == "linux" and problem(code, shared=code[16:17] != b"\1") is not None


def _folder(variable: str) -> Path | None:
    """Return the folder, made if need be; None if nothing is kept."""
    given = os.environ.get(variable)
    if given == "" or (given is None and variable == KERNELS):
        return None
    named = given or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "hbtvm")
    folder = Path(os.path.expanduser(named))
    if folder.parts[0].startswith("~"):  # the user has no home
        return None
    _make(folder)
    place = folder.resolve()
    return place if _is_own(place) and all(map(_is_safe, place.parents)) else None


def _make(folder: Path) -> None:
    """Make a folder and those above, which only this user can use."""
    if not folder.is_dir():
        _make(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def _is_own(path: Path) -> bool:
    """Return whether it is a file or a folder that no other user but root can have written."""
    found = path.lstat()
    plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return plain and found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_safe(folder: Path) -> bool:
    """Return whether no other user can replace what is in a folder: in a sticky one only owners can."""
    found = folder.stat()
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in (0, os.geteuid()) and bool(not shared or found.st_mode & stat.S_ISVTX)


def _key(compiler: str, options: Iterable[str], sources: Iterable[Path]) -> str:
    made = hashlib.sha256()

    def add(part: bytes) -> None:
        made.update(len(part).to_bytes(8, "little") + part)

    program = os.path.realpath(compiler.split()[0])
    about = os.stat(program)
    for text in (compiler, program, str(about.st_size), str(about.st_mtime_ns), *options):
        add(text.encode())
    for source in sources:
        add(source.name.encode())
        add(source.read_bytes())
    return made.hexdigest()


def _read(path: Path) -> bytes | None:
    """Return a file's content, if it is there and whole; it then counts as used now."""
    with contextlib.suppress(OSError):
        data = _content(path)
        if data is not None:
            os.utime(path)
        return data
    return None


def _content(path: Path) -> bytes | None:
    """Return what an entry holds; None if it is none, or damaged."""
    if not _is_own(path):
        return None
    data = path.read_bytes()
    return data[_DIGEST:] if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST] else None


def _write(path: Path, content: bytes, most: int) -> None:
    """Write a file, which appears whole or not at all, and remove those that were not used for longest."""
    with contextlib.suppress(OSError):
        descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".hbtvm-{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                # Ends with the process, whatever ends that.
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(hashlib.sha256(content).digest() + content)
                file.flush()
                os.replace(made, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(made)
            raise
        _clean(path.parent, most)


def _clean(folder: Path, most: int) -> None:
    """Remove the entries that were not used for longest, and what a killed process left unfinished."""
    names = os.listdir(folder)
    for path in (folder / name for name in names if _UNFINISHED.fullmatch(name)):
        with contextlib.suppress(OSError):
            if _is_own(path):
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
    found = [folder / name for name in names if _ENTRY.fullmatch(name)]
    if len(found) <= most:
        return
    by_use = sorted(found, key=lambda one: one.lstat().st_mtime, reverse=True)
    for old in by_use[most:]:
        with contextlib.suppress(OSError):
            if _content(old) is not None:
                old.unlink()
