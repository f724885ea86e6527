"""`Levels`: a recursive model level by level, as Cortex lowers it (MLSys'21, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.recursive.cell import Cell
from hbtvm.runtime.recursive.entry import Program
from hbtvm.schedules import recursive_cpu
from hbtvm.schedules.space import Config, Space
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.leaf_states import bytes_of, tabulated
from hbtvm.strategies.recursive.parameters import Tables
from hbtvm.strategies.recursive.plan import Facts, facts_of
from hbtvm.strategies.recursive.steps import Order, Tiling, steps_of

TABLE_BYTES = 1 << 26
"""Largest table of leaf states that is made without being asked for."""


@dataclass(frozen=True)
class Classes:
    """A cell for each class of nodes.

    Attributes
    ----------
    inner, leaf
        Of nodes with and without children.
    """

    inner: Facts
    leaf: Facts


@dataclass(frozen=True)
class Kernels:
    """What a configuration makes of a cell.

    Attributes
    ----------
    functions
        Functions of TVM by name, scheduled.
    leaf, inner
        The programs that call them.
    tables
        Constants.
    """

    functions: dict[str, Any]
    leaf: Program
    inner: Program
    tables: tuple[np.ndarray, ...]


def classes_of(cell: Cell) -> Classes:
    """Return the classes of a cell's nodes."""
    return Classes(facts_of(cell), facts_of(cell, childless=True))


class Levels:
    """Holds any cell."""

    name = "levels"

    def workload(self, classes: Classes, rows: int, nodes: int, levels: int, threads: int) -> dict[str, Any]:
        """Describe a cell and a typical call; part of a log's key.

        Parameters
        ----------
        rows
            Structures of a call.
        nodes, levels
            Of a typical structure.
        """
        size = bytes_of(classes.leaf)
        return {
            "family": "recursive",
            "rows": rows,
            "threads": threads,
            "nodes": nodes,
            "levels": levels,
            "children": classes.inner.children or 0,
            "width": classes.inner.width,
            "constants": 4 * sum(one.size for one in classes.inner.weights.values() if one.ndim == 2),
            "products": _products(classes.inner),
            "leaf_products": _products(classes.leaf),
            "table": 0 < size <= TABLE_BYTES,
            "dtype": "float32",
        }

    def space(self, workload: Mapping[str, Any], target: Target) -> Space:
        """The schedule choices on a target."""
        return recursive_cpu.space(workload, target)

    def default(self, workload: Mapping[str, Any], target: Target) -> Config:
        """A good configuration where nothing was measured."""
        return recursive_cpu.default(workload, target)

    def kernels(self, classes: Classes, config: Config, target: Target) -> Kernels:
        """Functions, programs and tables of a configuration."""
        tables = Tables()
        inner, leaf = classes.inner, classes.leaf
        if config["leaf"] == "table":
            leaf = tabulated(leaf)
        order: Any = config["order"]

        def tiling(tile: int, own: Order = order) -> Tiling:
            return Tiling(
                tile,
                int(config["vectors"]),
                recursive_cpu.lanes(target),
                int(config["unroll"]),
                own,
                recursive_cpu.registers(target),
            )

        main = steps_of(inner, tiling(int(config["tile"])), tables, "inner")
        first = steps_of(leaf, tiling(int(config["leaf_tile"])), tables, "leaf")
        functions = {**main.functions, **first.functions}
        tail: Any = None
        if config["tail"]:
            tail = steps_of(inner, tiling(int(config["tail"])), tables, "tail")
            functions |= tail.functions
        return Kernels(
            functions,
            Program(first.steps, first.scratch),
            Program(
                main.steps,
                main.scratch,
                tail.steps if tail else (),
                int(config["tail"]),
            ),
            tuple(tables.arrays),
        )


def _products(facts: Facts) -> list[list[int]]:
    """Rows, columns and how many, of products with constants."""
    counted: dict[tuple[int, int], int] = {}
    for value in facts.values:
        if value.op == "matmul" and facts.values[value.of[0]].op == "weight":
            shape = facts.values[value.of[0]].shape
            counted[shape[0], shape[1]] = counted.get((shape[0], shape[1]), 0) + 1
    return [[m, k, n] for (m, k), n in sorted(counted.items())]
