"""ONNX files as plain values: nodes, constants, inputs and outputs; nothing is executed, sizes are checked.

Source: ``onnx.proto3`` of ONNX 1.23 (versions of the format from 3 on).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hbtvm.errors import ModelError, UnsupportedModel, missing_package
from hbtvm.words.printable import shown

_MOST_NODES = 100_000  # bound of a graph's nodes, which are objects

_MOST_RANK = 16

DTYPES: Mapping[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "str", 9: "bool",
    11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip
"""By ``TensorProto.DataType``; other types are not supported."""

_STORED = {
    1: "float_data", 2: "int32_data", 3: "int32_data", 4: "int32_data", 5: "int32_data", 6: "int32_data",
    7: "int64_data", 8: "string_data", 9: "int32_data", 11: "double_data", 12: "uint64_data",
    13: "uint64_data",
}  # fmt: skip
"""The fields of the numbers of a tensor without ``raw_data``."""

_EXTERNAL = 1


@dataclass(frozen=True, eq=False)
class Operation:
    """A node of the graph."""

    # `kind`, `domain`: the operator; the domain of ONNX's operators is ``""``
    kind: str
    domain: str
    name: str  # the node's name, maybe empty
    # `inputs`, `outputs`: names of values; empty for an omitted input
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    # Numbers, texts, arrays (``floats``: float32; ``ints``: int64; tensors), lists of texts, and graphs
    attributes: Mapping[str, Any]

    @property
    def where(self) -> str:
        """The node's name in errors."""
        domain = f"{shown(self.domain, 40)}." if self.domain else ""
        named = f" (node '{shown(self.name, 60)}')" if self.name else ""
        return f"the ONNX operator {domain}{shown(self.kind, 60)}{named}"


@dataclass(frozen=True)
class Port:
    """An input or output: its type (see `DTYPES`), and its shape, None if unknown."""

    name: str
    dtype: str | None  # None if it is not a tensor
    shape: tuple[int | None, ...] | None


@dataclass(frozen=True, eq=False)
class Body:
    """A graph: the model's, or a node's."""

    operations: tuple[Operation, ...]
    constants: Mapping[str, np.ndarray]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, eq=False)
class Document:
    """A model."""

    body: Body
    versions: Mapping[str, int]  # versions of operators, by domain
    # The model's functions, by domain and name: names of inputs and outputs, and nodes
    functions: Mapping[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...], tuple[Operation, ...]]] = (
        field(default_factory=dict)
    )


