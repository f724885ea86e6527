"""Read and write a package's `.tar`: regular files with short names only.

Python's `tarfile` accepts truncated archives, links, devices and names outside the folder, which must be
refused here; writing such an archive takes only a few lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from hbtvm.atomic import clear, replacing
from hbtvm.errors import PackageError, package_file_error

_BLOCK = 512
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", re.ASCII)
_MAX_NAME = 100
_MAX_SIZE = 8**11 - 1
_KINDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"5": "a folder",
          b"6": "a pipe"}  # fmt: skip


def write_archive(members: Mapping[str, bytes | memoryview], file: BinaryIO) -> None:
    """Write members in order; equal members give equal bytes."""
    for name, data in members.items():
        file.write(_header(name, len(data)))
        file.write(data)
        file.write(bytes(-len(data) % _BLOCK))
    file.write(bytes(2 * _BLOCK))


def read_archive(data: bytes, required: str) -> dict[str, memoryview]:
    """Return the members of a tar archive by name; their contents are not checked.

    `data`: the whole archive.
    `required`: the member that identifies an archive as a package.
    Raises `PackageError` if it is not a tar archive, is cut short or damaged, or has members other than
    regular files with distinct plain names. The text continues a sentence that begins with the file.
    """
    members: dict[str, memoryview] = {}
    problem: str | None = None
    view, at = memoryview(data), 0
    while True:
        block = data[at : at + _BLOCK]
        if block == bytes(_BLOCK):
            break
        if len(block) < _BLOCK:
            raise PackageError("is cut short" if members else "is not a tar archive")
        if not _has_checksum(block):
            raise PackageError(
                "is damaged: a tar header has a wrong checksum" if at else "is not a tar archive"
            )
        name, size, kind = _read_header(block)
        at += _BLOCK
        if at + size > len(data):
            raise PackageError(f"is cut short: {name!r} should have {size} bytes, {len(data) - at} are there")
        problem = problem or _problem(name, kind, members)
        members[name] = view[at : at + size]
        at += size + -size % _BLOCK
    if required not in members:
        raise PackageError(f"is a tar archive, but not an hbtvm package: it lacks {required}")
    if problem:
        raise PackageError(problem)
    if data[at : at + 2 * _BLOCK] != bytes(2 * _BLOCK):
        raise PackageError("is cut short: the tar archive has no end")
    return members


def replace_file(path: Path, members: Mapping[str, bytes | memoryview]) -> None:
    """Write an archive atomically: on failure, `path` is unchanged.

    Raises `PackageFileError` if the file can't be written; no temporary file stays.
    """
    try:
        clear(path.parent, path.name)
        with replacing(path) as temporary, open(temporary, "wb") as file:
            write_archive(members, file)
    except OSError as error:
        raise package_file_error(f"can't write {path}: {error.strerror}.", error, path) from error


def _header(name: str, size: int) -> bytes:
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name) or size > _MAX_SIZE:
        raise PackageError(f"can't pack {name!r} of {size} bytes: its name or size is too long.")
    fields = (
        name.encode().ljust(100, b"\0")
        + b"0000644\0" + b"0000000\0" * 2  # mode, user, group
        + b"%011o\0" % size + b"00000000000\0"  # size, time
        + b" " * 8 + b"0" + bytes(100)  # checksum, kind, link
        + b"ustar\0" + b"00"
    )  # fmt: skip
    block = fields.ljust(_BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _has_checksum(block: bytes) -> bool:
    stated = block[148:156].rstrip(b"\0 ").lstrip(b" ")
    if not stated.isdigit() or any(digit > ord("7") for digit in stated):
        return False
    return block[257:262] == b"ustar" and int(stated, 8) == sum(block[:148]) + 8 * ord(" ") + sum(block[156:])


def _read_header(block: bytes) -> tuple[str, int, bytes]:
    name = block[:100].split(b"\0")[0].decode("latin-1")
    prefix = block[345:500].split(b"\0")[0].decode("latin-1") if block[257:263] == b"ustar\0" else ""
    digits = block[124:136].rstrip(b"\0 ").lstrip(b" ")
    if any(not ord("0") <= digit <= ord("7") for digit in digits):
        raise PackageError(f"is damaged: the size of {name!r} is not a number")
    return (f"{prefix}/{name}" if prefix else name), int(digits or b"0", 8), block[156:157]


def _problem(name: str, kind: bytes, members: Mapping[str, memoryview]) -> str | None:
    if kind not in (b"0", b"\0"):
        return f"holds {_KINDS.get(kind, 'a special entry')}, {name!r}, which no package does"
    if not _NAME.fullmatch(name):
        return f"holds a file named {name!r}, which no package does"
    if name in members:
        return f"holds {name!r} twice"
    return None
