"""Requests and responses of the Open Inference Protocol: conversion between bytes and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from hbtvm.errors import InputError
from hbtvm.serving.datatypes import from_bytes, from_json, name_of, to_bytes, to_json

BINARY_HEADER = b"inference-header-content-length"
"""Header with the length of the JSON if binary tensors follow it."""

_MOST = (1 << 31) - 1
"""Maximal number of rows or columns; numpy refuses shapes whose product, zeros aside, exceeds 63 bits."""


_SLICE = 4096  # values written as JSON at a time
_SCANNED = 1 << 20  # bytes of JSON scanned at a time
_LITTLE = 64 << 10  # bytes of JSON too few to scan
_WORST = 48  # maximal bytes of memory per byte of JSON: for empty objects in a list, three bytes each

_PARSED = {ord(","): 57, ord('"'): 16, ord("["): 90, ord("{"): 260}
"""Bytes of memory by JSON character; see `parsed_size`."""


class Wanted(NamedTuple):
    """A requested output."""

    name: str  # its name in the model's metadata
    binary: bool  # whether its values follow the response's JSON


class Request(NamedTuple):
    """A parsed request."""

    identity: str | None  # the request's id, which the response repeats; None if it has none
    tensors: Mapping[str, np.ndarray]  # inputs by name
    wanted: tuple[Wanted, ...]  # requested outputs; if empty, the model's prediction
    binary: bool  # whether outputs follow the response's JSON by default


def read_request(body: bytes | bytearray, header_length: int | None) -> Request:
    """Read the body of a request.

    `body`: JSON, followed by the bytes of binary tensors, if any.
    `header_length`: bytes of the JSON; None if nothing follows it.
    Raises `InputError` if it is not a valid request of the protocol.
    """
    rest: memoryview | None = None
    if header_length is not None:
        if header_length > len(body):
            raise InputError(
                f"the header promises {header_length:,} bytes of JSON, the body has {len(body):,}."
            )
        rest = memoryview(body)[header_length:]
    try:
        content = orjson.loads(body if rest is None else memoryview(body)[:header_length])
    except orjson.JSONDecodeError as error:
        raise InputError(f"the request is not JSON ({error}).") from error
    if type(content) is not dict:
        raise InputError("the request is not a JSON object.")
    inputs = content.get("inputs")
    if type(inputs) is not list or not inputs:
        raise InputError('the request has no list of "inputs".')
    tensors: dict[str, np.ndarray] = {}
    at = 0
    for tensor in inputs:
        name, values, taken = _tensor(tensor, rest, at)
        if name in tensors:
            raise InputError(f"input {name!r} occurs twice.")
        tensors[name], at = values, at + taken
    if rest is not None and at != len(rest):
        raise InputError(f"{len(rest):,} bytes follow the JSON, but the inputs take {at:,}.")
    identity = content.get("id")
    if identity is not None and type(identity) is not str:
        raise InputError('the request\'s "id" is not a string.')
    if "outputs" not in content and "parameters" not in content:
        return Request(identity, tensors, (), False)
    binary = _parameters(content).get("binary_data_output", False) is True
    return Request(identity, tensors, _wanted(content.get("outputs", []), binary), binary)


def _tensor(tensor: Any, rest: memoryview | None, at: int) -> tuple[str, np.ndarray, int]:
    """Return a tensor's name, its values, and the number of binary bytes that it takes."""
    name = tensor.get("name") if type(tensor) is dict else None
    if type(name) is not str:
        raise InputError('each of "inputs" is an object with a "name", a "shape", a "datatype" and "data".')
    shape = tensor.get("shape")
    if type(shape) is not list or not 0 < len(shape) < 3:
        raise InputError(f"input {name!r}: its shape is {shape!r:.40}, expected [rows] or [rows, columns].")
    for extent in shape:
        if type(extent) is not int or not 0 <= extent <= _MOST:
            raise InputError(f"input {name!r}: its shape has {extent!r:.40}, expected 0 to {_MOST:,}.")
    datatype = tensor.get("datatype")
    if type(datatype) is not str:
        raise InputError(f'input {name!r}: its "datatype" is not a string.')
    size = _parameters(tensor).get("binary_data_size") if "parameters" in tensor else None
    if size is None:
        if "data" not in tensor:
            raise InputError(f'input {name!r}: it has no "data".')
        return name, from_json(tensor["data"], datatype, shape, name), 0
    if type(size) is not int or size < 0 or rest is None or at + size > len(rest):
        raise InputError(
            f"input {name!r}: its binary_data_size {size!r:.40} does not fit the bytes after the JSON."
        )
    return name, from_bytes(rest[at : at + size], datatype, shape, name), size


