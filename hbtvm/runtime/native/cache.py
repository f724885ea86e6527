"""Keep what was compiled from the executor's C in a folder of the user's: the next process reads it there.

Compiling the executor takes a few seconds of each command that compiles a model. The folder is
``$HBTVM_CACHE_DIR``, by default ``hbtvm`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; where the variable is
empty, nothing is kept. As its files are code that will run, they count only if nobody else can write them. A
file that is damaged, or can't be written, is no error: the C is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

VARIABLE = "HBTVM_CACHE_DIR"

MOST = 32
"""Files that are kept, those last used: a few for each release, compiler and instruction set."""

_DIGEST = hashlib.sha256().digest_size


def kept(compiler: str, options: Iterable[str], sources: Iterable[Path], make: Callable[[], bytes]) -> bytes:
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
    """
    path = None
    with contextlib.suppress(OSError):
        folder = _folder()
        path = folder / _key(compiler, options, sources) if folder else None
    found = _read(path) if path else None
    if found is None:
        found = make()
        if path:
            _write(path, found)
    return found


def _folder() -> Path | None:
    """Return the folder, made if need be; None if nothing is kept."""
    given = os.environ.get(VARIABLE)
    if given == "":
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(given or os.path.join(home, "hbtvm"))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder if _is_own(folder) else None


def _is_own(path: Path) -> bool:
    """Return whether no other user but root can have written a file or a folder."""
    found = path.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


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
        if _is_own(path):
            data = path.read_bytes()
            if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
                os.utime(path)
                return data[_DIGEST:]
    return None


def _write(path: Path, content: bytes) -> None:
    """Write a file, which appears whole or not at all, and remove those that were not used for longest."""
    with contextlib.suppress(OSError):
        descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=".made-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(made, path)
        except BaseException:
            os.unlink(made)
            raise
        by_use = sorted(path.parent.glob("[0-9a-f]*"), key=lambda one: one.stat().st_mtime, reverse=True)
        for old in by_use[MOST:]:
            old.unlink(missing_ok=True)
