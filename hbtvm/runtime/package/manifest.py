"""A package's ``manifest.json``: all but code and tables, as `hbtvm.codec` writes a `Package`.

Beside the package's fields it has ``format``, ``version`` and ``members``: the archive's other members with
their sizes and hashes. Members' names stand for bytes and arrays. The ``binding`` of a kernel or recursive
model is a hash of its other fields, which detects swapped tables of equal shapes, for example.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hbtvm import codec
from hbtvm.errors import PackageError
from hbtvm.runtime.package.entry import Package

FORMAT = "hbtvm-package"
VERSION = 1
MANIFEST = "manifest.json"

_OWN = ("format", "version", "members")


def to_manifest(package: Package, store: codec.Store) -> dict[str, Any]:
    """Return a manifest's values without ``members``; `from_manifest` inverts it.

    Raises `PackageError` if a value can't be written.
    """
    try:
        return {"format": FORMAT, "version": VERSION, **codec.write(package, store)}
    except codec.CodecError as error:
        raise PackageError(f"can't pack the model: {error}.") from None


def read_manifest(data: bytes) -> dict[str, Any]:
    """Return the file's values; only format and version are checked.

    Raises `PackageError` if it is not a manifest, or of another format. As all errors here, the text
    continues a sentence that begins with the package.
    """
    try:
        manifest = codec.parse(data)
    except codec.CodecError as error:
        raise PackageError(f"is damaged: its {MANIFEST} {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackageError(f"is not an hbtvm package: its {MANIFEST} names another format")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise PackageError(f"is damaged: its format version is {version!r:.100}")
    if version > VERSION:
        writer = str(manifest.get("hbtvm_version") or "")
        newer = f">={writer}" if re.fullmatch(r"[0-9][0-9A-Za-z.+-]{0,40}", writer) else ""
        raise PackageError(
            f"has format version {version}, but this hbtvm reads versions up to {VERSION}; "
            f"upgrade with pip install 'hbtvm{newer}'"
        )
    return manifest


def from_manifest(manifest: Mapping[str, Any], members: Mapping[str, Any]) -> Package:
    """Return the package that a manifest describes, checked.

    `members`: the package's code (bytes) and tables (arrays) by name.
    Raises `CodecError` if a field is invalid.
    """
    fields = {name: value for name, value in manifest.items() if name not in _OWN}
    return codec.read(Package, fields, members)
