"""The parts of a YDF model: of a folder that ``model.save`` writes, or of ``model.serialize``'s bytes."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends.ydf.wire import Message
from hbtvm.words.printable import shown

_SPEC = "data_spec.pb"
_HEADERS = {
    "GRADIENT_BOOSTED_TREES": "gradient_boosted_trees_header.pb",
    "RANDOM_FOREST": "random_forest_header.pb",
}
"""By kind of model, the file of its header. A CART model is a random forest of a tree."""

_MAGIC, _HEAD, _VERSION = b"BS", 8, 1
_EXPANDED, _ANY_SIZE = 200, 1 << 20
"""Bounds of expanded bytes: by compressed byte, and of any file."""

_FIRST_EXTENSION = 1000  # a serialized model has the header of its kind in a field from here on


@dataclass(frozen=True)
class Parts:
    """The messages of a model."""

    kind: str  # the model's kind, as YDF names it
    model: Message  # ``AbstractModel``
    header: Message  # of the kind
    data_spec: Message  # ``DataSpecification``
    nodes: list[bytes]  # each a ``Node``, in depth-first order


def is_folder(path: Path) -> bool:
    """Return whether a folder holds a YDF model."""
    return path.is_dir() and any(path.glob(f"*{_SPEC}"))


def from_folder(path: Path) -> Parts:
    """Read a folder.

    Raises `ModelError` if files are missing or damaged. Raises `UnsupportedModel` for other kinds of models.
    """
    specs = sorted(path.glob(f"*{_SPEC}"))
    if len(specs) != 1:
        raise ModelError(f"the folder has {len(specs)} files {_SPEC}; pass a folder of a single YDF model.")
    prefix = specs[0].name.removesuffix(_SPEC)

    def content(name: str) -> bytes:
        try:
            return (path / f"{prefix}{name}").read_bytes()
        except FileNotFoundError:
            raise ModelError(
                f"the YDF model is incomplete: its folder lacks {shown(prefix + name)}."
            ) from None

    model = Message(content("header.pb"))
    kind = _kind(model)
    header = Message(content(_HEADERS[kind]))
    written = header.text(7, "TFE_RECORDIO")
    if written not in ("BLOB_SEQUENCE", "BLOB_SEQUENCE_GZIP"):
        raise UnsupportedModel(
            f"the YDF model keeps its nodes in the format {shown(written, 40)} of TensorFlow Decision "
            "Forests; load it with ydf.load_model, and save it again with model.save."
        )
    shards = header.whole(1)
    if not 0 <= shards <= sum(1 for _ in path.iterdir()):
        raise ModelError(f"the YDF model is incomplete: its folder lacks some of {shards} files of nodes.")
    nodes = []
    for shard in range(shards):
        nodes += _blobs(content(f"nodes-{shard:05d}-of-{shards:05d}"))
    return Parts(kind, model, header, Message(specs[0].read_bytes()), nodes)


def from_bytes(content: bytes) -> Parts:
    """Read ``model.serialize()``, or the state of a pickled model. Raises errors as `from_folder`."""
    blobs = _blobs(content)
    if len(blobs) != 4 or blobs[0] != b"YDF":
        raise ModelError("the YDF model is damaged: its bytes are not those of model.serialize().")
    both = Message(blobs[1])
    model = both.message(1)
    kind = _kind(model)
    headers = [both.message(number) for number in both.numbered(_FIRST_EXTENSION)]
    if len(headers) != 1:
        raise ModelError("the YDF model is damaged: it has no header of its kind.")
    return Parts(kind, model, headers[0].message(1), Message(blobs[2]), _blobs(blobs[3]))


def _kind(model: Message) -> str:
    kind = model.text(1)
    if kind not in _HEADERS:
        raise UnsupportedModel(
            f"the YDF model is of the kind '{shown(kind, 40)}', which is not supported; supported are "
            "GRADIENT_BOOSTED_TREES and RANDOM_FOREST (also of CART)."
        )
    return kind


def _blobs(content: bytes) -> list[bytes]:
    """Return the records of a blob sequence: a head, then the length and the bytes of each."""
    if content[:2] != _MAGIC or len(content) < _HEAD:
        raise ModelError("the YDF model is damaged: its nodes are not a blob sequence.")
    version, compression = struct.unpack("<HB", content[2:5])
    if version > _VERSION or compression > 1:
        raise UnsupportedModel(
            f"the YDF model has a blob sequence of version {version}, compressed by {compression}, which is "
            "newer than hbtvm reads; please report it."
        )
    body = content[_HEAD:]
    if compression:
        expand = zlib.decompressobj(31)
        try:
            body = expand.decompress(body, _EXPANDED * len(content) + _ANY_SIZE)
        except zlib.error as error:
            raise ModelError(f"the YDF model is damaged: its nodes don't expand ({error}).") from error
        if not expand.eof:
            raise ModelError("the YDF model is damaged: its compressed nodes don't end.")
    blobs, at = [], 0
    while at < len(body):
        if at + 4 > len(body):
            raise ModelError("the YDF model is damaged: a record is cut off.")
        (size,) = struct.unpack_from("<I", body, at)
        at += 4 + size
        if at > len(body):
            raise ModelError("the YDF model is damaged: a record is cut off.")
        blobs.append(body[at - size : at])
    return blobs
