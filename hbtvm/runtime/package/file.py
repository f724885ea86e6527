"""The `.tar` of a compiled model: format version 1.

Members: ``manifest.json`` (all but code and tables, see `hbtvm.runtime.package.manifest`),
``manifest.sha256`` (its hash), ``kernels/<hash>.so`` (``.fatbin`` for CUDA, ``.cl`` for OpenCL) and
``tables/<hash>.npy``, each stored once, with sizes and hashes in the manifest. For a CPU,
``objects/<hash>.o`` is the object from which a kernel was linked (`hbtvm.compiler.exporting` links it into
other libraries). The ``transform`` of a model that predicts is a package, ``transform.tar``, and so is each
of its views (`hbtvm.graph.views`), ``views/<name>.tar``. ``python/<hash>.pkl`` is a Python step, which only
`hbtvm.runtime.python_steps.trusted` unpickles, and ``lead.tar`` the package in front of it. Equal packages
give equal bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hbtvm import checks
from hbtvm.codec import text
from hbtvm.errors import InputTypeError, PackageError, package_file_error
from hbtvm.runtime.package.archive import read_archive, replace_file, write_archive
from hbtvm.runtime.package.entry import Package, pipeline_fields
from hbtvm.runtime.package.facts import anchor_facts, forest_facts
from hbtvm.runtime.package.kernel import KernelEntry, StageEntry
from hbtvm.runtime.package.manifest import MANIFEST, from_manifest, read_manifest, to_manifest
from hbtvm.runtime.package.tables import table_bytes, table_from_bytes
from hbtvm.runtime.package.trust import Trust
from hbtvm.words.names import MODEL_ENDINGS
from hbtvm.words.printable import shown

__all__ = [
    "KernelEntry",
    "Package",
    "StageEntry",
    "Trust",
    "anchor_facts",
    "content",
    "forest_facts",
    "from_bytes",
    "installed_version",
    "pipeline_fields",
    "read",
    "to_bytes",
    "write",
]

_DIGEST, _TRANSFORM, _SCORES, _LEAD = "manifest.sha256", "transform.tar", "scores.tar", "lead.tar"
_VIEWS = "views/"


def write(package: Package, path: str | Path) -> None:
    """Write a package; the file is never half-written.

    Raises `PackageError` if it can't be written.
    """
    replace_file(Path(path), _members(package))


def to_bytes(package: Package) -> bytes:
    """Return the bytes that `write` writes."""
    file = io.BytesIO()
    write_archive(_members(package), file)
    return file.getvalue()


Source = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
"""A package's source: a path, its content, or a file opened with mode ``"rb"``."""


def read(source: Source, trust: Trust | None = None) -> Package:
    """Read a package and check every byte, without loading its code.

    `source`: a path, the package's bytes, or a binary file, which is read from its position to its end and
        not closed.
    `trust`: requirements on its bytes.
    Raises `PackageNotFoundError`, `PackageFileError` if there is no such file, or it can't be read. Raises
    `PackageError` if it is damaged, not a package, of a newer format, or refused by `trust`. Raises
    `InputTypeError` for other sources.
    """
    return from_bytes(*content(source, trust))


def content(source: Source, trust: Trust | None = None) -> tuple[bytes, str]:
    """Return the bytes that `read` reads, and their name in errors; only `trust` is checked."""
    if isinstance(source, str | os.PathLike):
        try:
            data, name = Path(source).read_bytes(), str(source)
        except FileNotFoundError as error:
            raise package_file_error(f"there is no file {source}.", error, source) from None
        except OSError as error:
            raise package_file_error(f"can't read {source}: {error.strerror}.", error, source) from error
    elif isinstance(source, bytes | bytearray | memoryview):
        data, name = bytes(source), "the package"
    else:
        data, name = _from_file(source)
    if trust is not None:
        trust.check(data, name, source if isinstance(source, str | os.PathLike) else None)
    return data, name


def _from_file(source: BinaryIO) -> tuple[bytes, str]:
    if not hasattr(source, "read"):
        raise InputTypeError(
            "expected a package as the path of its file, as its bytes or as a file that was opened with mode "
            f"'rb', got {checks.kind(source)}."
        )
    name = getattr(source, "name", None)
    name = name if isinstance(name, str) else "the package"
    try:
        data = source.read()
    except OSError as error:
        raise package_file_error(f"can't read {name}: {error.strerror or error}.", error, name) from error
    except UnicodeDecodeError:
        data = ""  # type: ignore[assignment]
    if isinstance(data, str):
        raise InputTypeError(f"{name} was opened as text; open it with mode 'rb' to load a package.")
    return bytes(data), name


