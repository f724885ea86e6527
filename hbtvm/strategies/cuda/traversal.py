"""Tree traversal on CUDA: walks over packed trees, each with its own early exit.

Tables and reduction are those of `hbtvm.strategies.traversal`, with slots as 64-bit words (see
`packed_nodes`); here every thread leaves the loop by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.signature import Argument
from hbtvm.schedules import traversal_cuda
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import spread
from hbtvm.strategies.cuda import packed_nodes
from hbtvm.strategies.cuda.grid import Grid, OnGpu, tiles_of, tree_table
from hbtvm.strategies.forest import Forest
from hbtvm.strategies.packed import Slots
from hbtvm.strategies.traversal import TreeTraversal, packed, shared_arguments, slots_of


class CudaTreeTraversal(OnGpu, TreeTraversal):
    """Walk of trees as they are; holds any forest."""

    schedule = traversal_cuda

    def _shared(self, forest: Forest) -> dict[str, np.ndarray]:
        tables = super()._shared(forest)
        return {**tables, "node": _packed_slots(tables["node"], packed(forest)[0])}

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        tiles, packing = tiles_of(forest, config), packed(forest)[1]
        return {"root": spread(packing.root.astype(np.int32), tiles, packing.size, False)}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        return _arguments(workload, config)

    def function(self, workload: Workload, config: Config) -> Any:
        return _function(workload, config)


def _arguments(workload: Workload, config: Config) -> tuple[Argument, ...]:
    own = packed_nodes.width(workload["dtype"]) if slots_of(workload).linked else 2
    return (*shared_arguments(workload, "int64", own), tree_table(workload, config, "root", "int32", ()))


def _packed_slots(node: np.ndarray, slots: Slots) -> np.ndarray:
    """Return slots that `Slots` wrote as int64, shape (slots, words); an offset may take a word."""
    if slots.linked:
        return np.ascontiguousarray(node).view(np.int64)
    half = np.ascontiguousarray(node).view(np.int32).astype(np.int64)
    return np.stack([half[:, 1] << 32 | half[:, 0] & 0xFFFFFFFF, half[:, 2]], 1)


def _read(word: Callable[[int], Any], slots: Slots) -> tuple[Any, Any, Any]:
    """Return column, left child's offset and threshold of the slot whose n-th word is ``word(n)``."""
    threshold, link = packed_nodes.unpack(word, slots.dtype)
    if not slots.linked:
        return link, word(1).astype("int32"), threshold
    mask = tirx.const(2**slots.bits - 1, "int64" if slots.dtype == "float64" else "int32")
    return (link & mask).astype("int32"), (link >> slots.bits).astype("int32"), threshold


def _function(workload: Workload, config: Config) -> Any:
    """Return the tensor expressions as a function ready to be scheduled."""
    grid = Grid(workload, config, lowest=True)
    slots = slots_of(workload)
    tables = grid.placeholders(_arguments(workload, config))
    node, *values, root = tables
    # Rounded up to whole steps of the unrolled loop: walks that have reached a leaf stay there.
    unroll = int(config["level_unroll"])
    level = te.reduce_axis((0, -(-max(workload["depth"], 1) // unroll) * unroll), "level")

    def slot(o: Any, g: Any, q: Any, y: Any, reached: Any) -> Callable[[int], Any]:
        at = root[grid.at(o, g, q, y)] + reached
        return lambda n: node[at, n]

    def walk(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            column, offset, threshold = _read(slot(o, g, q, y, state[0]), slots)
            left = grid.column(i, column, p, x) <= threshold
            above = tirx.Select(left, tirx.const(0, "int32"), tirx.const(1, "int32"))
            return state[0] + offset + above, offset

        # The state is the slot, from the root on, and the last offset, which is 0 at a leaf.
        first = tirx.const(0, "int32"), tirx.const(1, "int32")
        descend = te.comm_reducer(step, lambda *_: first, name="descend")
        # The reduction ignores its operands; TVM finds the tensors that it depends on only there.
        some = grid.column(i, 0, p, x).astype("int32")
        return descend((some, some), axis=level)

    reached, _ = grid.per_tree(walk, "walk")

    def leaf_value(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, v: Any) -> Any:
        word = slot(o, g, q, y, reached[i, o, g, q, y, p, x])
        return values[0][word(0).astype("int32"), v] if values else packed_nodes.unpack(word, slots.dtype)[0]

    return grid.function(tables, grid.scores(leaf_value))
