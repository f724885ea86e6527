"""A ``.pt2`` file of torch as a graph: a zip archive of JSON and of weights' bytes.

Nothing in it is executed or unpickled: of what torch writes, the sample inputs are a pickle, and are never
opened. Sizes that the file claims are bounded by the bytes that are there.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.aten.graph import DTYPES, Constant, Graph
from hbtvm.recursive.aten.serialized import graph_from
from hbtvm.words.printable import shown

_MODEL = "models/model.json"
_MOST_JSON, _MOST_MEMBERS = 1 << 26, 100_000
_TIMES, _AT_LEAST = 4, 1 << 26
"""Bytes of all weights for each byte of the file, and for any file: some weights share bytes."""


def graph_of(content: bytes) -> Graph:
    """The graph of a ``.pt2`` file's content.

    Raises `ModelError` if it is cut short, damaged or of another format, or holds weights as pickles.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _members(archive, len(content))
            document = _json(archive, members, _MODEL)
            constants: dict[str, Constant] = {}
            weights = _Weights(archive, members, max(_TIMES * len(content), _AT_LEAST))
            for folder, table in (
                ("weights", "model_weights_config"),
                ("constants", "model_constants_config"),
            ):
                path = f"data/{folder}/{table}.json"
                if path in members:
                    for name, one in _dict(_dict(_json(archive, members, path))["config"]).items():
                        constants[name] = weights.constant(folder, name, _dict(one))
        return graph_from(document, constants)
    except ModelError:
        raise
    except zipfile.BadZipFile as error:
        raise ModelError(
            f"expected a .pt2 file, but it is no zip archive, or damaged ({shown(error)})"
        ) from error
    except (
        AttributeError, EOFError, LookupError, NotImplementedError, OSError, OverflowError, RecursionError,
        RuntimeError, TypeError, ValueError, zlib.error,
    ) as error:  # fmt: skip
        what = f"{type(error).__name__}: {shown(error, most=200)}"
        raise ModelError(f"the .pt2 file is damaged, or of another format ({what})") from error


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The archive's members by name, without the folder that all are in, none larger than the file."""
    found: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > _MOST_MEMBERS:
        raise ModelError(f"the .pt2 file has more than {_MOST_MEMBERS} members")
    names = [one.filename for one in archive.infolist()]
    models = [name for name in names if name == _MODEL or name.endswith(f"/{_MODEL}")]
    if not models:
        old = any(name.endswith("serialized_exported_program.json") for name in names)
        why = (
            "it is of an older torch; save it anew with torch 2.9 or newer" if old else f"it has no {_MODEL}"
        )
        raise ModelError(f"expected a .pt2 file of torch.export.save, but {why}")
    if len(models) > 1 or any("/models/" in f"/{name}" and name not in models for name in names):
        raise ModelError("the .pt2 file holds more than one model; expected one")
    prefix = models[0].removesuffix(_MODEL)
    for one in archive.infolist():
        name = one.filename.removeprefix(prefix)
        if name in found or (name == one.filename and prefix):
            raise ModelError(f"the .pt2 file holds {shown(one.filename)!r} twice, or outside of its folder")
        if one.compress_type != zipfile.ZIP_STORED or one.flag_bits & 1 or one.file_size != one.compress_size:
            raise ModelError(f"in the .pt2 file, {shown(one.filename)!r} is compressed; expected it as it is")
        if not 0 <= one.header_offset + one.file_size <= size:
            raise ModelError(f"in the .pt2 file, the size of {shown(one.filename)!r} is wrong")
        found[name] = one
    if sum(one.file_size for one in found.values()) > size:
        raise ModelError("in the .pt2 file, members are larger than the file")
    if "byteorder" in found and archive.read(found["byteorder"])[:16] != b"little":
        raise ModelError("the .pt2 file is of a big-endian machine; expected little-endian numbers")
    return found


def _json(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str) -> Any:
    if members[name].file_size > _MOST_JSON:
        raise ModelError(f"in the .pt2 file, {name} has more than {_MOST_JSON} bytes")
    return json.loads(archive.read(members[name]), parse_constant=_no_number)


class _Weights:
    """Reads weights; those that share bytes share memory, where these lie in order.

    `most`: bytes that all weights may have, by their shapes.
    """

    def __init__(self, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], most: int) -> None:
        self._archive, self._members = archive, members
        self._most = self._left = most
        self._read: dict[str, bytes] = {}

    def constant(self, folder: str, name: str, given: Mapping[str, Any]) -> Constant:
        """A weight; without numbers, if they are of another type than float32.

        Raises `ModelError` if it is pickled, damaged, or weights have too many bytes.
        """
        what = f"in the .pt2 file, weight {shown(name)!r}"
        if given.get("use_pickle"):
            raise ModelError(f"{what} is pickled, which is never opened")
        meta = _dict(given["tensor_meta"])
        dtype = DTYPES.get(meta["dtype"], "of an unknown type")
        if dtype != "float32":
            return Constant(name, dtype, None)
        shape = [_whole(one["as_int"]) for one in meta["sizes"]]
        strides = [_whole(one["as_int"]) for one in meta["strides"]]
        offset = _whole(meta["storage_offset"]["as_int"])
        path = f"data/{folder}/{given['path_name']}"
        if meta["layout"] != 7 or len(strides) != len(shape) or len(shape) > 8:
            raise ModelError(f"{what} is no dense array")
        if path not in self._members:
            raise ModelError(f"{what} is missing")
        size, count = self._members[path].file_size, math.prod(shape)
        # By the bytes that are there: the last number, and how many there are.
        last = offset + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        if size % 4 or count * 4 > size or (count and last * 4 >= size):
            raise ModelError(f"{what} has shape {tuple(shape)} and {size} bytes")
        self._left -= count * 4
        if self._left < 0:
            raise ModelError(
                f"in the .pt2 file, weights that share bytes have more than {self._most:,} bytes in all; "
                f"expected at most {_TIMES} times the file's size"
            )
        if not count:
            return Constant(name, dtype, np.zeros(shape, np.float32))
        if path not in self._read:
            self._read[path] = self._archive.read(self._members[path])
        flat = np.frombuffer(self._read[path], "<f4")[offset:]
        view = np.lib.stride_tricks.as_strided(flat, shape, [4 * one for one in strides], writeable=False)
        return Constant(name, dtype, np.ascontiguousarray(view, np.float32).reshape(shape))


def _whole(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 40:
        raise ValueError(f"{number!r:.80} is no size")
    return number


def _dict(given: Any) -> dict[str, Any]:
    if type(given) is not dict:
        raise TypeError(f"expected an object, got {given!r:.80}")
    return given


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
