"""Constant data as C source: numbers, arrays, and structures that point to one another."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hbtvm.runtime.native import structures as c
from hbtvm.runtime.native.epilogue import EpilogueFields
from hbtvm.runtime.native.executor import Kept

NAMES = {
    c.Table: "table",
    c.Kernel: "kernel",
    c.Kernels: "kernels",
    c.Stage: "stage",
    c.Model: "model",
    EpilogueFields: "epilogue",
}
"""What C calls the structures."""

_TYPES = {"int64": "int64_t", "float64": "double", "float32": "float", "uint8": "uint8_t"}
_ALIGNMENT, _LINE = 64, 100


@dataclass
class Tables:
    """The tables of all kernels, one behind the other, equal ones once."""

    data: bytearray = field(default_factory=bytearray)
    places: dict[bytes, int] = field(default_factory=dict)

    def place(self, array: np.ndarray) -> int:
        """Where an array's bytes begin: a multiple of 64."""
        content = np.ascontiguousarray(array).tobytes()
        if content not in self.places:
            self.data.extend(bytes(-len(self.data) % _ALIGNMENT))
            self.places[content] = len(self.data)
            self.data.extend(content)
        return self.places[content]


class Recorder(Kept):
    """What a description points to, by address."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[int, Any] = {}

    def array(self, kind: Any, values: Sequence[Any]) -> int | None:
        """See `Kept.array`."""
        address = super().array(kind, values)
        if address is not None:
            self.at[address] = self.objects[-1]
        return address

    def numpy(self, array: np.ndarray) -> int:
        """See `Kept.numpy`."""
        address = super().numpy(array)
        self.at[address] = array
        return address


class Constants:
    """C source of constants, in the order in which they refer to each other.

    Parameters
    ----------
    tables
        Where the tables of kernels go.
    functions
        By the addresses that stand for them, names of kernels' functions.

    Attributes
    ----------
    lines
        The source.
    """

    def __init__(self, tables: Tables, functions: Mapping[int, str]) -> None:
        self.lines: list[str] = []
        self._tables, self._functions = tables, functions
        self._names: dict[str, str] = {}

    def structure(self, value: Any, kept: Recorder) -> str:
        """Define a structure and all that it points to; return the expression of its address."""
        return f"&{self._define('struct ' + NAMES[type(value)], '', self._fields(value, kept))}"

    def array(self, array: np.ndarray) -> str:
        """Define an array of numbers; return its name."""
        kind = _TYPES[array.dtype.name]
        return self._define(kind, "[]", _braced([number(one) for one in array.reshape(-1).tolist()]))

    def texts(self, texts: Sequence[str]) -> str:
        """Define an array of texts; return its name."""
        return self._define("char *const", "[]", _braced([quoted(one) for one in texts]))

    def define(self, kind: str, body: str) -> str:
        """Define a constant of a type of its own; return its name."""
        return self._define(kind, "", body)

    def _define(self, kind: str, suffix: str, body: str) -> str:
        text = f"{kind}{suffix} = {body}"
        if text not in self._names:
            name = self._names[text] = f"c{len(self._names)}"
            self.lines.append(f"static const {kind} {name}{suffix} = {body};")
        return self._names[text]

    def _fields(self, value: Any, kept: Recorder) -> str:
        given = []
        for name, kind in value._fields_:
            content = getattr(value, name)
            if kind is ctypes.c_void_p:
                if content is None:
                    continue
                content = self._pointer(name, content, kept)
            elif not content:
                continue
            else:
                content = number(content)
            given.append(f".{name} = {content}")
        return _braced(given)

    def _pointer(self, name: str, address: int, kept: Recorder) -> str:
        if name == "function":
            return self._functions[address]
        target = kept.at[address]
        if name == "data":
            return f"hbtvm_tables + {self._tables.place(target)}"
        if isinstance(target, np.ndarray):
            return self.array(target)
        if issubclass(target._type_, ctypes.Structure):
            bodies = [self._fields(one, kept) for one in target]
            return self._define(f"struct {NAMES[target._type_]}", "[]", _braced(bodies))
        return self.array(np.array(list(target), np.int64))


def number(value: float | int) -> str:
    """A number as C has it, to the last bit.

    Parameters
    ----------
    value
        An int, or a float, which becomes a constant of type double.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return value.hex()
    return "INT64_MIN" if value == -(1 << 63) else f"{value}" if abs(value) < 1 << 31 else f"INT64_C({value})"


def quoted(text: str) -> str:
    """A text as a C literal of its UTF-8 bytes; NULL-terminated, so that it must hold no such character."""
    made = []
    for byte in text.encode("utf-8", "surrogatepass"):
        char = chr(byte)
        made.append(char if 32 <= byte < 127 and char not in '"\\?' else f"\\{byte:03o}")
    return '"' + "".join(made) + '"'


def _braced(items: Sequence[str]) -> str:
    """An initialiser, in lines that are not too long."""
    if not items:
        return "{0}"
    lines, line = [], "  "
    for one in items:
        if len(line) + len(one) > _LINE and line.strip():
            lines.append(line.rstrip())
            line = "  "
        line += f"{one}, "
    lines.append(line.rstrip(" ").rstrip(","))
    if len(lines) == 1:
        return "{" + lines[0].strip() + "}"
    return "{\n" + "\n".join(lines) + "}"
