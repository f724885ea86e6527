"""Recursive models whose kernels are compiled with a configuration, and compared with the reference."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.compiler.building.cpu import executor
from hbtvm.compiler.recursion.build import entry_of, kernels_of
from hbtvm.compiler.targets.target import resolve
from hbtvm.recursive import known, reference
from hbtvm.recursive.cell import Cell, Readout
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.recursive.host import RecursiveHost
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.schedules.space import Config
from hbtvm.strategies.recursive.levels import Levels, classes_of

VOCABULARY = 20
TARGET = resolve()


def cell_of(name: str, hidden: int, children: int | None = 2) -> Cell:
    """A known cell with random weights."""
    weights = known.example_weights(name, hidden, VOCABULARY, children or 2, seed=hidden)
    return known.CELLS[name](hidden, children).bind(weights)


def opened(cell: Cell, config: Config, threads: int = 1) -> dict[str, RecursiveHost]:
    """A cell compiled with a configuration: for each state, what gives it of all nodes."""
    classes = classes_of(cell)
    workload = Levels().workload(classes, 4, 32, 8, threads)
    config = {key: config[key] for key in config if key in names(workload)}
    leaf = next(knob for knob in Levels().space(workload, TARGET).knobs if knob.name == "leaf")
    if config["leaf"] not in leaf.choices:
        config["leaf"] = "compute"
    kernels = kernels_of(classes, workload, config, TARGET)
    library = load_library(executor(TARGET))
    hosts = {}
    for state in cell.states:
        entry = entry_of(cell, classes, Readout(state, "nodes"), (kernels,))
        hosts[state] = RecursiveHost(library, entry, threads)
        hosts[state].check()
    return hosts


def names(workload: dict[str, Any]) -> set[str]:
    """Knobs of a workload."""
    return {knob.name for knob in Levels().space(workload, TARGET).knobs}


def configured(**given: Any) -> Config:
    """A configuration, with what is not given filled in."""
    usual: Config = {
        "tile": 4, "tail": 2, "vectors": 1, "order": "nodes", "unroll": 1, "leaf": "table", "leaf_tile": 4,
        "first": 1, "share": "none", "refactor": 0, "fusion": 1, "depth": 1,
    }  # fmt: skip
    return {**usual, **given}


@functools.cache
def drawn(children: int | None, optional: bool) -> Structures:
    """Structures of all kinds: single nodes, chains, trees, graphs with shared nodes."""
    rng = np.random.default_rng(7)
    starts, first, child = [0], [0], []
    for count in (1, 2, 9, 40, 1, 23):
        for node in range(count):
            most = node if children is None else min(children, node)
            own = rng.choice(node, size=rng.integers(0, min(most, 9) + 1), replace=False) if node else []
            child += [starts[-1] + int(one) for one in own]
            first.append(len(child))
        starts.append(starts[-1] + count)
    numbers = rng.integers(-1 if optional else 0, VOCABULARY, starts[-1])
    return Structures(
        np.array(starts, np.int64),
        np.array(first, np.int32),
        np.array(child, np.int32),
        {"word": numbers.astype(np.int32), "matrix": np.maximum(numbers, 0).astype(np.int32)},
    )


def compare(cell: Cell, hosts: dict[str, RecursiveHost], structures: Structures) -> None:
    """All states of all nodes are within 1e-5 of the reference's."""
    structures = replace(structures, inputs={name: structures.inputs[name] for name in cell.inputs})
    expected = reference.states(cell, structures)
    for state, host in hosts.items():
        found, right = host.run(structures), expected[state]
        scale = max(1.0, float(np.abs(right).max()))
        np.testing.assert_allclose(found, right.reshape(found.shape), rtol=0, atol=1e-5 * scale)
