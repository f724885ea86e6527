"""`simplify`: run all passes until nothing changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hbtvm.graph.networks.joined import unified
from hbtvm.graph.networks.network import TableRows
from hbtvm.graph.passes.dead_columns import Leaf, without_dead_columns
from hbtvm.graph.passes.products import product, side_by_side
from hbtvm.graph.passes.rearranging import folded, rearranged
from hbtvm.graph.passes.sweep import sweep
from hbtvm.operators.base import Node
from hbtvm.words.quantities import count

_MOST_ROUNDS = 16  # each round makes a network smaller; a network of many layers may need as many


def narrow_table(node: Node, mask: np.ndarray) -> Node:
    """Return a table's leaf with some of its columns; other leaves stay as they are."""
    if not isinstance(node, TableRows):
        return node
    return TableRows(node.table.select(np.flatnonzero(mask).tolist()), node.allow_nan, node.allow_inf)


def simplify(outputs: Sequence[Node], leaf: Leaf = narrow_table) -> tuple[list[Node], list[str]]:
    """Rewrite networks to compute the same, within rounding, with less work.

    `leaf`: returns a leaf with only the columns that are read.
    Returns the outputs, and the rewrites in sentences.
    """
    result, products, dropped = list(outputs), 0, False
    for _ in range(_MOST_ROUNDS):
        before = result
        for rule in (folded, rearranged, product):
            result, changes = sweep(result, rule)
            products += changes if rule is product else 0
        result = unified(result)
        result, columns = without_dead_columns(result, leaf)
        dropped |= columns
        if all(a is b for a, b in zip(before, result, strict=True)):
            break
    result, merged = side_by_side(result)
    rewrites = []
    if products:
        rewrites.append(f"{count(products, 'product')} merged with what is around")
    if merged:
        rewrites.append(f"{count(merged, 'product')} computed with others of the same columns")
    if dropped:
        rewrites.append("columns that nothing reads are not computed")
    return result, rewrites
