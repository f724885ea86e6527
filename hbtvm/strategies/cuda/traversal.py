"""Tree traversal on CUDA: walks over packed trees, each with its own early exit.

The algorithm is that of `hbtvm.strategies.trees.traversal`, over slots in which a split flags its leaf
children (see `hbtvm.strategies.cuda.slots`), so that a walk loads only a leaf's values::

    (split, child, on) = reduction over levels from (root, -, 1):
        child = split + offset[split] + (column[r, column[split]] <= threshold[split] ? 0 : 1)
        on    = whether the child is a split; if so, it is the next

Every thread leaves the loop independently; if it walks several trees or rows at once, finished walks repeat
their last step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cuda import traversal as traversal_cuda
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import spread
from hbtvm.strategies.columns import column_tables
from hbtvm.strategies.cuda.grid import Grid, OnGpu, tiles_of, tree_table
from hbtvm.strategies.cuda.slots import SlotFormat, Slots, slots_of, value_of
from hbtvm.strategies.memo import remembered
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.traversal import TreeTraversal


class CudaTreeTraversal(OnGpu, TreeTraversal):
    """Walk over unpadded trees; supports any forest."""

    schedule = traversal_cuda

    def _shared(self, forest: Forest) -> dict[str, np.ndarray]:
        slots = _slots(forest)
        tables = {**column_tables(forest), "node": slots.node}
        if slots.value is None:
            return tables
        pairs = _in_pairs(slots.value.shape[1], forest.value_dtype)
        value = np.ascontiguousarray(slots.value)
        return {**tables, "value": value.view(np.int64) if pairs else value}

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        tiles, slots = tiles_of(forest, config), _slots(forest)
        return {"root": spread(slots.root.astype(np.int32), tiles, slots.empty, False)}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        form, columns = SlotFormat.of(workload), int(workload["numeric"]) + int(workload["categorical"])
        bounds = {"bits": form.bits, "linked": int(form.linked), "columns": max(columns, 1)}
        tables = [table("node", "int64", ("slots", form.words), "flagged_walk", **bounds)]
        if not form.inline:
            width, dtype = int(workload["width"]), str(workload["value_dtype"])
            kind = ("int64", width // 2) if _in_pairs(width, dtype) else (dtype, width)
            tables.append(table("value", kind[0], ("leaves", kind[1])))
        return (*tables, tree_table(workload, config, "root", "int32", ()))

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        grid = Grid(workload, config, lowest=traversal_cuda.lacks_columns(workload))
        form, value_dtype = SlotFormat.of(workload), str(workload["value_dtype"])
        tables = grid.placeholders(self.arguments(workload, config))
        node, *values, root = tables
        # Rounded up to whole steps of the unrolled loop: walks that have arrived stay.
        unroll = int(config["level_unroll"])
        level = te.reduce_axis((0, -(-max(workload["depth"], 1) // unroll) * unroll), "level")

        def slot(o: Any, g: Any, q: Any, y: Any, reached: Any) -> Callable[[Any], Any]:
            at = root[grid.at(o, g, q, y)] + reached
            return lambda n: node[at, n]

        def walk(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any) -> Any:
            zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")

            def step(state: Any, _: Any) -> Any:
                column, offset, threshold, is_leaf = form.read(slot(o, g, q, y, state[0]))
                passes = grid.column(i, column, p, x) <= threshold

                def child(left: Any) -> Any:
                    return state[0] + offset + tirx.Select(left, zero, one)

                choices = (
                    # (TVM negates `left` to `>`, which is also false for NaN.)
                    lambda left: tirx.Select(is_leaf(left), state[0], child(left)),
                    child,
                    lambda left: tirx.Select(is_leaf(left), zero, one),
                )
                return tuple(grid.by_test(passes, choice) for choice in choices)

            # The state ends with whether the walk goes on.
            descend = te.comm_reducer(step, lambda *_: (zero, zero, one), name="descend")
            # The reduction ignores its operands; TVM finds the tensors that it depends on only there.
            value = grid.column(i, 0, p, x).astype("int32")
            return descend((value, value, value), axis=level)

        _, reached, _ = grid.per_tree(walk, "walk")

        def leaf_value(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, v: Any) -> Any:
            word = slot(o, g, q, y, reached[i, o, g, q, y, p, x])
            if form.inline:
                return value_of(word, v, value_dtype)
            at = word(0).astype("int32")
            if _in_pairs(int(workload["width"]), value_dtype):
                return value_of(lambda n: values[0][at, n], v, value_dtype)
            return values[0][at, v]

        return grid.function(tables, grid.scores(leaf_value))


def _slots(forest: Forest) -> Slots:
    """Return a forest's slots; cached."""
    return remembered(forest.memo, "cuda_slots", lambda: slots_of(forest, SlotFormat.of(forest.workload(1))))


def _in_pairs(width: int, value_dtype: str) -> bool:
    """Return whether the table of values packs two values into a word, for one load."""
    return width % 2 == 0 and value_dtype == "float32"
