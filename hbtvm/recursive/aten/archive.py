"""Read a ``.pt2`` file of torch as a graph: a zip archive of JSON and of weights' bytes.

Nothing in it is executed or unpickled; the sample inputs are a pickle, which is never opened. The file's
bytes bound all claimed sizes.
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
"""Most bytes of all weights per byte of the file, and least limit of any file: weights may share bytes."""


def graph_of(content: bytes) -> Graph:
    """Return the graph of a ``.pt2`` file's content.

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
                    for name, entry in _dict(_dict(_json(archive, members, path))["config"]).items():
                        constants[name] = weights.constant(folder, name, _dict(entry))
        return graph_from(document, constants)
    except ModelError:
        raise
    except zipfile.BadZipFile as error:
        raise ModelError(
            f"expected a .pt2 file, but it is not a zip archive, or damaged ({shown(error)})"
        ) from error
    except (
        AttributeError, EOFError, LookupError, NotImplementedError, OSError, OverflowError, RecursionError,
        RuntimeError, TypeError, ValueError, zlib.error,
    ) as error:  # fmt: skip
        reason = f"{type(error).__name__}: {shown(error, most=200)}"
        raise ModelError(f"the .pt2 file is damaged, or of another format ({reason})") from error


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the archive's members by name, without their common folder; checks their sizes."""
    members: dict[str, zipfile.ZipInfo] = {}
    if len(archive.infolist()) > _MOST_MEMBERS:
        raise ModelError(f"the .pt2 file has more than {_MOST_MEMBERS} members")
    names = [member.filename for member in archive.infolist()]
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
    for member in archive.infolist():
        name = member.filename.removeprefix(prefix)
        if name in members or (name == member.filename and prefix):
            raise ModelError(
                f"the .pt2 file holds {shown(member.filename)!r} twice, or outside of its folder"
            )
        if (
            member.compress_type != zipfile.ZIP_STORED
            or member.flag_bits & 1
            or member.file_size != member.compress_size
        ):
            raise ModelError(
                f"in the .pt2 file, {shown(member.filename)!r} is compressed; expected it as it is"
            )
        if not 0 <= member.header_offset + member.file_size <= size:
            raise ModelError(f"in the .pt2 file, the size of {shown(member.filename)!r} is wrong")
        members[name] = member
    if sum(member.file_size for member in members.values()) > size:
        raise ModelError("in the .pt2 file, members are larger than the file")
    if "byteorder" in members and archive.read(members["byteorder"])[:16] != b"little":
        raise ModelError("the .pt2 file is of a big-endian machine; expected little-endian numbers")
    return members


def _json(archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str) -> Any:
    if members[name].file_size > _MOST_JSON:
        raise ModelError(f"in the .pt2 file, {name} has more than {_MOST_JSON} bytes")
    return json.loads(archive.read(members[name]), parse_constant=_no_number)


class _Weights:
    """Reads weights; weights that share bytes share memory if they are contiguous.

    `most`: most bytes of all weights, by their shapes.
    """

    def __init__(self, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], most: int) -> None:
        self._archive, self._members = archive, members
        self._most = self._left = most
        self._read: dict[str, bytes] = {}

    def constant(self, folder: str, name: str, entry: Mapping[str, Any]) -> Constant:
        """Return a weight; without numbers unless they are float32.

        Raises `ModelError` if it is pickled, damaged, or weights have too many bytes.
        """
        place = f"in the .pt2 file, weight {shown(name)!r}"
        if entry.get("use_pickle"):
            raise ModelError(f"{place} is pickled, which is never opened")
        meta = _dict(entry["tensor_meta"])
        dtype = DTYPES.get(meta["dtype"], "of an unknown type")
        if dtype != "float32":
            return Constant(name, dtype, None)
        shape = [_whole(size_entry["as_int"]) for size_entry in meta["sizes"]]
        strides = [_whole(size_entry["as_int"]) for size_entry in meta["strides"]]
        offset = _whole(meta["storage_offset"]["as_int"])
        path = f"data/{folder}/{entry['path_name']}"
        if meta["layout"] != 7 or len(strides) != len(shape) or len(shape) > 8:
            raise ModelError(f"{place} is not a dense array")
        if path not in self._members:
            raise ModelError(f"{place} is missing")
        size, count = self._members[path].file_size, math.prod(shape)
        # Check the last number and the count against the file's bytes.
        last = offset + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        if size % 4 or count * 4 > size or (count and last * 4 >= size):
            raise ModelError(f"{place} has shape {tuple(shape)} and {size} bytes")
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
        view = np.lib.stride_tricks.as_strided(
            flat, shape, [4 * size_entry for size_entry in strides], writeable=False
        )
        return Constant(name, dtype, np.ascontiguousarray(view, np.float32).reshape(shape))


def _whole(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 40:
        raise ValueError(f"{number!r:.80} is not a size")
    return number


def _dict(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeError(f"expected an object, got {value!r:.80}")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
