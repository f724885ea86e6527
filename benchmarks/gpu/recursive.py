"""Recursive models on a GPU: answers against float64, and times by level and by persistent kernels.

`python -m benchmarks.gpu.check` has its steps among its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import hbtvm.recursive as rec
from hbtvm import api
from hbtvm.compiler.building.cpu import host_executor
from hbtvm.compiler.recursion.build import entry_of, kernels_of
from hbtvm.compiler.recursion.samples import sample, shape_of
from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Cell, Readout, RecursiveModel
from hbtvm.runtime.cuda.recursive.device import RecursiveDevice
from hbtvm.runtime.native.library import load_library
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.levels import Levels, classes_of

CELLS = {"tree_fc": 2, "dag_rnn": 2, "tree_gru": None, "tree_lstm": None, "mv_rnn": 2, "attention": 2}
"""Cells by name, and their places for children."""

_SMALLER = {"mv_rnn": 4}
"""By what hidden sizes are divided of cells with matrices of states."""

LEVELS = ("launches", "persistent", "kept")
"""How levels are gone through: see `hbtvm.schedules.cuda.recursive`; in the last, constants stay on chip."""

_WORDS = 1000
_CALLS = 50


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


def opened(
    cell: Cell, target: Target, batch: int, levels: str, over: str, state: str = ""
) -> RecursiveDevice:
    """A cell's default kernels for calls of so many structures, on the device.

    Parameters
    ----------
    state
        What is read; the first state, if left out.
    """
    classes, strategy = classes_of(cell), Levels()
    nodes, deep = shape_of(sample(cell, batch, seed=batch))
    workload = strategy.workload(classes, batch, nodes, deep, 1)
    config = {**strategy.default(workload, target), "levels": levels}
    if levels == "kept":
        config["levels"] = "persistent"
        space = strategy.space(workload, target)
        config = next(one for n in (16, 8, 0) if space.contains(one := {**config, "kept": n}))
    kernels = kernels_of(classes, workload, config, target)
    readout = Readout(state or next(iter(cell.states)), over)  # type: ignore[arg-type]
    entry = entry_of(cell, classes, readout, (kernels,))
    return RecursiveDevice(load_library(host_executor()), entry, str(target["arch"]), 0)


def agrees(name: str, target: Target, levels: str, hidden: int, batches: Sequence[int]) -> str:
    """Compare states with the reference's in float64; returns what was compared.

    Raises
    ------
    AssertionError
        If they differ.
    """
    cell, count, most = cell_of(name, hidden), 0, 0.0
    for batch in batches:
        structures = sample(cell, batch, seed=batch)
        states = reference.states(cell, structures)
        for state in cell.states:
            device = opened(cell, target, batch, levels, "nodes", state)
            want = reference.readout(cell, Readout(state, "nodes"), structures, states)
            for _ in range(3):
                found = device.run(structures)
                np.testing.assert_allclose(found, want, atol=1e-5)
            most = max(most, float(np.abs(found - want).max()))
        count += len(structures.first) - 1
    size = math.prod(next(iter(cell.states.values())))
    return f"states of {count:,} nodes, H={size}, differ by up to {most:.1e}"


def timing(target: Target, hidden: Sequence[int], batches: Sequence[int], calls: int = _CALLS) -> str:
    """A table: milliseconds of a call with structures on the host, copies included, the median of `calls`."""
    lines = [f"ms a call{'':11}" + "".join(f"{levels:>12}" for levels in LEVELS)]
    for name in CELLS:
        for size in hidden:
            for batch in batches:
                cell = cell_of(name, size)
                structures = sample(cell, batch, seed=batch)
                row = f"{name:<10} {size // _SMALLER.get(name, 1):>4} {batch:>4}"
                for levels in LEVELS:
                    device = opened(cell, target, batch, levels, "roots")
                    times = []
                    for _ in range(calls + 3):
                        start = time.perf_counter()
                        device.run(structures)
                        times.append(time.perf_counter() - start)
                    row += f"{1e3 * float(np.median(times[3:])):>12.3f}"
                lines.append(row)
    return "\n".join(lines)


def tuning(name: str, hidden: int, trials: int) -> str:
    """Run a small search, and compare the tuned model with the reference.

    Raises
    ------
    AssertionError
        If candidates were wrong, or the tuned model is.
    """
    cell = cell_of(name, hidden)
    model = RecursiveModel(cell, Readout(next(iter(cell.states))))
    found = api.search(model, target="cuda", trials=trials, batch_sizes=(1, 10))
    failed = dict(found.result.failures)
    if any(failed.get(kind) for kind in ("wrong_result", "crash")):
        raise AssertionError(f"candidates failed: {failed}")
    structures = sample(cell, 10, seed=3)
    np.testing.assert_allclose(
        found.model.predict(structures), reference.scores(model, structures), atol=1e-5
    )
    groups = {name: group.best for name, group in found.result.groups.items() if group.best}
    told = ", ".join(
        f"{name} {best.time * 1e6:.1f} µs by {best.config['levels']}" for name, best in groups.items()
    )
    return f"{found.result.trials} trials, failures {failed or 'none'}; {told}"


def steps(
    target: Target,
    hidden: Sequence[int] = (256, 512),
    batches: Sequence[int] = (1, 10, 100),
    calls: int = _CALLS,
) -> Iterator[tuple[str, Callable[[], str]]]:
    """All steps, in order, as `benchmarks.gpu.check` has them."""
    for name in CELLS:
        for levels in LEVELS:

            def compared(name: str = name, levels: str = levels) -> str:
                return agrees(name, target, levels, hidden[0], batches)

            yield f"{name}, levels by {levels}", compared
    yield "times of recursive models", lambda: timing(target, hidden, batches, calls)
