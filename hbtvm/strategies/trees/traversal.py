"""Tree traversal: walk from the root, one level for all trees and rows at a time.

Hummingbird's algorithm 2, over linearised trees (Cortex, section 4). As a tensor expression
the walk is a reduction over levels, whose combiner takes the slot reached so far to the
next::

    slot[t, r]  = reduction over levels from root[t]:
        next(slot) = slot + offset[slot] + (column[r, column[slot]] <= threshold[slot] ? 0 : 1)
    score[r]    = sum over trees t of value[slot[t, r]]

so levels can be unrolled and interleaved over rows and trees like any reduction, and its loop
ends as soon as all of its walks have reached a leaf (see `hbtvm.compiler.lowering.levels`).

A slot holds a node (see `packed`): a threshold and a link, which is the column to compare and
the offset of the left child; the right child is in the next slot. A leaf compares a column that is
always -inf and has offset 0, so walks that reach it stay, and its threshold's place may hold its value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cpu import traversal as traversal_cpu
from hbtvm.schedules.cpu.traversal import by_queue, in_blocks
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import Strategy, spread, tile_trees
from hbtvm.strategies.columns import column_tables
from hbtvm.strategies.intrinsics.lookup import lookup
from hbtvm.strategies.memo import remembered
from hbtvm.strategies.scores import StageBuilder, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.packed import Packing, Slots, pack


class TreeTraversal(Strategy):
    """Walk over unpadded trees; supports any forest."""

    name = "tree_traversal"
    schedule = traversal_cpu

    def refuse(self, workload: Workload) -> str | None:
        return None

    def nanoseconds(self, workload: Workload) -> float:
        return float(2.0 * workload["depth"])

    def tree_bytes(self, workload: Workload) -> int:
        return int(workload["nodes"] * slots_of(workload).width * np.dtype(workload["dtype"]).itemsize)

    def _shared(self, forest: Forest) -> dict[str, np.ndarray]:
        leaf = forest.left < 0
        slots, packing = packed(forest)
        at, padding = packing.node, np.array([packing.size])
        offset = np.where(leaf, 0, at[np.where(leaf, 0, forest.base + forest.left)] - at)
        # An additional slot stands for missing trees: a leaf of value 0.
        node = slots.table(packing.size + 1)
        slots.write(node, at, np.where(leaf, forest.n_columns, forest.column), offset)
        slots.write(node, padding, np.array([forest.n_columns]), np.array([0]))
        node[at, 0] = forest.threshold
        if values_inline(forest.value.shape[1], forest.dtype, forest.value_dtype):
            node[at[leaf], 0] = forest.value[leaf, 0]
            return {**column_tables(forest), "node": node}
        slots.write_index(node, at[leaf], packing.leaf[leaf])
        slots.write_index(node, padding, np.array([len(packing.value)]))
        value = np.concatenate([packing.value, np.zeros_like(packing.value[:1])])
        return {**column_tables(forest), "node": node, "value": value}

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        tiles = tile_trees(forest, int(config["tree_tile"]))
        packing = packed(forest)[1]
        return {"root": spread(packing.root.astype(np.int32), tiles, packing.size, False)}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        slots, columns = slots_of(workload), workload["numeric"] + workload["categorical"]
        bounds = {
            "bits": slots.bits,
            "linked": int(slots.linked),
            "columns": columns,
            "levels": workload["depth"],
        }
        tables = [table("node", workload["dtype"], ("slots", slots.width), "walk", **bounds)]
        if not values_inline(workload["width"], workload["dtype"], workload["value_dtype"]):
            tables.append(table("value", workload["value_dtype"], ("leaves", workload["width"])))
        return (*tables, tree_table(workload, config, "root", "int32", ()))

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        count = workload["numeric"] + workload["categorical"]
        builder = StageBuilder(workload, config, by_row=True)
        slots = slots_of(workload)
        tables = builder.placeholders(self.arguments(workload, config))
        node, *values, root = tables
        value = values[0] if values else None
        columns, method = builder.stage.columns, str(config["lookup"])
        # Rounded up to whole steps of the unrolled loop: walks that have reached a leaf stay there.
        unroll = int(config["level_unroll"])
        # An index of 64 bits is a part of a scalar load's address as it is. A queue's have to fit the stack.
        scalar = int(config["lanes"]) == 1 and not builder.trees_inner
        wide = scalar and (not by_queue(config) or in_blocks(config))
        state = "int64" if wide else "int32"
        level = te.reduce_axis((0, -(-max(workload["depth"], 1) // unroll) * unroll), "level")

        def elements(o: Any, g: Any, t: Any, reached: Any) -> Callable[[int], Any]:
            """Return a function from n to the n-th element of a tree's slot."""
            first, most = root[o, g, t], 2**31 - 1
            if builder.trees_inner:
                return lambda n: lookup(node[0, n], (first + reached) * slots.width, most, method)
            # An index of 64 bits is a part of a scalar load's address.
            place = reached if int(config["lanes"]) > 1 else reached.astype("int64")
            return lambda n: lookup(node[first, n], place * slots.width, most, method)

        def walk(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
            def step(reached: Any, _: Any) -> Any:
                column, offset, threshold = slots.read(elements(o, g, t, reached[0]), state)
                x = lookup(columns[i, 0, 0], r * (count + 1) + column, builder.row_tile * (count + 1), method)
                return reached[0] + offset + _above(x, threshold, int(config["lanes"]) > 1, state), offset

            # The state is the slot, from the root on, and the last offset, which is 0 at a leaf.
            first = tirx.const(0, state), tirx.const(1, state)
            descend = te.comm_reducer(step, lambda *_: first, name="descend")
            # The reduction ignores its operands; TVM finds the tensors that it depends on only there.
            value = columns[i, r, 0].astype(state)
            return descend((value, value), axis=level)

        reached, _ = builder.per_tree(walk, "walk")

        def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
            element = elements(o, g, t, builder.read(reached, i, o, g, t, r))
            if value is None:
                return element(0)
            index = slots.read_index(element)
            return lookup(value[0, 0], index * width + v, 2**31 - 1, method)

        width: int = workload["width"]
        return builder.function(tables, builder.scores(leaf_value))


def slots_of(workload: Workload) -> Slots:
    """Return the layout of a forest's slots."""
    return Slots(workload["dtype"], workload["nodes"], workload["numeric"] + workload["categorical"])


def packed(forest: Forest) -> tuple[Slots, Packing]:
    """Return the layout of a forest's slots and the slots of its nodes, computed once per forest."""
    slots = Slots(forest.dtype, int(np.diff(forest.offset).max()), forest.n_columns)
    return slots, remembered(forest.memo, "packing", lambda: pack(forest, slots.line))


def values_inline(width: int, dtype: str, value_dtype: str) -> bool:
    """Return whether a leaf's value fits in its slot, in place of the threshold."""
    return width == 1 and dtype == value_dtype


def _above(x: Any, threshold: Any, vectors: bool, dtype: str) -> Any:
    """Return 1 unless a value is at most the threshold, else 0."""
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    if vectors:
        return tirx.Select(x <= threshold, zero, one)
    # LLVM compiles selects between scalars to branches, which here are unpredictable. TVM would turn the
    # negation of the comparison to x > threshold, which differs for NaN, and would move the 1 of a difference
    # away from it, which costs an instruction.
    return (x <= threshold).astype(dtype) ^ one
