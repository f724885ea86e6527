"""`Levels`: a recursive model level by level, as Cortex lowers it (MLSys'21, sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import UnsupportedModel
from hbtvm.recursive.cell import Cell
from hbtvm.runtime.recursive.entry import Program, Step
from hbtvm.schedules.cpu import recursive as recursive_cpu
from hbtvm.schedules.cuda import recursive as recursive_cuda
from hbtvm.schedules.space import Config, Space
from hbtvm.schedules.workload import Target
from hbtvm.strategies.recursive.cuda import levels as cuda_levels
from hbtvm.strategies.recursive.cuda.step import Blocking
from hbtvm.strategies.recursive.leaf_states import bytes_of, tabulated
from hbtvm.strategies.recursive.moved_products import Moved, widened, with_products
from hbtvm.strategies.recursive.nests import is_whole
from hbtvm.strategies.recursive.parameters import Tables
from hbtvm.strategies.recursive.plan import Facts, facts_of
from hbtvm.strategies.recursive.products import Order, Tiling
from hbtvm.strategies.recursive.steps import steps_of

TABLE_BYTES = 1 << 26  # largest table of leaf states


@dataclass(frozen=True)
class Classes:
    """A cell for each class of nodes."""

    # `inner`, `leaf`: of nodes with and without children
    inner: Facts
    leaf: Facts
    # Nodes whose children are leaves of `table`; None if that saves nothing
    first: Facts | None = None
    # Leaves that look up their states and the products for `first`; None if there can be no table
    table: Facts | None = None
    moved: Moved | None = None  # the cell with products computed by the children; None without products
    same: bool = False  # whether leaves use the equations of other nodes, with absent children


@dataclass(frozen=True)
class Kernels:
    """Functions and programs of a cell in one configuration."""

    functions: dict[str, Any]  # functions of TVM by name, scheduled
    # `leaf`, `inner`: the programs that call them
    leaf: Program
    inner: Program
    first: Program | None
    tables: tuple[np.ndarray, ...]  # constants
    # On a GPU: the step that processes all levels, instead of the programs
    persistent: Step | None = None


def classes_of(cell: Cell) -> Classes:
    """Return the classes of a cell's nodes.

    Raises `UnsupportedModel` if no kernel computes something in it.
    """
    inner, leaf = facts_of(cell), facts_of(cell, childless=True)
    classes = with_products(inner, leaf, each_only=True)
    if classes is not None:
        inner, leaf = classes.inner, classes.leaf
    for facts in (inner, leaf):
        _require_kernels(cell, facts)
    moved = with_products(inner, leaf)
    same = cell.leaf is None
    if moved is not None:
        inner, leaf = widened(inner, moved.leaf), widened(leaf, moved.leaf)
    last = leaf if moved is None else moved.leaf
    if not 0 < bytes_of(leaf) <= TABLE_BYTES:
        return Classes(inner, leaf, None, None, moved, same)
    if moved is None or bytes_of(last) > TABLE_BYTES:
        return Classes(inner, leaf, None, tabulated(leaf), moved, same)
    return Classes(inner, leaf, moved.first, tabulated(last), moved, same)


def _require_kernels(cell: Cell, facts: Facts) -> None:
    """Raise `UnsupportedModel` if no kernel computes one of a cell's values."""
    for number, value in enumerate(facts.values):
        if value.per_child and (value.op == "matmul" or is_whole(facts.values, number)):
            title = "products" if value.op == "matmul" else value.op
            raise UnsupportedModel(
                f"the cell {cell.name} computes {title} for each of any number of children, which no kernel "
                "supports; declare a number of children"
            )


