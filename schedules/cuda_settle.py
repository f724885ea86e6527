"""Fit a CUDA configuration to a multiprocessor: fewer blocks, unstaged tables, then fewer rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hbtvm.schedules.cuda_shape import Shape
from hbtvm.schedules.cuda_space import Needs, fits, has_registers
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target, Workload

HELD = 512
"""Threads of a multiprocessor for which blocks give up rows."""

_FEWEST_ROWS = 8
"""Rows of a block down to which staging columns is worth that more blocks load the tables: a quarter of the
rows of a warp, which gather from as many places where columns are not staged."""

_MOST_SHARING = 64
"""Threads for each row that are in the space for any number of rows."""


def settle(config: Config, workload: Workload, target: Target, needs: Callable[[Config], Needs]) -> Config:
    """Make a configuration fit a target.

    It keeps as many blocks at a time as fit. Where those are few threads, tables are not staged, then blocks
    have fewer rows; and where not even a few rows fit, columns are not staged. Where shared memory leaves
    room for more threads, but not for more blocks, more threads share a block's rows.
    """
    wanted = int(config["resident"]) * needs(config).threads
    fitted = _fitted(config, workload, target, needs)
    while int(fitted["resident"]) * needs(fitted).threads < wanted:
        trees = 2 * int(fitted["tree_threads"])
        wider = {**fitted, "tree_threads": trees, "tree_tile": max(trees, int(fitted["tree_tile"]))}
        if trees > min(int(workload["trees"]), _MOST_SHARING) or not fits(needs(wider), target, wider):
            break
        fitted = wider
    return fitted


def _fitted(config: Config, workload: Workload, target: Target, needs: Callable[[Config], Needs]) -> Config:
    """What `settle` does by fewer blocks at a time, tables that are not staged, and fewer rows."""
    while int(config["tree_threads"]) > 1 and not has_registers(needs(config), target):
        half = int(config["tree_threads"]) // 2
        config = {**config, "tree_threads": half, "tree_tile": max(half, int(config["tree_tile"]) // 2)}
    plain: Config = {**config, "tables": "global"}
    shapes = [config] if config["tables"] != "global" else []
    best, most = config, 0
    for shape in (*shapes, *_smaller(plain, int(workload["trees"])), {**plain, "columns": "global"}):
        for resident in (16, 8, 4, 2, 1):
            fitted: Config = {**shape, "resident": resident}
            need = needs(fitted)
            if resident > int(config["resident"]) or not fits(need, target, fitted):
                continue
            held = resident * need.threads
            # Those of fewer rows load tables more often, which more threads have to hide.
            enough = HELD if shape["row_tile"] == config["row_tile"] else 2 * HELD
            if held >= min(enough, int(config["resident"]) * needs(config).threads):
                return fitted
            if held > most:
                best, most = fitted, held
            break
        if most and int(shape["row_tile"]) <= _FEWEST_ROWS:
            break
    return best


def settle_blocks(config: Config, target: Target, needs: Callable[[Config], Needs]) -> Config:
    """Make a configuration fit a target whose blocks have to stay as they are: fewer of them at a time, then
    columns that are not staged."""
    fitted = config
    for columns in dict.fromkeys((config["columns"], "global")):
        for resident in (8, 4, 2, 1):
            fitted = {**config, "columns": columns, "resident": resident}
            if resident <= int(config["resident"]) and fits(needs(fitted), target, fitted):
                return fitted
    return fitted


def _smaller(config: Config, most: int) -> Iterator[Config]:
    """A configuration, then with ever fewer rows of a block, of which each has ever more threads."""
    yield config
    shape = Shape.of(config)
    rows, threads, trees, tile = shape.row_tile, shape.row_threads, shape.tree_threads, shape.tree_tile
    while rows > _FEWEST_ROWS and config["columns"] != "global":
        rows //= 2
        if rows < threads:
            threads = rows
            while trees < most and trees * threads < HELD:
                trees *= 2
            tile = max(tile, trees)
        yield {**config, "row_tile": rows, "row_threads": threads, "tree_threads": trees, "tree_tile": tile}