def parse(content: bytes) -> Document:
    """Read the bytes of a ``.onnx`` file.

    Raises `MissingPackageError` if onnx is not installed. Raises `ModelError` if they are damaged. Raises
    `UnsupportedModel` for external data, sparse tensors, and numbers of other types.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ModuleNotFoundError as error:
        raise missing_package("reading ONNX models needs", error.name, "hbtvm[onnx]") from error
    try:
        proto = onnx.ModelProto.FromString(content)
    except (DecodeError, ValueError, RecursionError) as error:
        raise ModelError(
            "expected an ONNX model, but it is damaged, cut short or of another format."
        ) from error
    return of_proto(proto)


def of_proto(proto: Any) -> Document:
    """Read an ``onnx.ModelProto``; errors as in `parse`."""
    if not proto.HasField("graph"):
        raise ModelError("expected an ONNX model, but it has no graph.")
    versions = {_domain(opset.domain): int(opset.version) for opset in proto.opset_import}
    functions = {
        (_domain(function.domain), function.name): (
            tuple(function.input),
            tuple(function.output),
            tuple(_operation(node) for node in function.node),
        )
        for function in proto.functions
    }
    return Document(body_of(proto.graph), versions, functions)


def body_of(graph: Any) -> Body:
    """Read a ``GraphProto``."""
    if len(graph.node) > _MOST_NODES:
        raise UnsupportedModel(
            f"the ONNX graph has {len(graph.node):,} nodes; at most {_MOST_NODES:,} are supported."
        )
    if graph.sparse_initializer:
        raise UnsupportedModel("the ONNX graph has sparse initializers, which are not supported.")
    constants = {initializer.name: tensor(initializer) for initializer in graph.initializer}
    return Body(
        tuple(_operation(node) for node in graph.node),
        constants,
        # Older files list constants among the inputs.
        tuple(_port(value) for value in graph.input if value.name not in constants),
        tuple(_port(value) for value in graph.output),
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _port(info: Any) -> Port:
    if info.type.WhichOneof("value") != "tensor_type":
        return Port(info.name, None, None)
    kind = info.type.tensor_type
    shape = None
    if kind.HasField("shape"):
        if len(kind.shape.dim) > _MOST_RANK:
            raise ModelError(f"the ONNX value '{shown(info.name)}' has {len(kind.shape.dim)} axes.")
        shape = tuple(
            size.dim_value if size.WhichOneof("value") == "dim_value" and size.dim_value > 0 else None
            for size in kind.shape.dim
        )
    return Port(info.name, DTYPES.get(kind.elem_type), shape)


def _operation(node: Any) -> Operation:
    attributes = {attribute.name: _attribute(attribute) for attribute in node.attribute}
    return Operation(
        node.op_type, _domain(node.domain), node.name, tuple(node.input), tuple(node.output), attributes
    )


def _attribute(attribute: Any) -> Any:
    match attribute.type:
        case 1:
            return float(attribute.f)
        case 2:
            return int(attribute.i)
        case 3:
            return _text(attribute.s)
        case 4:
            return tensor(attribute.t)
        case 5:
            return body_of(attribute.g)
        case 6:
            return np.array(attribute.floats, np.float32)
        case 7:
            return np.array(attribute.ints, np.int64)
        case 8:
            return [_text(text) for text in attribute.strings]
    if attribute.ref_attr_name:
        return Reference(attribute.ref_attr_name)
    raise UnsupportedModel(
        f"the ONNX attribute '{shown(attribute.name)}' is of a type that is not supported."
    )


@dataclass(frozen=True)
class Reference:
    """In a function of the model: an attribute of the calling node."""

    name: str


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ModelError("the ONNX model is damaged: a text in it is not UTF-8.") from error


def tensor(proto: Any) -> np.ndarray:
    """Return a ``TensorProto``'s values; texts as objects.

    Raises `ModelError` if their number does not fit the shape. Raises `UnsupportedModel` if they are in
    another file, or of an unsupported type.
    """
    name = f"the ONNX tensor '{shown(proto.name, 60)}'"
    if proto.data_location == _EXTERNAL or proto.external_data:
        raise UnsupportedModel(f"{name} is stored in another file, which is not supported.")
    if proto.data_type not in DTYPES:
        raise UnsupportedModel(
            f"{name} is of the type {int(proto.data_type)}, which is not supported; supported are floats of "
            "32 and 64 bits, integers, bools and strings."
        )
    dtype, shape = DTYPES[proto.data_type], tuple(proto.dims)
    count = math.prod(shape)
    if len(shape) > _MOST_RANK or any(size < 0 for size in shape):
        raise ModelError(f"{name} is damaged: its shape is {shown(shape)}.")
    raw: bytes = proto.raw_data
    stored: Sequence[Any] = getattr(proto, _STORED[proto.data_type])
    if dtype == "str":
        return _texts(name, stored, count).reshape(shape)
    kind = np.dtype(dtype).newbyteorder("<")
    size = len(raw) // kind.itemsize if raw else len(stored)
    if size != count or (raw and len(raw) % kind.itemsize):
        raise ModelError(f"{name} is damaged: it has {size:,} values for the shape {shown(shape)}.")
    if raw:
        values = np.frombuffer(raw, np.uint8 if dtype == "bool" else kind)
        return values.astype(dtype).reshape(shape)
    try:
        return np.array(stored, np.uint8 if dtype == "bool" else dtype).astype(dtype).reshape(shape)
    except OverflowError as error:
        raise ModelError(f"{name} is damaged: a number is out of the range of {dtype}.") from error


def _texts(name: str, stored: Sequence[bytes], count: int) -> np.ndarray:
    if len(stored) != count:
        raise ModelError(f"{name} is damaged: it has {len(stored):,} values, expected {count:,}.")
    out = np.empty(count, object)
    out[:] = [_text(text) for text in stored]
    return out
