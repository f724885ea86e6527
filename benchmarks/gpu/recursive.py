"""Recursive models of a bundle: cells, structures, expected readouts, and packages by way through levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import hbtvm.recursive as rec
from hbtvm import api
from hbtvm.compiler.recursion.build import entry_of, kernels_of
from hbtvm.compiler.recursion.samples import sample, shape_of
from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Cell, Readout, RecursiveModel
from hbtvm.runtime.package.file import Package
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.levels import Levels, classes_of

CELLS = {"tree_fc": 2, "dag_rnn": 2, "tree_gru": None, "tree_lstm": None, "mv_rnn": 2, "attention": 2}
"""Cells by name, and their places for children."""

_SMALLER = {"mv_rnn": 4}
"""By what hidden sizes are divided of cells with matrices of states."""

LEVELS = ("launches", "persistent", "kept")
"""How levels are gone through: see `hbtvm.schedules.cuda.recursive`; in the last, constants stay on chip."""

_WORDS = 50


def cell_of(name: str, hidden: int) -> Cell:
    """A known cell, or one with a softmax, with random weights."""
    children, hidden = CELLS[name], hidden // _SMALLER.get(name, 1)
    if name != "attention":
        weights = known.example_weights(name, hidden, _WORDS, children or 2, seed=hidden)
        return known.CELLS[name](hidden, children).bind(weights)

    @rec.cell(children=2, state={"h": hidden}, inputs={"word": rec.embedding("words", optional=True)})
    def attention(node: Any, w: Any) -> Any:
        a, b = node.children
        shares = rec.softmax(w.A @ rec.concat([a.h, b.h]) + w.a)
        mixed = shares[:hidden] * a.h + shares[hidden:] * b.h
        return {"h": rec.tanh(w.W @ mixed + node.word)}

    rng = np.random.default_rng(hidden)
    shapes = {"words": (_WORDS, hidden), "A": (2 * hidden, 2 * hidden), "a": (2 * hidden,)}
    shapes["W"] = hidden, hidden
    return attention.bind({key: rng.uniform(-1, 1, shape) / np.sqrt(hidden) for key, shape in shapes.items()})


def readout_of(cell: Cell) -> Readout:
    """The first state of all nodes."""
    return Readout(next(iter(cell.states)), "nodes")


def batches_of(cell: Cell, counts: Sequence[int]) -> list[Structures]:
    """Random structures, a batch for each count."""
    return [sample(cell, count, seed=count) for count in counts]


def arrays_of(batches: Sequence[Structures]) -> dict[str, np.ndarray]:
    """Batches as the arrays of a `.npz`, as `hbtvm.gpucheck.kinds` reads them."""
    arrays: dict[str, np.ndarray] = {}
    for number, batch in enumerate(batches):
        arrays |= {f"{name}{number}": getattr(batch, name) for name in ("starts", "first", "child")}
        arrays |= {f"input{number}.{name}": values for name, values in batch.inputs.items()}
    return arrays


def want(cell: Cell, batch: Structures) -> np.ndarray:
    """The readouts, computed in float64 and rounded to float32."""
    states = reference.states(cell, batch)
    return reference.readout(cell, readout_of(cell), batch, states).astype(np.float32)


def package_of(cell: Cell, target: Target, batch: int, levels: str) -> Package:
    """A package with the default kernels for calls of `batch` structures, and a given way through levels."""
    readout = readout_of(cell)
    package = api.compile(RecursiveModel(cell, readout), target=dict(target), batch_sizes=(batch,)).package
    classes, strategy = classes_of(cell), Levels()
    nodes, deep = shape_of(sample(cell, batch, seed=batch))
    workload = strategy.workload(classes, batch, nodes, deep, 1)
    config = {**strategy.default(workload, target), "levels": levels}
    if levels == "kept":
        config["levels"] = "persistent"
        space = strategy.space(workload, target)
        config = next(one for n in (16, 8, 0) if space.contains(one := {**config, "kept": n}))
    kernels = kernels_of(classes, workload, config, target)
    return replace(package, recursion=entry_of(cell, classes, readout, (kernels,)))
