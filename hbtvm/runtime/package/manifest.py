"""A package's ``manifest.json``: everything but code and tables, as `hbtvm.codec` writes a `Package`.

Beside the package's fields it has ``format``, ``version`` and ``members``: the archive's other members with
their sizes and hashes. Bytes and arrays stand there by the names of their members. The ``binding`` of a
kernel and of a recursive model is a hash of all else that stands there, so that tables of equal shapes, say,
are not mixed up unnoticed.
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
    """Return the values of a manifest, ``members`` aside, from which `from_manifest` makes an equal package.

    Raises `PackageError` if some value has no form.
    """
    try:
        return {"format": FORMAT, "version": VERSION, **codec.write(package, store)}
    except codec.CodecError as error:
        raise PackageError(f"can't pack the model: {error}.") from None


def read_manifest(data: bytes) -> dict[str, Any]:
    """Return the values in the file, of which only format and version have been looked at.

    Raises `PackageError` if it is no manifest, or one of another format. The text continues a sentence that
    begins with the package, as do those of all errors here.
    """
    try:
        manifest = codec.parse(data)
    except codec.CodecError as error:
        raise PackageError(f"is damaged: its {MANIFEST} {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackageError(f"is no hbtvm package: its {MANIFEST} names another format")
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
    """Return what a manifest describes, checked.

    `members`: the package's code (bytes) and tables (arrays) by name.
    Raises `CodecError` if it makes no sense.
    """
    fields = {name: value for name, value in manifest.items() if name not in _OWN}
    return codec.read(Package, fields, members)
