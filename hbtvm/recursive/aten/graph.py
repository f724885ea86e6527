"""A graph of ATen operators from ``torch.export``, as plain values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.words.printable import shown

DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16",
}  # fmt: skip
"""Names of the file's numbers of types."""


@dataclass(frozen=True)
class Ref:
    """The result of a node, an argument or a constant, by name."""

    name: str


@dataclass(frozen=True)
class Node:
    """An operator's call."""

    op: str  # without overload, such as ``aten.add``
    # By the names of the operator's schema; tensors and symbolic numbers are `Ref`
    arguments: Mapping[str, Any]
    outputs: tuple[str | None, ...]  # names of the results; None for unnamed results
    single: bool  # whether it returns one value, not several
    where: str = ""  # a line of the user's module; empty if unknown


@dataclass(frozen=True)
class Argument:
    """An argument of the module."""

    name: str  # its name in the graph
    sizes: tuple[int | str, ...]  # of each axis: a number, or a symbolic expression's text
    dtype: str  # one of `DTYPES`
    label: str  # the user's name


@dataclass(frozen=True)
class Constant:
    """A parameter or a buffer."""

    name: str  # its name in the module
    dtype: str
    array: np.ndarray | None  # float32; None for other types, which no operator may read


@dataclass(frozen=True)
class Graph:
    """A module's ``forward``."""

    arguments: tuple[Argument, ...]
    constants: Mapping[str, Constant]  # by name in the graph
    nodes: tuple[Node, ...]  # in the order of computation
    outputs: tuple[str, ...]  # names of the results
    decomposed: bool = True  # whether torch has decomposed the operators to its core set


def needed(graph: Graph) -> list[Node]:
    """Return the nodes that the outputs depend on, in order."""
    wanted = set(graph.outputs)
    nodes = []
    for node in reversed(graph.nodes):
        if any(name in wanted for name in node.outputs):
            nodes.append(node)
            wanted.update(_names(node.arguments.values()))
    return nodes[::-1]


def unread(graph: Graph) -> list[Argument]:
    """Return the arguments that no node reads."""
    read = {*graph.outputs, *(name for node in needed(graph) for name in _names(node.arguments.values()))}
    return [argument for argument in graph.arguments if argument.name not in read]


def _names(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        if isinstance(value, Ref):
            yield value.name
        elif isinstance(value, list | tuple):
            yield from _names(value)


_FRAME = re.compile(r'File "([^"\n]{1,1000})", line (\d{1,9})[^\n]*(?:\n[ \t]*([^\n]*))?')


def place(trace: Any) -> str:
    """Return a stack trace's innermost line outside torch, such as ``cell.py, line 7: y = x.sort()``."""
    if not isinstance(trace, str):
        return ""
    for path, line, code in reversed(_FRAME.findall(trace[:100_000])):
        parts = re.split(r"[\\/]", path)
        if "torch" not in parts[:-1]:
            code_text = f": {shown(code.strip())}" if code.strip() else ""
            return f"{shown(os.path.basename(parts[-1]))}, line {line}{code_text}"
    return ""