class Levels:
    """Supports any cell."""

    name = "levels"

    def workload(self, classes: Classes, rows: int, nodes: int, levels: int, threads: int) -> dict[str, Any]:
        """Describe a cell and a typical call; part of a log's key.

        `rows`: structures of a call.
        `nodes`, `levels`: of a typical structure.
        """
        return {
            "family": "recursive",
            "rows": rows,
            "threads": threads,
            "nodes": nodes,
            "levels": levels,
            "children": classes.inner.children or 0,
            "width": classes.inner.width,
            "products": _products(classes.inner),
            "leaf_products": _products(classes.leaf),
            "table": classes.table is not None,
            "first": classes.first is not None,
            "moved": classes.moved is not None,
            "same": classes.same,
            "matrices": any(
                value.op == "matmul" and is_whole(classes.inner.values, number)
                for number, value in enumerate(classes.inner.values)
            ),
            "dtype": "float32",
        }

    def space(self, workload: Mapping[str, Any], target: Target) -> Space:
        """Return the schedule choices on a target."""
        if target["kind"] == "cuda":
            return recursive_cuda.space(workload, target)
        return recursive_cpu.space(workload, target)

    def default(self, workload: Mapping[str, Any], target: Target) -> Config:
        """Return a good configuration for unmeasured workloads."""
        if target["kind"] == "cuda":
            return recursive_cuda.default(workload, target)
        return recursive_cpu.default(workload, target)

    def kernels(self, classes: Classes, config: Config, target: Target) -> Kernels:
        """Return the functions, programs and tables of a configuration."""
        tables = Tables()
        inner, leaf, first = classes.inner, classes.leaf, classes.first
        if config.get("refactor"):
            assert classes.moved is not None
            inner, leaf, first = classes.moved.inner, classes.moved.leaf, None
        if config["leaf"] == "table":
            assert classes.table is not None
            leaf = classes.table
        elif config["leaf"] == "inner":
            leaf = inner
        if target["kind"] == "cuda":
            device_classes = cuda_levels.Classes(leaf, inner, first if config.get("first") else None)
            return _on_device(device_classes, config, tables, target)
        order: Any = config["order"]

        def tiling(tile: int, device_classes: Order = order) -> Tiling:
            return Tiling(
                tile,
                int(config["vectors"]),
                recursive_cpu.lanes(target),
                int(config["unroll"]),
                device_classes,
                recursive_cpu.registers(target),
                bool(config.get("fusion", 1)),
            )

        main = steps_of(inner, tiling(int(config["tile"])), tables, "inner")
        outer = steps_of(leaf, tiling(int(config["leaf_tile"])), tables, "leaf")
        functions = {**main.functions, **outer.functions}
        tail: Any = None
        if config["tail"]:
            tail = steps_of(inner, tiling(int(config["tail"])), tables, "tail")
            functions |= tail.functions
        early = None
        if config.get("first") and first is not None:
            steps = steps_of(first, tiling(int(config["leaf_tile"])), tables, "first")
            early = Program(steps.steps, steps.scratch)
            functions |= steps.functions
        return Kernels(
            functions,
            Program(outer.steps, outer.scratch),
            Program(
                main.steps,
                main.scratch,
                tail.steps if tail else (),
                int(config["tail"]),
            ),
            early,
            tuple(tables.arrays),
        )


def _on_device(classes: cuda_levels.Classes, config: Config, tables: Tables, target: Target) -> Kernels:
    """Return the kernels for a GPU."""
    tile, threads, unroll, kept = (int(config.get(name, 0)) for name in ("tile", "threads", "unroll", "kept"))
    blocking = Blocking(tile, threads, unroll, kept)
    most = int(target["max_shared_memory_per_block"])
    kernels = cuda_levels.kernels_on_device(classes, blocking, config["levels"] == "persistent", tables, most)
    arrays = tuple(tables.arrays)
    return Kernels(kernels.functions, kernels.leaf, kernels.inner, kernels.first, arrays, kernels.persistent)


def _products(facts: Facts) -> list[list[int]]:
    """Return [rows, columns, count] of products with constants."""
    counted: dict[tuple[int, int], int] = {}
    for value in facts.values:
        if value.op == "matmul" and facts.values[value.of[0]].op == "weight":
            shape = facts.values[value.of[0]].shape
            counted[shape[0], shape[1]] = counted.get((shape[0], shape[1]), 0) + 1
    return [[m, k, n] for (m, k), n in sorted(counted.items())]
