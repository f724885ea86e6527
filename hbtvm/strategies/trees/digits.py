"""Leaf values as digits: bytes that instructions look up and add for a register of rows at once.

A tree's values are its lowest one and multiples of its tile's step, in `DIGITS` digits of 7 bits::

    value[t, leaf] = low[t] + step * sum over digits p of 128 ** p * digit[t, p, leaf]

Sums of each digit over a tile's trees are integers, and a tile's total is computed in float64. The sum of
two digits fits a byte, so pairs of trees are added before they are widened to 16 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import TREE_TILES, Argument, table
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.intrinsics.lookup import lookup
from hbtvm.strategies.scores import StageBuilder, tree_table

DIGITS = 4
_BITS = 7


def digit_arguments(workload: Workload, config: Config, leaves: int) -> tuple[Argument, ...]:
    """Return the arguments of `digit_tables`."""
    return (
        tree_table(workload, config, "digit", "int8", (DIGITS, -(-leaves // 64) * 64)),
        table("scale", "float64", (TREE_TILES, workload["groups"], 2)),
    )


def digit_tables(value: np.ndarray, tiles: np.ndarray) -> dict[str, np.ndarray]:
    """Return the digits, and the step and the sum of the lowest values of each tile.

    `value`: shape (T, leaves).
    `tiles`: from `hbtvm.strategies.base.tile_trees`.
    """
    value = value.astype(np.float64)
    there = tiles >= 0
    low, high = value.min(1), value.max(1)
    steps = np.where(there, (high - low)[tiles], 0.0).max(2) / (2 ** (DIGITS * _BITS) - 1)
    scale = np.stack([steps, np.where(there, low[tiles], 0.0).sum(2)], axis=-1)
    digits = np.zeros((*tiles.shape, DIGITS, -(-value.shape[1] // 64) * 64), np.int8)
    tile, group, tree = np.nonzero(there)
    trees, step = tiles[there], steps[tile, group]
    above = (value[trees] - low[trees, None]) / np.where(step > 0, step, 1.0)[:, None]
    number = np.rint(above).astype(np.int64)
    for p in range(DIGITS):
        digits[tile, group, tree, p, : value.shape[1]] = (number >> (_BITS * p)) & (2**_BITS - 1)
    return {"digit": digits, "scale": scale}


def digit_scores(builder: StageBuilder, leaf: Any, digit: Any, scale: Any) -> Any:
    """Return the sums of the trees' values, as `StageBuilder.scores`.

    `leaf`: the number of a tree's leaf, int8, as `StageBuilder.per_tree` returns it.
    """
    shape = (builder.tiles, builder.tree_tiles, builder.groups)
    pair = te.reduce_axis((0, builder.tree_tile // 2), "pair")
    entries = int(digit.shape[4])

    def both(i: Any, o: Any, g: Any, p: Any, r: Any) -> Any:
        trees = (2 * pair, 2 * pair + 1)
        first, second = (lookup(digit[o, g, t, p, 0], leaf[i, o, g, t, r], entries, "permute") for t in trees)
        return te.sum((first + second).astype("uint8").astype("int16"), axis=pair)

    sums = te.compute((*shape, DIGITS, builder.row_tile), both, name="digit_sums")

    def total(i: Any, o: Any, g: Any, v: Any, r: Any) -> Any:
        low, high = (
            sums[i, o, g, p, r].astype("int32") + (sums[i, o, g, p + 1, r].astype("int32") << _BITS)
            for p in (0, 2)
        )
        number = low.astype("float64") + high.astype("float64") * tirx.const(4.0**_BITS, "float64")
        return number * scale[o, g, 0] + scale[o, g, 1]

    width = 1
    tile_sums = te.compute((*shape, width, builder.row_tile), total, name="tile_sums")
    tile = te.reduce_axis((0, builder.tree_tiles), "tile")
    return te.compute(
        (builder.tiles, builder.groups, width, builder.row_tile),
        lambda i, g, v, r: te.sum(tile_sums[i, tile, g, v, r], axis=tile),
        name="scores",
    )
