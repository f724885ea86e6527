"""Rewrite annotated loops after TVM's first passes have lowered the function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from hbtvm.compiler.lowering.block_stores import store_by_row
from hbtvm.compiler.lowering.block_transpose import transpose_block
from hbtvm.compiler.lowering.dot_products import make_dot_products
from hbtvm.compiler.lowering.levels import exit_early, walk_by_queue, walk_in_blocks
from hbtvm.compiler.lowering.nearest.search import find_nearest
from hbtvm.compiler.lowering.next_tree import prefetch_next
from hbtvm.compiler.lowering.product.tiles import make_product
from hbtvm.compiler.lowering.reasons import make_walk
from hbtvm.compiler.lowering.row_loops import make_row_loop
from hbtvm.compiler.lowering.scalar_rows import fetch_trees
from hbtvm.schedules.cpu.linear import DOT_PRODUCTS
from hbtvm.schedules.cpu.product import PRODUCT
from hbtvm.schedules.cpu.ranked_rows import SCALARS, SUBTREES
from hbtvm.schedules.cpu.steps import STORED_BY_ROW, TRANSPOSED
from hbtvm.schedules.cpu.traversal import BLOCKS, EARLY_EXIT, NEXT_TREE, QUEUE
from hbtvm.schedules.cuda.steps import RESIDENT
from hbtvm.schedules.network.loops import LOOP_ROWS
from hbtvm.schedules.network.nearest import NEAREST_ROWS
from hbtvm.schedules.reasons.cpu import SHAPLEY

LOWERING = (
    # TVM's first passes, until blocks are lowered and buffers are flat.
    s_tir.transform.CanonicalizeLoop,
    s_tir.transform.LowerInitBlock,
    s_tir.transform.PlanAndUpdateBufferAllocationLocation,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.CompactBufferAllocation,
    s_tir.transform.LowerMatchBuffer,
    s_tir.transform.StmtSimplify,
    s_tir.transform.LowerOpaqueBlock,
    tirx.transform.FlattenBuffer,
)


_PADDING = "buffer_dim_align"  # annotation of `Schedule.storage_align`


def held(blocks: int, statement: Any) -> Any:
    """Add a launch bound to a kernel's statement: least blocks per multiprocessor."""
    count = tirx.const(blocks, "int32")
    return tirx.AttrStmt(tirx.const(0, "int32"), "tirx.launch_bounds_min_blocks_per_sm", count, statement)


Rewrites = dict[str, Callable[[Any], Any]]

REWRITES: Rewrites = {
    EARLY_EXIT: exit_early,
    NEXT_TREE: prefetch_next,
    QUEUE: walk_by_queue,
    BLOCKS: walk_in_blocks,
    SCALARS: fetch_trees,
    SUBTREES: fetch_trees,
    TRANSPOSED: transpose_block,
    STORED_BY_ROW: lambda loop: store_by_row(loop, int(loop.annotations[STORED_BY_ROW])),
    RESIDENT: lambda loop: held(int(loop.annotations[RESIDENT]), loop),
    NEAREST_ROWS: find_nearest,
    LOOP_ROWS: make_row_loop,
    DOT_PRODUCTS: make_dot_products,
    PRODUCT: make_product,
    SHAPLEY: make_walk,
}
"""By annotation: the function that returns the replacement of a loop."""


def walks_by_scalars(module: Any) -> bool:
    """Return whether a scheduled module has walks that are scalar, not vectors."""
    return any(
        EARLY_EXIT not in loop.annotations or int(loop.annotations[EARLY_EXIT]) == 1
        for loop in _annotated(module, (SCALARS, EARLY_EXIT, QUEUE, BLOCKS))
    )


def tests_subtrees(module: Any) -> bool:
    """Return whether a scheduled module tests the nodes of subtrees together."""
    return bool(_annotated(module, (SUBTREES,)))


def rewrite_loops(
    module: Any, lowering: Sequence[Callable[[], Any]] = LOWERING, rewrites: Rewrites = REWRITES
) -> Any:
    """Lower a scheduled module and rewrite its annotated loops; without any, return the module unchanged.

    `lowering`: the target's passes until blocks are lowered and buffers are flat.
    `rewrites`: by annotation: the function that returns the replacement of a loop.
    """
    if not _annotated(module, rewrites):
        return module
    lowered = tvm.ir.transform.Sequential([make() for make in lowering])(module)
    return tirx.transform.prim_func_pass(lambda function, *_: _rewritten(function, rewrites), opt_level=0)(
        lowered
    )


def _annotated(module: Any, rewrites: Collection[str] = REWRITES) -> list[Any]:
    loops: list[Any] = []

    def look(loop: Any) -> None:
        if any(name in loop.annotations for name in rewrites):
            loops.append(loop)

    for function in module.functions.values():
        tvm_ffi.structural_walk(function.body, (tirx.For, look))
    return loops


def _rewritten(function: Any, rewrites: Rewrites) -> Any:
    def replace(loop: Any) -> Any:
        for name, become in rewrites.items():
            if name in loop.annotations:
                return become(loop)
        return loop

    body = tvm_ffi.structural_map(function.body, (tirx.For, replace))
    return function.with_body(tvm_ffi.structural_map(body, (tirx.AllocBuffer, _without_padding)))


def _without_padding(allocation: Any) -> Any:
    """Drop the padding that a schedule asked for: buffers are flat, and have it.

    TVM's later passes would look for the axis that was padded.
    """
    if _PADDING not in allocation.annotations:
        return allocation
    others = {name: value for name, value in allocation.annotations.items() if name != _PADDING}
    return tirx.AllocBuffer(allocation.buffer, others)
