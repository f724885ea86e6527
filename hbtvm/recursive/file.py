"""The ``.rec`` file of a recursive model: a zip archive of JSON and arrays in numpy's format.

Nothing in it is executed or unpickled, and the file's bytes bound all claimed sizes. The same model gives the
same bytes.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm import codec
from hbtvm.atomic import replacing
from hbtvm.errors import ModelError, model_file_error
from hbtvm.recursive.cell import RecursiveModel
from hbtvm.recursive.validate import check_model
from hbtvm.runtime.package.tables import array_header
from hbtvm.words.printable import shown

FORMAT = 1  # the version of the format

_MEMBER = re.compile(r"model\.json|tables/[0-9]{1,9}\.npy")
_JSON, _MOST_JSON, _MOST_MEMBERS = "model.json", 1 << 26, 10_000
_STAMP = (1980, 1, 1, 0, 0, 0)


def save(model: RecursiveModel, path: str | os.PathLike[str]) -> None:
    """Write a model atomically.

    Raises `ModelError` if the model is invalid. Raises `ModelFileError` if the file can't be written.
    """
    content = to_bytes(model)
    path = Path(path)
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise model_file_error(f"can't write {path}: {error.strerror}.", error.errno or 0, path) from error


def load(path: str | os.PathLike[str]) -> RecursiveModel:
    """Read a model.

    Raises `ModelError` if the file is missing, or holds no valid model.
    """
    path = Path(path)
    try:
        return from_bytes(path.read_bytes())
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    except OSError as error:
        raise model_file_error(
            f"{path}: the file can't be read ({error.strerror}).", error.errno or 0, path
        ) from error


def to_bytes(model: RecursiveModel) -> bytes:
    """Return a ``.rec`` file's content; raises `ModelError` if the model is invalid."""
    check_model(model)
    arrays: dict[str, np.ndarray] = {}

    def store(array: Any, folder: str) -> str:
        name = f"{folder}/{len(arrays)}.npy"
        arrays[name] = array
        return name

    document = {"format": FORMAT, **codec.write(model, store)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        # Unsorted: the order of a cell's inputs matters.
        _put(archive, _JSON, json.dumps(document, allow_nan=False, indent=1).encode())
        for name, array in arrays.items():
            stream = io.BytesIO()
            little = np.ascontiguousarray(array, np.dtype("<f4"))
            np.lib.format.write_array(stream, little, version=(1, 0), allow_pickle=False)
            _put(archive, name, stream.getvalue())
    return file.getvalue()


def from_bytes(content: bytes) -> RecursiveModel:
    """Return the model of a ``.rec`` file's content.

    Raises `ModelError` if it is cut short, damaged, of a newer format, or holds no valid model.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _members(archive, len(content))
            document = codec.parse(archive.read(members.pop(_JSON)))
            _check_format(document)
            arrays = {name: _array(archive.read(member), name) for name, member in members.items()}
        model = codec.read(RecursiveModel, document, arrays)
    except codec.CodecError as error:
        raise ModelError(f"the .rec file is damaged ({shown(error, most=200)}).") from error
    except ModelError:
        raise
    except zipfile.BadZipFile as error:
        raise ModelError(
            f"expected a .rec file, but it is not a zip archive, or damaged ({shown(error)})."
        ) from error
    except (
        AttributeError, EOFError, IndexError, KeyError, NotImplementedError, OSError, OverflowError,
        RecursionError, RuntimeError, TypeError, ValueError, zlib.error,
    ) as error:  # fmt: skip
        reason = f"{type(error).__name__}: {shown(error, most=200)}"
        raise ModelError(f"the .rec file is damaged ({reason}).") from error
    check_model(model)
    return model


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the archive's members by name; checks their sizes."""
    members: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > _MOST_MEMBERS:
        raise ModelError(f"the .rec file has more than {_MOST_MEMBERS} members.")
    for member in archive.infolist():
        if not _MEMBER.fullmatch(member.filename) or member.filename in members:
            raise ModelError(f"the .rec file holds {shown(member.filename)!r}, or holds it twice.")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise ModelError(
                f"in the .rec file, {member.filename!r} is compressed; expected it stored as it is."
            )
        if (
            member.file_size != member.compress_size
            or not 0 <= member.header_offset + member.file_size <= size
        ):
            raise ModelError(f"in the .rec file, the size of {member.filename!r} is wrong.")
        members[member.filename] = member
    if _JSON not in members:
        raise ModelError(f"expected a .rec file, but this zip archive has no {_JSON}.")
    if members[_JSON].file_size > _MOST_JSON or sum(member.file_size for member in members.values()) > size:
        raise ModelError("in the .rec file, members are larger than the file.")
    return members


def _array(content: bytes, name: str) -> np.ndarray:
    """Read a float32 array; checks its size against the bytes before allocating it."""
    try:
        shape, columns_first, dtype, start = array_header(content)
    except ValueError as error:
        raise ModelError(f"in the .rec file, {name} is not an array: {shown(error, most=200)}.") from error
    if dtype != np.dtype("<f4") or columns_first or not 1 <= len(shape) <= 2:
        raise ModelError(
            f"in the .rec file, {name} is {dtype} of shape {shape}; expected float32, rows first."
        )
    data = content[start:]
    if min(shape) < 1 or 4 * math.prod(shape) != len(data):
        raise ModelError(f"in the .rec file, {name} has shape {shape} and {len(data)} bytes.")
    return np.frombuffer(data, "<f4").astype(np.float32).reshape(shape)


def _check_format(document: Any) -> None:
    version = document.pop("format")
    if type(version) is not int or version < 1:
        raise ModelError(f"the .rec file's format is {shown(version)!r}; expected {FORMAT}.")
    if version > FORMAT:
        raise ModelError(f"the .rec file is of format {version}; this version of hbtvm reads up to {FORMAT}.")


def _put(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _STAMP)
    info.create_system, info.external_attr = 3, 0o644 << 16
    archive.writestr(info, content, zipfile.ZIP_STORED)
