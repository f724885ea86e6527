"""Binary search of ranks on CUDA, one thread for each word of ranks.

Each step is a tensor, so that a schedule can place it in registers of the thread that stores the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cuda.ranked import SEARCH
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.ranks import rank_table


def search_argument(workload: Workload) -> Argument:
    """Return the table of thresholds to search as a kernel argument."""
    columns = workload["numeric"] + workload["categorical"]
    return table("rank_threshold", workload["dtype"], (columns * (2 ** workload["rank_bits"] - 1),))


def search_table(forest: Forest) -> dict[str, np.ndarray]:
    """Return that table: each column's thresholds as a balanced search tree, level by level.

    Each level is contiguous over all columns, so threads with neighbouring columns read few cache lines.
    """
    thresholds = rank_table(forest)
    steps = [thresholds.shape[1] >> level for level in range(forest.rank_bits)]
    levels = [thresholds[:, step // 2 - 1 :: step].reshape(-1) for step in steps]
    return {"rank_threshold": np.concatenate(levels)}


def search(
    workload: Workload, shape: Sequence[Any], value: Callable[..., tuple[Any, Any]], searched: Any
) -> Any:
    """Return ranks, int32, of a shape.

    `value`: from an index to a column and a row's value of it.
    `searched`: placeholder of `search_table`.
    """
    count = int(workload["numeric"]) + int(workload["categorical"])

    def narrowed(below: Any, level: int) -> Callable[..., Any]:
        def step(*index: Any) -> Any:
            here = tirx.const(0, "int32") if below is None else below[index]
            column, x = value(*index)
            # The comparison is false for NaN, which therefore ranks highest.
            at_most = x <= searched[count * (2**level - 1) + column * 2**level + here]
            return here * 2 + tirx.Select(at_most, tirx.const(0, "int32"), tirx.const(1, "int32"))

        return step

    # (TVM can't decompose the initial value of a reduction over steps within a tile.)
    below = None
    for level in range(int(workload["rank_bits"])):
        below = te.compute(shape, narrowed(below, level), name=f"{SEARCH}{level}")
    return below
