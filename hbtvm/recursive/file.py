"""The ``.rec`` file of a recursive model: a zip archive of JSON and arrays in numpy's format.

Nothing in it is executed or unpickled, and what it claims is bounded by what is there. The same model gives
the same bytes.
"""

from __future__ import annotations

import io
import json
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
    """Write a model, so that the file holds either all of it or what it held before.

    Raises `ModelError` if the model is not right. Raises `ModelFileError` if the file can't be written.
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

    Raises `ModelError` if the file is missing, or holds no right model.
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
    """A ``.rec`` file's content.

    Raises `ModelError` if the model is not right.
    """
    check_model(model)
    arrays: dict[str, np.ndarray] = {}

    def store(array: Any, folder: str) -> str:
        name = f"{folder}/{len(arrays)}.npy"
        arrays[name] = array
        return name

    document = {"format": FORMAT, **codec.write(model, store)}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        # Unsorted: the order of a cell's inputs counts.
        _put(archive, _JSON, json.dumps(document, allow_nan=False, indent=1).encode())
        for name, array in arrays.items():
            one = io.BytesIO()
            little = np.ascontiguousarray(array, np.dtype("<f4"))
            np.lib.format.write_array(one, little, version=(1, 0), allow_pickle=False)
            _put(archive, name, one.getvalue())
    return file.getvalue()


def from_bytes(content: bytes) -> RecursiveModel:
    """The model of a ``.rec`` file's content.

    Raises `ModelError` if it is cut short, damaged, of a newer format, or holds no right model.
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
            f"expected a .rec file, but it is no zip archive, or damaged ({shown(error)})."
        ) from error
    except (
        AttributeError, EOFError, IndexError, KeyError, NotImplementedError, OSError, OverflowError,
        RecursionError, RuntimeError, TypeError, ValueError, zlib.error,
    ) as error:  # fmt: skip
        what = f"{type(error).__name__}: {shown(error, most=200)}"
        raise ModelError(f"the .rec file is damaged ({what}).") from error
    check_model(model)
    return model


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The archive's members by name, none larger than the file warrants."""
    found: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > _MOST_MEMBERS:
        raise ModelError(f"the .rec file has more than {_MOST_MEMBERS} members.")
    for one in archive.infolist():
        if not _MEMBER.fullmatch(one.filename) or one.filename in found:
            raise ModelError(f"the .rec file holds {shown(one.filename)!r}, or holds it twice.")
        if one.compress_type != zipfile.ZIP_STORED or one.flag_bits & 1:
            raise ModelError(
                f"in the .rec file, {one.filename!r} is compressed; expected it stored as it is."
            )
        if one.file_size != one.compress_size or not 0 <= one.header_offset + one.file_size <= size:
            raise ModelError(f"in the .rec file, the size of {one.filename!r} is wrong.")
        found[one.filename] = one
    if _JSON not in found:
        raise ModelError(f"expected a .rec file, but this zip archive has no {_JSON}.")
    if found[_JSON].file_size > _MOST_JSON or sum(one.file_size for one in found.values()) > size:
        raise ModelError("in the .rec file, members are larger than the file.")
    return found


def _array(content: bytes, name: str) -> np.ndarray:
    """A float32 array, whose size is compared with the bytes that are there before it is made."""
    try:
        shape, columns_first, dtype, start = array_header(content)
    except ValueError as error:
        raise ModelError(f"in the .rec file, {name} is no array: {shown(error, most=200)}.") from error
    if dtype != np.dtype("<f4") or columns_first or not 1 <= len(shape) <= 2:
        raise ModelError(
            f"in the .rec file, {name} is {dtype} of shape {shape}; expected float32, rows first."
        )
    count = 1
    for one in shape:
        count *= one
    data = content[start:]
    if min(shape) < 1 or 4 * count != len(data):
        raise ModelError(f"in the .rec file, {name} has shape {shape} and {len(data)} bytes.")
    return np.frombuffer(data, "<f4").astype(np.float32).reshape(shape)


def _check_format(document: Any) -> None:
    found = document.pop("format")
    if type(found) is not int or found < 1:
        raise ModelError(f"the .rec file's format is {shown(found)!r}; expected {FORMAT}.")
    if found > FORMAT:
        raise ModelError(f"the .rec file is of format {found}; this version of hbtvm reads up to {FORMAT}.")


def _put(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, _STAMP)
    info.create_system, info.external_attr = 3, 0o644 << 16
    archive.writestr(info, content, zipfile.ZIP_STORED)