def _parameters(content: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = content.get("parameters")
    if parameters is None:
        return {}
    if type(parameters) is not dict:
        raise InputError('"parameters" is not an object.')
    return parameters


def _wanted(outputs: Any, binary: bool) -> tuple[Wanted, ...]:
    if type(outputs) is not list:
        raise InputError('"outputs" is not a list.')
    wanted = []
    for output in outputs:
        if type(output) is not dict or type(output.get("name")) is not str:
            raise InputError('each of "outputs" is an object with a "name".')
        parameters = _parameters(output)
        if "classification" in parameters:
            raise InputError("the classification extension is not supported; request predict_proba.")
        wanted.append(Wanted(output["name"], parameters.get("binary_data", binary) is True))
    names = [output.name for output in wanted]
    if len(set(names)) < len(names):
        raise InputError('an output occurs twice in "outputs".')
    return tuple(wanted)


def write_response(
    head: Mapping[str, Any], identity: str | None, outputs: Sequence[tuple[str, np.ndarray, bool]]
) -> tuple[bytes, int | None]:
    """Return the body of a response of few rows; parameters and results as for `Response`."""
    described, tail = [], []
    for name, array, binary in outputs:
        output: dict[str, Any] = {"name": name, "datatype": name_of(array.dtype), "shape": array.shape}
        if binary:
            tail.append(to_bytes(array))
            output["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            output["data"] = to_json(array)
        described.append(output)
    names = head if identity is None else {**head, "id": identity}
    body = orjson.dumps({**names, "outputs": described})
    return (b"".join((body, *tail)), len(body)) if tail else (body, None)


class Response:
    """Writes the body of a response from blocks of output rows.

    `head`: the start of the JSON: names of the model and its version.
    `identity`: the request's id.
    """

    def __init__(self, head: Mapping[str, Any], identity: str | None) -> None:
        self._head = head if identity is None else {**head, "id": identity}
        self._columns: list[_Column] = []

    def add(self, outputs: Sequence[tuple[str, np.ndarray, bool]]) -> int:
        """Add rows to all outputs; return the bytes of their values.

        `outputs`: names, values, and whether they follow the JSON; the same outputs in each call.
        """
        if not self._columns:
            self._columns = [_Column(name, array, binary) for name, array, binary in outputs]
        pairs = zip(self._columns, outputs, strict=True)
        return sum(column.add(array) for column, (_, array, _) in pairs)

    def finish(self) -> tuple[list[bytes], int | None]:
        """Return the body's parts, and the bytes of its JSON if binary tensors follow, else None."""
        parts = [orjson.dumps(self._head)[:-1] + b',"outputs":[']
        for column in self._columns:
            parts[-1] += column.described()
            if not column.binary:
                parts += column.parts
                parts.append(b"]")
            parts[-1] += b"},"
        parts[-1] = parts[-1][:-1] + b"]}"
        binary = [column for column in self._columns if column.binary]
        if not binary:
            return parts, None
        length = sum(map(len, parts))
        return parts + [part for column in binary for part in column.parts], length


class _Column:
    """An output under construction."""

    def __init__(self, name: str, first: np.ndarray, binary: bool) -> None:
        self.binary = binary
        self.parts: list[bytes] = []
        self._name, self._type, self._inner = name, name_of(first.dtype), first.shape[1:]
        self._rows = 0

    def add(self, array: np.ndarray) -> int:
        """Write rows, a slice of values at a time, since a call that writes JSON holds Python's lock
        throughout.
        """
        self._rows += len(array)
        at = len(self.parts)
        if self.binary:
            self.parts.append(to_bytes(array))
        else:
            values = array.reshape(-1)
            for start in range(0, len(values), _SLICE):
                text = orjson.dumps(to_json(values[start : start + _SLICE]))
                self.parts.append((b"," if self.parts else b"") + text[1:-1])
        return sum(map(len, self.parts[at:]))

    def described(self) -> bytes:
        """Return the JSON before the values, or without them."""
        content: dict[str, Any] = {
            "name": self._name,
            "datatype": self._type,
            "shape": (self._rows, *self._inner),
        }
        if self.binary:
            content["parameters"] = {"binary_data_size": sum(map(len, self.parts))}
            return orjson.dumps(content)[:-1]
        return orjson.dumps(content)[:-1] + b',"data":['


def parsed_size(body: bytes | bytearray, header_length: int | None) -> int:
    """Return an upper bound on the memory for parsing a request's JSON, besides the body.

    For long JSON, the bound counts punctuation: a number between commas takes 16 bytes in the parser's tree,
    9 in a list and 32 as a float. Texts, lists and objects take more, up to `_WORST` bytes per byte.
    """
    text = np.frombuffer(body, np.uint8)[:header_length]
    if len(text) <= _LITTLE:
        return len(text) * _WORST
    size = wide = 0
    for start in range(0, len(text), _SCANNED):
        part = text[start : start + _SCANNED]
        size += sum(cost * int(np.count_nonzero(part == code)) for code, cost in _PARSED.items())
        wide = wide or int(part.max()) > 127
    return size + _PARSED[ord(",")] + len(text) * (4 if wide else 1)
