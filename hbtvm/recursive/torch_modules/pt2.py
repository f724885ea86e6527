"""Cells from ``.pt2`` files of ``torch.export.save``; read without torch and without unpickling."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from hbtvm.errors import ModelError, model_file_error
from hbtvm.recursive.aten.archive import graph_of
from hbtvm.recursive.aten.build import cell_of
from hbtvm.recursive.aten.graph import Graph, unread
from hbtvm.recursive.aten.signature import Convention
from hbtvm.recursive.cell import Cell
from hbtvm.words.printable import shown

Source = str | os.PathLike[str] | bytes


def read_pt2(
    source: Source,
    *,
    children: int | None = 1,
    state: Sequence[str] = ("h",),
    inputs: Sequence[str] | None = None,
    reduce: Literal["sum", "max"] | None = None,
    apart: bool | None = None,
    leaf: Source | None = None,
    optional: Collection[str] = (),
    name: str | None = None,
) -> Cell:
    """Read the cell of a node's module.

    Export the module in float32 with a dynamic batch:
    ``torch.export.save(torch.export.export(module, arguments, dynamic_shapes=...), path)``. More modules can
    be read after ``run_decompositions()``. Describe the arguments as for `hbtvm.recursive.from_torch`.

    `source`: path or content of the file.
    `children`: places for children; None for any number.
    `state`: names of the states, in the order of the module's results. Arguments with these names are the
        children's states; unless all exist, the first arguments are, in order.
    `inputs`: names of the other arguments, in order; by default, the module's.
    `reduce`, `apart`, `optional`: see `hbtvm.recursive.from_torch`.
    `leaf`: a file with the module for nodes without children, which takes inputs only.
    `name`: name of the cell; by default, the file's.
    Raises `ModelError` if the file can't be read, is damaged, holds pickled weights, or a module that can't
    be a cell; it names the operator and the line of the module.
    """
    states = (state,) if isinstance(state, str) else tuple(state)
    how = Convention(
        children, states, None if inputs is None else tuple(inputs), reduce, apart, frozenset(optional)
    )
    cell_name = name or ("cell" if isinstance(source, bytes) else Path(source).stem)
    graph = _graph(source)
    leaf_graph = None if leaf is None else _graph(leaf)
    try:
        return cell_of(cell_name, graph, how, leaf_graph)
    except ModelError as error:
        if isinstance(source, bytes):
            raise
        raise ModelError(f"{shown(os.fspath(source), most=200)}: {error}") from error


def _graph(source: Source) -> Graph:
    if isinstance(source, bytes):
        return _of(source)
    path = shown(os.fspath(source), most=200)
    try:
        content = Path(source).read_bytes()
    except OSError as error:
        raise model_file_error(
            f"{path}: the file can't be read ({error.strerror})", error.errno or 0, path
        ) from error
    try:
        return _of(content)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _of(content: bytes) -> Graph:
    graph = graph_of(content)
    for argument in unread(graph):
        others = [
            other for other in graph.arguments if other is not argument and other.sizes == argument.sizes
        ]
        if others:
            # torch silently merges two arguments that got the same sample tensor.
            raise ModelError(
                f"nothing reads argument {shown(argument.name)!r}, which is like {shown(others[0].name)!r}; "
                "export the module with a sample tensor of its own for each argument"
            )
    return graph
