"""The tree of objects in a skops file, as a `Record` for each object; no class of it is imported.

Each node has the name of a class or function, and of the kind of node that skops writes for it
(``__loader__``). `_NODES` has a function for each kind; nodes of other kinds become a `Record` without state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import Global, ObjectArray, Record
from hbtvm.frontends.skops.archive import DAMAGE, Archive
from hbtvm.words.printable import shown

_DEEPEST = 150  # most nodes within nodes

_LATEST = 2
"""The newest protocol of skops files whose nodes are known."""


def load(path: Path, max_bytes: int | None = None) -> Any:
    """Read a file of ``skops.io.dump``, without running any of it.

    `max_bytes`: bound of the expanded bytes; by default a multiple of the file's size, at most 4 GiB.
    Returns what the same object's pickle becomes (`hbtvm.frontends.pickles.load`). Raises `ModelError` if the
    file is damaged, of a newer protocol, or expands too far. Raises `OSError` if it can't be read.
    """
    try:
        archive = Archive(path, max_bytes)
        try:
            return _root(archive)
        finally:
            archive.close()
    except ModelError:  # a ValueError as well
        raise
    except DAMAGE as error:
        reason = f"{type(error).__name__}: {shown(error, most=200)}"
        raise ModelError(f"expected a file of skops, but it is damaged or cut short ({reason}).") from error


def _root(archive: Archive) -> Any:
    schema = json.loads(archive.schema())
    protocol = schema.get("protocol")
    if type(protocol) is int and protocol > _LATEST:
        raise ModelError(
            f"the file is of skops protocol {protocol}, and hbtvm reads protocols up to {_LATEST}; load it "
            "with skops.io.load, and compile the object."
        )
    return _Reader(archive).value(schema)


class _Reader:
    """Reads nodes."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._by_id: dict[int, Any] = {}
        self._depth = 0

    def value(self, node: dict[str, Any]) -> Any:
        """Return a node's value."""
        loader = node["__loader__"]
        if loader == "CachedNode":
            return self._by_id[node["__id__"]]
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(f"objects are nested {_DEEPEST} deep")
        read: Callable[[_Reader, dict[str, Any]], Any] = _NODES.get(loader, _inert)
        result = read(self, node)
        self._depth -= 1
        if type(node.get("__id__")) is int:
            self._by_id[node["__id__"]] = result
        return result

    def values(self, nodes: list[dict[str, Any]]) -> list[Any]:
        """Return the values of nodes."""
        return [self.value(node) for node in nodes]


def _name(node: dict[str, Any]) -> Global:
    module, name = node["__module__"], node["__class__"]
    if not isinstance(module, str) or not isinstance(name, str):
        raise TypeError("a class's name is not a text")
    return Global(module, name)


def _inert(reader: _Reader, node: dict[str, Any]) -> Record:
    return Record(_name(node))


def _object(reader: _Reader, node: dict[str, Any]) -> Record:
    record = Record(_name(node))
    content = node.get("content")
    record.state = None if content is None else reader.value(content)
    return record


def _reduced(reader: _Reader, node: dict[str, Any]) -> Record:
    """Return an object of a class in C: the arguments of its creation, and its state."""
    record = Record(_name(node), _tuple(reader.value(node["__reduce__"]["args"])))
    record.state = reader.value(node["content"])
    return record


def _created(reader: _Reader, node: dict[str, Any]) -> Record:
    return Record(_name(node), _tuple(reader.value(node["content"])))


def _tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise TypeError("arguments are not a tuple")
    return value


def _tuple_of(reader: _Reader, node: dict[str, Any]) -> Any:
    values = tuple(reader.values(node["content"]))
    return values if node["__class__"] == "tuple" else Record(_name(node), values)


_KEYS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "bool": lambda text: text == "true",
    "NoneType": lambda text: None,
    **dict.fromkeys(("int", "int8", "int16", "int32", "int64"), int),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), int),
    **dict.fromkeys(("float", "float16", "float32", "float64"), float),
}
"""From the text of a dictionary's key to the key, by its type."""


def _dict(reader: _Reader, node: dict[str, Any]) -> dict[Any, Any]:
    types = [kind["__class__"] for kind in node["key_types"]["content"]]
    items = zip(types, node["content"].items(), strict=True)
    return {_KEYS[kind](key): reader.value(value) for kind, (key, value) in items}


def _array(reader: _Reader, node: dict[str, Any]) -> Any:
    if node["type"] == "numpy":
        array = reader.archive.array(node["file"])
        return array if node["__class__"] in ("ndarray", "memmap", "matrix") else array[()]
    shape = reader.value(node["shape"])
    items = reader.values(node["content"])
    for _ in shape[1:]:
        items = [item for row in items for item in row]
    if not shape or len(items) != int(np.prod(shape)):
        raise ValueError("an array of objects has another shape")
    return ObjectArray(tuple(int(size) for size in shape), items)


def _sparse(reader: _Reader, node: dict[str, Any]) -> Record:
    parts = reader.archive.arrays(node["file"])
    record = Record(_name(node))
    record.state = {name: part for name, part in parts.items() if name not in ("shape", "format")}
    record.state["_shape"] = tuple(parts["shape"].tolist())
    return record


def _masked(reader: _Reader, node: dict[str, Any]) -> Record:
    return Record(_name(node), tuple(reader.value(node["content"][part]) for part in ("data", "mask")))


def _slice(reader: _Reader, node: dict[str, Any]) -> Record:
    return Record(_name(node), tuple(node["content"][part] for part in ("start", "stop", "step")))


def _partial(reader: _Reader, node: dict[str, Any]) -> Record:
    parts = [reader.value(node["content"][part]) for part in ("func", "args", "kwds", "namespace")]
    record = Record(_name(node), (parts[0],))
    record.state = tuple(parts)
    return record


def _method(reader: _Reader, node: dict[str, Any]) -> Record:
    content = node["content"]
    return Record(Global("builtins", "getattr"), (reader.value(content["obj"]), content["func"]))


_NODES: dict[str, Callable[[_Reader, dict[str, Any]], Any]] = {
    "JsonNode": lambda reader, node: json.loads(node["content"]),
    "DictNode": _dict,
    "DefaultDictNode": lambda reader, node: reader.value(node["content"]["main"]),
    # Sets become lists of their members, as those of pickles.
    "ListNode": lambda reader, node: reader.values(node["content"]),
    "SetNode": lambda reader, node: reader.values(node["content"]),
    "TupleNode": _tuple_of,
    "BytesNode": lambda reader, node: reader.archive.read(node["file"]),
    "BytearrayNode": lambda reader, node: reader.archive.read(node["file"]),
    "NdArrayNode": _array,
    "DTypeNode": lambda reader, node: reader.value(node["content"]).dtype,
    "MaskedArrayNode": _masked,
    "SparseMatrixNode": _sparse,
    "ObjectNode": _object,
    "TreeNode": _reduced,
    "LossNode": _reduced,
    "QuantileForestNode": _reduced,
    "ConstructorFromReduceNode": _created,
    "FunctionNode": lambda reader, node: _name(node),
    "TypeNode": lambda reader, node: _name(node),
    "PartialNode": _partial,
    "MethodNode": _method,
    "SliceNode": _slice,
}
"""Readers by kind of node. Generators of random numbers, for instance, need no state."""
