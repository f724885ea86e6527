"""A recursive cell of compiled C, and the same in numpy, node by node."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.runtime.native.objects.build import c_compiler, of_c
from hbtvm.runtime.recursive.entry import (
    Program,
    RecursionEntry,
    RecursionKernels,
    RecursiveInput,
    Share,
    Step,
    StepArgument,
)
from hbtvm.runtime.recursive.structures import Structures

WIDTH, WORDS = 48, 20
"""Numbers of a state and words of the cell of `recursive_cell.c`, as it is described here."""

INPUTS = (RecursiveInput("word", "number", WORDS, True), RecursiveInput("bias", "vector", WIDTH))


@functools.cache
def library() -> bytes:
    """The compiled cell."""
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
        path = Path(folder, "cell.so")
        source = Path(__file__).with_name("recursive_cell.c")
        command = [of_c(c_compiler()), "-std=c11", "-O1", "-fPIC", "-shared", str(source), "-o", str(path)]
        subprocess.run([*command, "-lm"], check=True)
        return path.read_bytes()


def table() -> np.ndarray:
    """Embedding of the words."""
    return np.random.default_rng(5).standard_normal((WORDS, WIDTH)).astype(np.float32) / 2


def _step(function: str, tile: int, roles: str, panels: int = 0) -> Step:
    """A step whose roles are given in words."""
    arguments = []
    for role in roles.split():
        arguments.append(StepArgument(role, 1 if role == "vector" else 0))  # type: ignore[arg-type]
    return Step(function, tile, tuple(arguments), panels)


def kernels(
    rows: int, share: Share = "none", threads: int = 1, tile: int = 4, tail: int = 2, most: int = 3,
    steps: bool = True, depth: int = 1,
) -> RecursionKernels:  # fmt: skip
    """Kernels of the cell, in two steps or in one."""

    def inner(tile: int, gather: str) -> tuple[Step, ...]:
        if not steps:
            return (_step("whole", tile, "state child number vector table out"),)
        cell = _step("cell", tile, "scratch number vector table span out", WIDTH // 16)
        return _step(gather, tile, "state child scratch"), cell

    leaf = Program((_step("leaf", 2 * tile, "number vector table out"),))
    program = Program(
        inner(tile, "gather"),
        (WIDTH,) if steps else (),
        inner(tail, "gather_tail") if tail else (),
        most if tail else 0,
    )
    return RecursionKernels(
        rows, threads, None, "levels", {"node_tile": tile}, share, library(), leaf, program, (table(),),
        depth=depth,
    )  # fmt: skip


def entry(
    *made: RecursionKernels, children: int | None = 3, over: Any = "roots", **changes: Any
) -> RecursionEntry:
    """The cell with these kernels."""
    values: dict[str, Any] = {
        "cell": "small", "children": children, "width": WIDTH, "state": 0, "shape": (WIDTH - 5,),
        "over": over, "inputs": INPUTS, "kernels": made or (kernels(1),),
    }  # fmt: skip
    return RecursionEntry(**{**values, **changes})


def reference(structures: Structures, columns: int = WIDTH - 5) -> np.ndarray:
    """States of all nodes in float64, shape (nodes, columns)."""
    nodes = len(structures.first) - 1
    emb, word, bias = table().astype(np.float64), structures.inputs["word"], structures.inputs["bias"]
    levels, states = reference_levels(structures), np.zeros((nodes, WIDTH))
    for v in np.argsort(levels, kind="stable"):
        own = structures.child[structures.first[v] : structures.first[v + 1]]
        total = states[own[own >= 0]].sum(0) + (emb[word[v]] if word[v] >= 0 else 0)
        states[v] = np.tanh(total + bias[v])
    return states[:, :columns]


def reference_levels(structures: Structures) -> np.ndarray:
    """Levels of nodes, int64 (nodes,); by repeated looks, until none changes."""
    first, child = structures.first, structures.child
    levels = np.zeros(len(first) - 1, np.int64)
    parent, present = np.repeat(np.arange(len(first) - 1), np.diff(first)), child >= 0
    while True:
        found = np.zeros_like(levels)
        np.maximum.at(found, parent[present], levels[child[present]] + 1)
        if np.array_equal(found, levels):
            return levels
        levels = found


def drawn(
    rng: np.random.Generator, sizes: list[int], kind: str = "tree", order: str = "first", places: int = 3,
    vocabulary: int = WORDS,
) -> Structures:  # fmt: skip
    """Random structures of these sizes.

    Parameters
    ----------
    kind
        ``"tree"``; ``"graph"``, in which nodes share children; ``"chain"``.
    order
        ``"first"``: children first; ``"last"``: parents first; ``"any"``.
    places
        Children of a node at most, some of which may be empty places.
    """
    lists: list[list[int]] = []
    for size in sizes:
        base, own = len(lists), _one(rng, size, kind, places)
        number = np.arange(size) if order == "first" else np.arange(size)[::-1]
        if order == "any":
            number = rng.permutation(size)
        placed: list[list[int]] = [[] for _ in range(size)]
        for v, children in enumerate(own):
            placed[number[v]] = [base + int(number[c]) if c >= 0 else -1 for c in children]
        lists.extend(placed)
    nodes = len(lists)
    return Structures(
        np.cumsum([0, *sizes]).astype(np.int64),
        np.cumsum([0, *map(len, lists)]).astype(np.int32),
        np.array([c for one in lists for c in one], np.int32),
        {
            "word": rng.integers(-1, vocabulary, nodes).astype(np.int32),
            "bias": rng.standard_normal((nodes, WIDTH)).astype(np.float32) / 4,
        },
    )


def _one(rng: np.random.Generator, size: int, kind: str, places: int) -> list[list[int]]:
    """Children of each node, all of which come before it."""
    if kind == "chain":
        return [[v - 1] if v else [] for v in range(size)]
    children: list[list[int]] = []
    free: list[int] = []
    for v in range(size):
        count = int(rng.integers(0, places + 1)) if v < size - 1 else places
        if kind == "graph":
            own = [int(c) for c in rng.integers(0, v, count)] if v else []
        else:
            own = [free.pop(int(rng.integers(len(free)))) for _ in range(min(count, len(free)))]
            free.append(v)
        if own and len(own) < places and rng.random() < 0.2:
            own.insert(0, -1)
        children.append(own)
    return children
