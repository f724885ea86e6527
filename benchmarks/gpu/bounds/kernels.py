"""This project's kernels as `Launched`: compiled for sm_90, with a model's tables and real rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.gpu.bounds.memory import Global
from benchmarks.gpu.bounds.occupancy import Use
from benchmarks.gpu.bounds.sass import Code, disassemble
from hbtvm.compiler.building.cuda import source_and_launch
from hbtvm.compiler.building.cuda_source import machine_code
from hbtvm.compiler.targets.target import resolve
from hbtvm.runtime.gpu.launch import Scaling
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.strategies import Forest, Strategy, workload_of

MULTIPROCESSORS = 132

TARGET: Target = resolve({"kind": "cuda", "arch": "sm_90", "cores": MULTIPROCESSORS})
"""An H100 with as many multiprocessors as the SXM form has."""


@dataclass
class Launched:
    """A kernel and how it is started on a number of rows.

    Attributes
    ----------
    code, use
        Its instructions, and what a block takes.
    spilled
        Bytes that each thread spills, and that it has in a stack.
    grid, threads
        Blocks of the launch along x and y, and threads of a block.
    rows_each
        Rows of a block, all those that it takes one after the other included; maybe a fraction, where
        several blocks share a tile.
    moved
        Bytes that have to pass between the device's memory and its multiprocessors: rows, tables, scores.
    share
        Of a whole launch, what the interpreted blocks stand for where they take fewer tiles than the
        launch's own: each counted instruction stands for so many.
    begin
        Puts the arrays of some blocks into memory; returns the arguments as bytes, and what reads the scores
        of rows that the interpreted blocks computed: (n, O).
    """

    code: Code
    use: Use
    spilled: int
    grid: tuple[int, int]
    threads: tuple[int, int]
    rows_each: float
    moved: float
    begin: Callable[[Global, list[tuple[int, int]]], tuple[bytes, Callable[[], np.ndarray]]]
    share: float = 1.0
    about: dict[str, Any] = field(default_factory=dict)


def usage(printed: str, threads: int, dynamic: int = 0) -> tuple[Use, int]:
    """Return what ``ptxas -v`` says of a kernel, and the bytes it spills or keeps in a stack."""

    def number(pattern: str) -> int:
        match = re.search(pattern, printed)
        return int(match[1]) if match else 0

    use = Use(threads, number(r"Used (\d+) registers"), number(r"(\d+) bytes smem") + dynamic)
    return use, max(number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes stack frame"))


def one_of(printed: str, function: str) -> str:
    """Return the part of what ``ptxas -v`` printed that is about one kernel."""
    parts = re.split(r"Compiling entry function '", printed)
    return next((part for part in parts[1:] if part.split("'")[0] == function), printed)


def own_kernel(strategy: Strategy, forest: Forest, config: Config, X: np.ndarray, rows: int) -> Launched:
    """Compile a configuration's kernel for a number of rows.

    Parameters
    ----------
    X
        Rows, shape (n, F); repeated where more are needed.

    Raises
    ------
    hbtvm.errors.BuildError
        If it cannot be compiled.
    """
    workload = workload_of(forest, rows)
    signature = strategy.signature(workload, config)
    source, launch = source_and_launch(strategy.module(workload, config), TARGET, signature.parts)
    code, printed = machine_code(source, TARGET, "-Xptxas=-v")
    wide, high, _ = launch.block
    use, spilled = usage(one_of(printed, launch.function), wide * high, launch.shared)
    use = replace(use, carveout=launch.carveout)
    tables = [*strategy.shared(forest).values(), *strategy.tables(forest, config).values()]
    tables = [np.ascontiguousarray(table) for table in tables]
    row_tile = signature.row_tile
    tiles = -(-rows // row_tile)
    grid_x, grid_y, _ = launch.blocks(signature.shapes(tables, tiles))
    size = np.dtype(signature.rows.dtype).itemsize
    blocks = grid_x * grid_y
    # A block that stays takes a tile, and then others: two of them are interpreted.
    rounds = -(-tiles // grid_x)
    interpreted = min(tiles, 2 * grid_x) if rounds > 1 else tiles
    share = tiles / interpreted

    def begin(memory: Global, chosen: list[tuple[int, int]]) -> tuple[bytes, Callable[[], np.ndarray]]:
        last = max(x for x, _ in chosen) + 1
        kept = min(tiles, last)
        given = np.resize(X, (kept * row_tile, X.shape[1])).astype(signature.rows.dtype)
        scores_shape = signature.scores.sizes(tiles=kept)
        scores = np.zeros(scores_shape, signature.scores.dtype)
        addresses = [memory.add(array) for array in (given, *tables, scores)]
        shapes = signature.shapes(tables, interpreted)
        plain = Scaling(memory.add(np.zeros(signature.outputs)), 0.0, 1.0)
        values = launch.values(addresses, shapes, len(given), plain)

        def read() -> np.ndarray:
            found = memory.array(addresses[-1], signature.scores.dtype).reshape(scores_shape)
            whole = len(chosen) // grid_y * row_tile  # rows of which all blocks were interpreted
            if signature.parts == 1:
                return found.reshape(kept * row_tile, -1)[:whole]
            sums = found.reshape(kept, signature.parts, signature.outputs, row_tile).sum(axis=1)
            return np.ascontiguousarray(sums.transpose(0, 2, 1).reshape(kept * row_tile, -1)[:whole])

        return b"".join(bytes(value) for value in values), read

    outputs = signature.outputs
    moved = rows * (X.shape[1] * size + 8 * outputs * signature.parts) + sum(table.nbytes for table in tables)
    return Launched(
        disassemble(code)[launch.function],
        use,
        spilled,
        (grid_x, grid_y),
        (wide, high),
        rows / blocks,
        moved,
        begin,
        share,
        {"config": config, "parts": signature.parts},
    )
