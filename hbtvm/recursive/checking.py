"""Check that structures fit a model, before a call; the executor repeats these checks in each call."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.recursive.structures import Structures


def check(structures: Structures, model: Any) -> None:
    """Check structures.

    `model`: a `Cell`, or a package's `RecursionEntry`, with ``children`` and ``inputs``.
    Raises `InputError` if there is a cycle, a child outside of its structure, too many children, a number out
    of range, or an array of a wrong shape; it names structure and node, counted within the structure.
    """
    starts, first, child = structures.starts, structures.first, structures.child
    nodes = len(first) - 1
    rises = len(starts) and starts[0] == 0 and starts[-1] == nodes and (np.diff(starts) >= 0).all()
    if not rises or first[0] != 0 or first[-1] != len(child) or (np.diff(first) < 0).any():
        raise InputError(
            "structures: starts and first should rise from 0 to the numbers of nodes and children."
        )
    counts = np.diff(first)
    parent = np.repeat(np.arange(nodes), counts)
    structure = np.searchsorted(starts, parent, "right") - 1
    outside = (child != -1) & ((child < starts[structure]) | (child >= starts[structure + 1]))
    if outside.any():
        node = int(parent[int(np.argmax(outside))])
        raise InputError(f"{_where(structures, node)}: a child is not a node of this structure.")
    if model.children is not None and (counts > model.children).any():
        node = int(np.argmax(counts > model.children))
        raise InputError(
            f"{_where(structures, node)}: it has {counts[node]} places for children; the model takes "
            f"{model.children} at most."
        )
    _check_cycles(structures, parent)
    inputs = model.inputs
    named = inputs.items() if hasattr(inputs, "items") else [(input_.name, input_) for input_ in inputs]
    for name, input_ in named:
        _check_input(structures, name, input_, nodes)
    extra = set(structures.inputs) - {name for name, _ in named}
    if extra:
        raise InputError(f"structures: the model has no input {min(extra)!r}.")


def _check_cycles(structures: Structures, parent: np.ndarray) -> None:
    """Repeatedly remove nodes without children: the remaining nodes are on a cycle or above a cycle."""
    nodes = len(structures.first) - 1
    exists = structures.child >= 0
    child, parent = structures.child[exists], parent[exists]
    open_ones = np.bincount(parent, minlength=nodes)
    order = np.argsort(child, kind="stable")
    parents = parent[order].tolist()
    begin = np.searchsorted(child[order], np.arange(nodes + 1)).tolist()
    left = open_ones.tolist()
    waiting = np.flatnonzero(open_ones == 0).tolist()
    while waiting:
        done = waiting.pop()
        for above in parents[begin[done] : begin[done + 1]]:
            left[above] -= 1
            if not left[above]:
                waiting.append(above)
    if any(left):
        node = next(at for at, count in enumerate(left) if count)
        seen: set[int] = set()
        # Remaining children lead to a node on a cycle.
        while node not in seen:
            seen.add(node)
            near = structures.child[structures.first[node] : structures.first[node + 1]].tolist()
            node = next(node for node in near if node >= 0 and left[node])
        raise InputError(
            f"{_where(structures, node)}: it depends on itself; expected a tree or another "
            "graph without cycles."
        )


def _check_input(structures: Structures, name: str, input_: Any, nodes: int) -> None:
    if name not in structures.inputs:
        raise InputError(f"structures: input {name!r} is missing.")
    array = np.asarray(structures.inputs[name])
    shape = (nodes,) if input_.kind == "number" else (nodes, input_.size)
    kinds = "iu" if input_.kind == "number" else "iufb"
    if array.shape != shape or (array.size and array.dtype.kind not in kinds):
        expected = "whole numbers" if input_.kind == "number" else "numbers"
        raise InputError(
            f"structures: input {name!r} is {array.dtype} of shape {array.shape}; expected {expected} "
            f"of shape {shape}."
        )
    if input_.kind == "number":
        outside = (array < (-1 if input_.optional else 0)) | (array >= input_.size)
        if outside.any():
            node = int(np.argmax(outside))
            lowest = "-1 (for none)" if input_.optional else "0"
            raise InputError(
                f"{_where(structures, node)}: {name!r} is {array[node]}; expected a number from {lowest} to "
                f"{input_.size - 1}."
            )


def _where(structures: Structures, node: int) -> str:
    structure = int(np.searchsorted(structures.starts, node, "right")) - 1
    return f"structure {structure}, node {node - int(structures.starts[structure])}"
