"""`sweep`: a rule for single nodes, applied from the leaves on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hbtvm.operators.base import Node, in_order

Readers = Callable[[Node], int]  # how many nodes read a node, at the time that a rule looks at it

Rule = Callable[[Node, Readers], Node]
"""From a node, whose inputs are changed already, to what takes its place, maybe itself."""


def sweep(outputs: Sequence[Node], rule: Rule) -> tuple[list[Node], int]:
    """Apply a rule to each node.

    `outputs`: of the network.
    Returns the outputs, and how often the rule applied.
    """
    order = in_order(*outputs)
    read = Counter(id(one) for node in order for one in node.inputs) + Counter(map(id, outputs))
    known: dict[int, Node] = {}
    count: dict[int, int] = {}
    # Nodes are known by their ids, so that none of them may go before the end.
    kept, changes = list[Node](), 0
    for node in order:
        inputs = [known[id(one)] for one in node.inputs]
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        candidate = node if same else node.on(*inputs)
        found = rule(candidate, lambda one: count.get(id(one), 1))
        changes += found is not candidate
        kept += [candidate, found]
        known[id(node)] = found
        count[id(found)] = count.get(id(found), 0) + read[id(node)]
    return [known[id(one)] for one in outputs], changes
