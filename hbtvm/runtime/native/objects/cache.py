"""A user-wide cache of compiled C, shared by processes.

Compiling the executor takes a few seconds of each command that compiles a model. The cache is
``$HBTVM_CACHE_DIR``, by default ``hbtvm`` in ``$XDG_CACHE_HOME`` or ``~/.cache``. It is disabled if the
variable is empty or the user has no home. Its files are code that will run, so they are used only if no other
user can write to them or replace a folder above. A damaged file or a failed write is not an error: the C is
compiled again.

An entry's name is the SHA-256 of its inputs, and its content starts with the SHA-256 of the rest. Other files
in the folder are neither read nor removed.
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

from hbtvm.runtime.native.objects.elf import problem

VARIABLE = "HBTVM_CACHE_DIR"

KERNELS = "HBTVM_KERNEL_CACHE_DIR"
"""Environment variable with the folder of built kernels; by default they are not cached."""

MOST = 32  # maximal number of entries, the last used: a few for each release, compiler and instruction set
MOST_KERNELS = 8192  # maximal number of cached kernels, the last used: some 500 MB

_DIGEST = hashlib.sha256().digest_size
_ENTRY = re.compile("[0-9a-f]{64}")
_UNFINISHED = re.compile(r"\.hbtvm-[0-9a-f]{64}-\w{8}")  # names of temporary files of entries being written


def kept(
    compiler: str,
    options: Iterable[str],
    sources: Iterable[Path],
    make: Callable[[], bytes],
    variable: str = VARIABLE,
    library: bool = True,
) -> bytes:
    """Return the cached result for these inputs, or compute and cache it.

    `compiler`: path of the compiler; a replaced file counts as another compiler.
    `options`: all of its options.
    `sources`: source files, headers included.
    `make`: compiles them.
    `variable`: environment variable with the folder: `VARIABLE` or `KERNELS`.
    `library`: whether the content starts with a library or object for a CPU, which is checked.
    """
    path = None
    with contextlib.suppress(OSError):
        folder = _folder(variable)
        path = folder / _key(compiler, options, sources) if folder else None
    code = _read(path) if path else None
    if code is None or (library and _is_damaged(code)):
        code = make()
        if path:
            _write(path, code, MOST_KERNELS if variable == KERNELS else MOST)
    return code


def _is_damaged(code: bytes) -> bool:
    """Return whether the code is unusable despite a correct digest."""
    return sys.platform == "linux" and problem(code, shared=code[16:17] != b"\1") is not None


def _folder(variable: str) -> Path | None:
    """Return the folder, created if necessary; None if the cache is disabled."""
    configured = os.environ.get(variable)
    if configured == "" or (configured is None and variable == KERNELS):
        return None
    named = configured or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "hbtvm")
    folder = Path(os.path.expanduser(named))
    if folder.parts[0].startswith("~"):  # the user has no home
        return None
    _make(folder)
    place = folder.resolve()
    return place if _is_own(place) and all(map(_is_safe, place.parents)) else None


def _make(folder: Path) -> None:
    """Create a folder and its parents, accessible to this user only."""
    if not folder.is_dir():
        _make(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def _is_own(path: Path) -> bool:
    """Return whether only this user or root can have written the file or folder."""
    status = path.lstat()
    plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return plain and status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_safe(folder: Path) -> bool:
    """Return whether no other user can replace entries of a folder (in a sticky folder, only owners can)."""
    status = folder.stat()
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in (0, os.geteuid()) and bool(not shared or status.st_mode & stat.S_ISVTX)


def _key(compiler: str, options: Iterable[str], sources: Iterable[Path]) -> str:
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        digest.update(len(part).to_bytes(8, "little") + part)

    program = os.path.realpath(compiler.split()[0])
    about = os.stat(program)
    for text in (compiler, program, str(about.st_size), str(about.st_mtime_ns), *options):
        add(text.encode())
    for source in sources:
        add(source.name.encode())
        add(source.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> bytes | None:
    """Return a file's content if it is intact, and mark it as used; else None."""
    with contextlib.suppress(OSError):
        data = _content(path)
        if data is not None:
            os.utime(path)
        return data
    return None


def _content(path: Path) -> bytes | None:
    """Return an entry's content; None if it is not an entry, or damaged."""
    if not _is_own(path):
        return None
    data = path.read_bytes()
    return data[_DIGEST:] if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST] else None


def _write(path: Path, content: bytes, most: int) -> None:
    """Write a file atomically, and remove the least recently used entries."""
    with contextlib.suppress(OSError):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".hbtvm-{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                # The lock ends with the process.
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(hashlib.sha256(content).digest() + content)
                file.flush()
                os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _clean(path.parent, most)


def _clean(folder: Path, most: int) -> None:
    """Remove the least recently used entries, and unfinished files of killed processes."""
    names = os.listdir(folder)
    for path in (folder / name for name in names if _UNFINISHED.fullmatch(name)):
        with contextlib.suppress(OSError):
            if _is_own(path):
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
    entries = [folder / name for name in names if _ENTRY.fullmatch(name)]
    if len(entries) <= most:
        return
    by_use = sorted(entries, key=lambda entry: entry.lstat().st_mtime, reverse=True)
    for old in by_use[most:]:
        with contextlib.suppress(OSError):
            if _content(old) is not None:
                old.unlink()
