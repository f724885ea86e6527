"""Describe a recursive model in words, for users."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hbtvm.runtime.recursive.entry import Program, RecursionEntry, RecursionKernels, RecursiveInput
from hbtvm.runtime.recursive.vocabulary import Vocabulary
from hbtvm.words.quantities import count, duration

_READ = {
    "roots": "of each root",
    "nodes": "of each node",
    "total": "summed over each structure's nodes",
    "mean": "as mean of each structure's nodes",
    "most": "as maximum over each structure's nodes",
}


def recursion_words(entry: RecursionEntry) -> dict[str, str]:
    """Return the nodes' computation and inputs in words, by name."""
    children = "any number of children" if entry.children is None else f"up to {_children(entry.children)}"
    shape = " x ".join(map(str, entry.shape)) or "1"
    plural = "" if math.prod(entry.shape) == 1 else "s"
    return {
        "input": "; ".join(["structures", *(_input(input_) for input_ in entry.inputs)]),
        "cell": f"{entry.cell}, {children}, {count(entry.width, 'number')} kept of a node",
        "readout": f"{shape} number{plural} {_READ[entry.over]}",
        **({} if entry.vocabulary is None else {"words": vocabulary_words(entry.vocabulary)}),
    }


def vocabulary_words(vocabulary: Vocabulary) -> str:
    """Return the size of a model's vocabulary in words."""
    unknown = "" if vocabulary.unknown is None else f", {vocabulary.words[vocabulary.unknown]!r} for others"
    return f"{len(vocabulary.words):,}{unknown}"


def vocabulary_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return a vocabulary's facts as JSON."""
    unknown = vocabulary.unknown
    return {
        "words": len(vocabulary.words),
        "unknown": None if unknown is None else vocabulary.words[unknown],
        "labels": vocabulary.labels,
    }


def _children(number: int) -> str:
    return count(number, "child", "children")


def _input(input_: RecursiveInput) -> str:
    if input_.kind == "vector":
        return f"{input_.name}: {count(input_.size, 'number')} a node"
    return f"{input_.name}: a number from 0 to {input_.size - 1:,}{', or none' if input_.optional else ''}"


def recursion_rows(entry: RecursionEntry) -> list[tuple[str, ...]]:
    """Return a row of cells for each batch size's kernels; see `hbtvm.runtime.package.summary`."""
    return [_row(kernels) for kernels in entry.kernels]


def _row(kernels: RecursionKernels) -> tuple[str, ...]:
    threads = str(kernels.threads)
    if kernels.threads > 1 and kernels.share != "none":
        threads += f" over {kernels.share}"
    call = structure = "-"
    if kernels.seconds is not None:
        call, structure = duration(kernels.seconds), duration(kernels.seconds / kernels.rows)
    config = " ".join(f"{key}={value}" for key, value in sorted(kernels.config.items()))
    text = f"{config} tiles: leaf {_tiles(kernels.leaf)}, inner {_tiles(kernels.inner)}".strip()
    return f"{kernels.rows:,}", kernels.strategy, threads, call, structure, text


def _tiles(program: Program) -> str:
    tiles = str(program.main[0].tile)
    return f"{tiles} or {program.tail[0].tile}" if program.tail else tiles


def recursion_json(entry: RecursionEntry) -> dict[str, Any]:
    """Return the entry as JSON, without code and tables."""
    names = ("rows", "strategy", "share", "depth", "threads", "seconds")
    kernels: list[Mapping[str, Any]] = [
        {
            **{name: getattr(kernels, name) for name in names},
            "config": dict(kernels.config),
            "tiles": {"leaf": _tiles(kernels.leaf), "inner": _tiles(kernels.inner)},
        }
        for kernels in entry.kernels
    ]
    inputs = [
        {"name": input_.name, "kind": input_.kind, "size": input_.size, "optional": input_.optional}
        for input_ in entry.inputs
    ]
    return {
        "cell": entry.cell, "children": entry.children, "width": entry.width, "shape": list(entry.shape),
        "over": entry.over, "inputs": inputs, "kernels": kernels,
        "vocabulary": None if entry.vocabulary is None else vocabulary_json(entry.vocabulary),
    }  # fmt: skip