def from_bytes(data: bytes, name: str = "the package") -> Package:
    """Read a package from a file's content, as `read` does; `name` is its name in errors."""
    if (name.lower().endswith(MODEL_ENDINGS) or data.startswith(b"\x80")) and data[257:262] != b"ustar":
        raise PackageError(
            f"{name}: this seems to be a trained model, expected a package; compile it first: "
            f"hbtvm.compile({name!r}), or hbtvm compile {name} on the command line."
        )
    try:
        members = read_archive(data, MANIFEST)
        data = bytes(members.pop(MANIFEST))
        manifest = read_manifest(data)
        if bytes(members.pop(_DIGEST, b"")) != _digest(data):
            raise PackageError(f"is damaged: the content of {MANIFEST} does not match the hash in {_DIGEST}")
        return _package(manifest, members)
    except PackageError as error:
        # The error may quote the file.
        raise PackageError(f"{name} {shown(error, 600)}.") from None


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution; empty if it is not installed."""
    from importlib import metadata  # only to write packages: importing it takes a fifth of numpy's time

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _members(package: Package) -> dict[str, bytes]:
    package = replace(
        package,
        hbtvm_version=package.hbtvm_version or installed_version("hbtvm"),
        tvm_version=package.tvm_version or installed_version("apache-tvm"),
        python=tuple(step.pickled() for step in package.python),
    )
    suffix = {"cuda": ".fatbin", "opencl": ".cl"}.get(str(package.target.get("kind")), ".so")
    members: dict[str, bytes] = {}

    def store(value: bytes | np.ndarray, folder: str) -> str:
        data = table_bytes(value) if isinstance(value, np.ndarray) else value
        ending = {"tables": ".npy", "objects": ".o", "python": ".pkl"}.get(folder, suffix)
        ending = ".so" if value is package.text_library or value is package.executor else ending
        name = f"{folder}/{hashlib.sha256(data).hexdigest()[:32]}{ending}"
        members[name] = data
        return name

    manifest = to_manifest(package, store)
    if package.transform is not None:
        members[_TRANSFORM] = to_bytes(package.transform)
    if package.scores is not None:
        members[_SCORES] = to_bytes(package.scores)
    for name, view in package.views.items():
        members[f"{_VIEWS}{name}.tar"] = to_bytes(view)
    if package.lead is not None:
        members[_LEAD] = to_bytes(package.lead)
    members = dict(sorted(members.items()))
    manifest["members"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name, data in members.items()
    }
    data = text(manifest)
    return {MANIFEST: data, _DIGEST: _digest(data), **members}


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"


def _package(manifest: dict[str, Any], members: dict[str, memoryview]) -> Package:
    try:
        listed = manifest["members"]
        _check_members({name: (m["sha256"], m["size"]) for name, m in listed.items()}, members)
        parts: dict[str, Any] = {}
        for name, data in members.items():
            if name.startswith("tables/"):
                parts[name] = table_from_bytes(name, data)
            elif name.startswith(("kernels/", "objects/", "python/")):
                parts[name] = bytes(data)
                if not data:  # empty elsewhere means absent
                    raise PackageError(f"is damaged: {name!r} is empty")
        package = from_manifest(manifest, parts)
        transform, scores, lead = (members.get(name) for name in (_TRANSFORM, _SCORES, _LEAD))
        if transform is not None:
            package = replace(package, transform=_within(_TRANSFORM, bytes(transform), True))
        if scores is not None:
            package = replace(package, scores=_within(_SCORES, bytes(scores), False))
        views = {
            name.removeprefix(_VIEWS).removesuffix(".tar"): _view(package, name, bytes(data))
            for name, data in members.items()
            if name.startswith(_VIEWS)
        }
        package = replace(package, views=views) if views else package
        if lead is not None:
            package = replace(package, lead=_within(_LEAD, bytes(lead), True))
            package.validate()
        return package
    except PackageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise PackageError(f"is damaged: {MANIFEST}: {reason}") from None


def _view(package: Package, name: str, data: bytes) -> Package:
    view = _within(name, data, False)
    if view.input.n_features != package.input.n_features or not view.output.shape:
        raise PackageError(f"is damaged: {name}: it is not a view of this model")
    return view


def _within(name: str, data: bytes, transforms: bool) -> Package:
    try:
        inner = read_archive(data, MANIFEST)
        nested = not inner.keys().isdisjoint((_TRANSFORM, _SCORES, _LEAD))
        if name != _LEAD and (nested or any(member.startswith(_VIEWS) for member in inner)):
            raise ValueError("a package within a package within a package")
        package = from_bytes(data, name)
        if package.transforms != transforms:
            raise ValueError("it predicts" if transforms else "it transforms")
        return package
    except (PackageError, ValueError) as error:
        raise PackageError(f"is damaged: {name}: {error}") from None


def _check_members(listed: Mapping[str, tuple[str, int]], members: Mapping[str, memoryview]) -> None:
    for name in sorted(listed.keys() | members.keys()):
        if name not in members:
            raise PackageError(f"is damaged: {name!r} is missing")
        if name not in listed:
            raise PackageError(f"is damaged: {name!r} is not listed in {MANIFEST}")
        digest, size = listed[name]
        if type(size) is not int or len(members[name]) != size:
            raise PackageError(f"is damaged: {name!r} has {len(members[name])} bytes, expected {size!r:.100}")
        if hashlib.sha256(members[name]).hexdigest() != digest:
            raise PackageError(f"is damaged: the content of {name!r} does not match its hash in {MANIFEST}")
