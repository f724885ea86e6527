"""Constant data as C source: numbers, arrays, and structures that point to one another."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hbtvm.runtime.native import structures as c
from hbtvm.runtime.native.description import Kept
from hbtvm.runtime.native.epilogues.epilogue import EpilogueFields
from hbtvm.runtime.native.front import structures as front
from hbtvm.runtime.recursive import binding as recursive
from hbtvm.runtime.text.library import StageFields, TextFields

NAMES = {
    c.Table: "table",
    c.Kernel: "kernel",
    c.Kernels: "kernels",
    c.Stage: "stage",
    c.Model: "model",
    EpilogueFields: "epilogue",
    front.CodesFields: "codes",
    front.ConstantFields: "constant",
    front.StepFields: "feed_step",
    front.FeedFields: "feed",
    front.ColumnFields: "input_column",
    front.TextsFields: "texts",
    front.ListFields: "category_list",
    front.FrontFields: "front",
    TextFields: "text",
    StageFields: "stage",
    recursive.Argument: "recursive_argument",
    recursive.Step: "recursive_step",
    recursive.Kernels: "recursive_kernels",
    recursive.Input: "recursive_input",
    recursive.Model: "recursive_model",
}
"""The structures' names in C."""

_TYPES = {"int64": "int64_t", "float64": "double", "float32": "float", "uint8": "uint8_t"}
_ALIGNMENT, _LINE = 64, 100
_FEW = 64  # most numbers of an array written as C source; longer arrays go to the tables


@dataclass
class Tables:
    """The concatenated tables of all kernels; equal tables are stored once."""

    data: bytearray = field(default_factory=bytearray)
    places: dict[bytes, int] = field(default_factory=dict)

    def place(self, array: np.ndarray) -> int:
        """Return the offset of an array's bytes, a multiple of 64."""
        content = np.ascontiguousarray(array).tobytes()
        if content not in self.places:
            self.data.extend(bytes(-len(self.data) % _ALIGNMENT))
            self.places[content] = len(self.data)
            self.data.extend(content)
        return self.places[content]


class Recorder(Kept):
    """The objects that a description points to, by address."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[int, Any] = {}

    @classmethod
    def of(cls, kept: Sequence[Any]) -> Recorder:
        """Record arrays and structures that others keep alive."""
        recorder = cls()
        # An empty array may share its address with another object.
        for item in sorted(kept, key=lambda item: isinstance(item, np.ndarray) and item.size > 0):
            if isinstance(item, np.ndarray):
                recorder.numpy(item)
            elif not isinstance(item, list | tuple):
                recorder.objects.append(item)
                recorder.at[ctypes.addressof(item)] = item
        return recorder

    def array(self, kind: Any, values: Sequence[Any]) -> int | None:
        address = super().array(kind, values)
        if address is not None:
            self.at[address] = self.objects[-1]
        return address

    def numpy(self, array: np.ndarray) -> int:
        address = super().numpy(array)
        self.at[address] = array
        return address


class Constants:
    """C source of constants, in order of their references.

    `tables`: collects the kernels' tables.
    `functions`: names of functions and of other files' constants, by placeholder address.
    """

    def __init__(self, tables: Tables, functions: Mapping[int, str]) -> None:
        self.lines: list[str] = []
        self._tables, self._functions = tables, functions
        self._names: dict[str, str] = {}

    def structure(self, value: Any, kept: Recorder) -> str:
        """Define a structure and the objects that it points to; return the expression of its address."""
        return f"&{self._define('struct ' + NAMES[type(value)], '', self._fields(value, kept))}"

    def public(self, kind: str, name: str, value: Any, kept: Recorder) -> None:
        """Define a structure with external linkage."""
        body = self._fields(value, kept)
        self.lines.append(f"const struct {kind} {name} = {body};")

    def array(self, array: np.ndarray) -> str:
        """Define an array of numbers; return its name."""
        kind = _TYPES[array.dtype.name]
        return self._define(kind, "[]", _braced([number(value) for value in array.reshape(-1).tolist()]))

    def texts(self, texts: Sequence[str]) -> str:
        """Define an array of texts; return its name."""
        return self._define("char *const", "[]", _braced([quoted(text) for text in texts]))

    def define(self, kind: str, body: str) -> str:
        """Define a constant with a type; return its name."""
        return self._define(kind, "", body)

    def _define(self, kind: str, suffix: str, body: str) -> str:
        text = f"{kind}{suffix} = {body}"
        if text not in self._names:
            name = self._names[text] = f"c{len(self._names)}"
            self.lines.append(f"static const {kind} {name}{suffix} = {body};")
        return self._names[text]

    def _fields(self, value: Any, kept: Recorder) -> str:
        fields = []
        for name, kind in value._fields_:
            content = getattr(value, name)
            if isinstance(content, ctypes.Structure):
                content = self._fields(content, kept)
            elif isinstance(content, ctypes.Array):
                inner = issubclass(content._type_, ctypes.Structure)
                content = _braced(
                    [self._fields(entry, kept) if inner else number(entry) for entry in content]
                )
            elif kind is ctypes.c_void_p and content is not None:
                content = self._pointer(name, content, kept)
            elif isinstance(content, bytes):
                content = quoted(content)
            elif kind is ctypes.c_uint64:
                content = f"UINT64_C({content})"
            elif content:
                content = number(content)
            else:
                continue
            fields.append(f".{name} = {content}")
        return _braced(fields)

    def _pointer(self, name: str, address: int, kept: Recorder) -> str:
        if address in self._functions:
            return self._functions[address]
        target = kept.at[address]
        if isinstance(target, np.ndarray):
            few = target.size <= _FEW and target.dtype.name in _TYPES and name != "data"
            return self.array(target) if few else self._blob(target)
        if isinstance(target, ctypes.Structure):
            return self.structure(target, kept)
        if target._type_ is ctypes.c_char:
            return self._blob(np.frombuffer(target, np.uint8))
        if issubclass(target._type_, ctypes.Structure):
            bodies = [self._fields(entry, kept) for entry in target]
            return self._define(f"struct {NAMES[target._type_]}", "[]", _braced(bodies))
        return self.array(np.array(list(target), np.int64))

    def _blob(self, array: np.ndarray) -> str:
        return f"(const void *)(hbtvm_tables + {self._tables.place(array)})"


def number(value: float | int) -> str:
    """Return a number as an exact C constant.

    `value`: an int, or a float, which becomes a constant of type double.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return value.hex()
    return "INT64_MIN" if value == -(1 << 63) else f"{value}" if abs(value) < 1 << 31 else f"INT64_C({value})"


def quoted(text: str | bytes) -> str:
    """Return a text as a C literal of its UTF-8 bytes; it must not contain a zero byte."""
    characters = []
    for byte in text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"):
        char = chr(byte)
        characters.append(char if 32 <= byte < 127 and char not in '"\\?' else f"\\{byte:03o}")
    return '"' + "".join(characters) + '"'


def _braced(items: Sequence[str]) -> str:
    """Return an initialiser, wrapped."""
    if not items:
        return "{0}"
    lines, line = [], "  "
    for item in items:
        if len(line) + len(item) > _LINE and line.strip():
            lines.append(line.rstrip())
            line = "  "
        line += f"{item}, "
    lines.append(line.rstrip(" ").rstrip(","))
    if len(lines) == 1:
        return "{" + lines[0].strip() + "}"
    return "{\n" + "\n".join(lines) + "}"
