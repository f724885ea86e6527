"""Cache folders of all kinds: damaged entries, the user's own files among them, odd names and permissions."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.mutants.changes import changed_bytes, changed_object
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.native.objects import cache
from hbtvm.runtime.native.objects.build import c_compiler, executor_library

_NAMES = (
    "data00.csv", "a", "0123", "f" * 63, "e" * 65, "F" * 64, "d" * 64, ".made-abcdefgh", "~",
    "b" * 64 + ".csv", ".hbtvm", ".hbtvm-abcdefgh", "." + "c" * 64 + ".abcdefgh",
)  # fmt: skip
"""Names of the user's files."""


def prepare(folder: Path) -> None:
    """Compile an executor."""
    (folder / "executor.so").write_bytes(executor_library(c_compiler()))


def trials(folder: Path) -> Callable[[int, int], str]:
    """Return what makes and tries a mutant; see `benchmarks.mutants`."""
    code = (folder / "executor.so").read_bytes()
    compiler = shutil.which("true") or "/bin/true"
    source = folder / "executor.so"

    def trial(number: int, seed: int) -> str:
        rng = random.Random(f"{seed} {number}")
        place = folder / f"cache-{os.getpid()}"
        place.mkdir()
        try:
            return _try(place, rng, code, compiler, source)
        finally:
            shutil.rmtree(place)

    return trial


def _try(place: Path, rng: random.Random, code: bytes, compiler: str, source: Path) -> str:
    where = place / rng.choice(("kept", "deep/er/kept", "kept"))
    os.environ[cache.VARIABLE] = str(where)
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        return code

    def kept(option: str = "") -> bytes:
        return cache.kept(compiler, [option], [source], make)

    mask = os.umask(rng.choice((0, 0o022, 0o077)))
    try:
        if rng.random() < 0.9:
            kept()
            entries = {path for path in where.iterdir() if not path.name.startswith(".")}
            assert len(entries) == 1, f"{len(entries)} entries"
            _change(entries.pop(), rng, code)
        theirs = _add_theirs(where, rng)
        before = {path: path.lstat().st_ino for path in theirs}
        got = kept()
        for number in range(rng.choice((0, 0, 2))):
            kept(f"-{number}")
        load_library(got)
        load_library(kept())
    finally:
        os.umask(mask)
        load_library.cache_clear()
    for path, number in before.items():
        assert path.lstat().st_ino == number, f"{path.name} was replaced or is gone"
    for path in (where, *where.parents):
        if path == place:
            break
        shared = path.exists() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        assert not shared or path in before, f"{path.name} can be written by others"
    return "compiled anew" if len(made) > 1 else "read"


def _change(entry: Path, rng: random.Random, code: bytes) -> None:
    """Damage an entry, with a right digest or not."""
    match rng.randrange(8):
        case 0:
            entry.write_bytes(changed_bytes(entry.read_bytes(), rng, [code]))
        case 1 | 2 | 3:
            new = changed_object(code, rng) if rng.random() < 0.7 else code[: rng.randrange(len(code))]
            entry.write_bytes(hashlib.sha256(new).digest() + new)
        case 4:
            entry.unlink()
            rng.choice((entry.mkdir, lambda: os.mkfifo(entry), lambda: entry.symlink_to(entry)))()
        case 5:
            entry.chmod(rng.choice((0o666, 0o777, 0o000)))
        case 6:
            entry.unlink()
            target = entry.parent / "target"
            target.write_bytes(changed_bytes(code, rng, [code]))
            entry.symlink_to(target)
        case _:
            os.utime(entry, (0, 0))


def _add_theirs(where: Path, rng: random.Random) -> list[Path]:
    """Put the user's files, links, pipes and folders into the folder."""
    if not where.exists():
        return []
    theirs = []
    for name in rng.sample(_NAMES, rng.randrange(5)):
        path = where / name
        match rng.randrange(5):
            case 0:
                path.mkdir()
            case 1:
                path.symlink_to(rng.choice((path, where, Path("/dev/zero"), Path("/nowhere"))))
            case 2:
                os.mkfifo(path)
            case _:
                path.write_bytes(rng.randbytes(rng.choice((0, 31, 32, 33, 200))))
        theirs.append(path)
    for number in range(rng.choice((0, 0, 0, 40))):
        path = where / f"{hashlib.sha256(b'%d' % number).hexdigest()}"
        path.write_bytes(b"the user's")
        old = time.time() - 10**6
        os.utime(path, (old, old))
        theirs.append(path)
    return theirs
