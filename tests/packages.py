"""Damaged package files, for tests of their readers."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hbtvm import codec
from hbtvm.errors import PackageError
from hbtvm.runtime.package.file import Package, from_bytes


def refused(content: bytes) -> str:
    with pytest.raises(PackageError) as caught:
        from_bytes(content, "model.tar")
    text = str(caught.value)
    assert text.startswith("model.tar ") and text.endswith(".") and "\n" not in text
    return text


def files(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]


def tar_of(members: dict[str, bytes], *extra: tarfile.TarInfo, form: int = tarfile.USTAR_FORMAT) -> bytes:
    """A tar archive made by Python's own writer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in extra:
            tar.addfile(info)
    return out.getvalue()


def with_manifest(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    members = files(data)
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    return tar_of({**members, **manifest_of(manifest)})


def manifest_of(manifest: Any) -> dict[str, bytes]:
    content = json.dumps(manifest).encode()
    return {"manifest.json": content, "manifest.sha256": hashlib.sha256(content).hexdigest().encode() + b"\n"}


def with_member(data: bytes, name: str, content: bytes) -> bytes:
    """Replace a member, and list it as it is now."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["members"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}

    members = files(with_manifest(data, change))
    return tar_of({**members, name: content})


def first(data: bytes, suffix: str) -> str:
    return next(name for name in files(data) if name.endswith(suffix))


def assert_equal(a: Package, b: Package) -> None:
    for one, other in zip(a.kernels, b.kernels, strict=True):
        for x, y in zip(one.tables, other.tables, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)
        assert replace(one, tables=()) == replace(other, tables=())
    assert a.input == b.input
    assert codec.write(a.output) == codec.write(b.output)
    for name in ("library", "model", "forest", "target", "tuning"):
        assert getattr(a, name) == getattr(b, name), name
