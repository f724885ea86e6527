"""`sweep`: apply a rule to each node, bottom-up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hbtvm.operators.base import Node, in_order

Readers = Callable[[Node], int]  # the number of nodes that read a node of the rewritten network

Rule = Callable[[Node, Readers], Node]
"""From a node, whose inputs are replaced already, to its replacement, maybe itself."""


def sweep(outputs: Sequence[Node], rule: Rule) -> tuple[list[Node], int]:
    """Apply a rule to each node.

    Returns the outputs, and how often the rule replaced a node.
    """
    order = in_order(*outputs)
    read = Counter(id(x) for node in order for x in node.inputs) + Counter(map(id, outputs))
    known: dict[int, Node] = {}
    count: dict[int, int] = {}
    # Keep all nodes until the end, as ids identify them.
    kept, changes = list[Node](), 0
    for node in order:
        inputs = [known[id(x)] for x in node.inputs]
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        candidate = node if same else node.on(*inputs)
        result = rule(candidate, lambda x: count.get(id(x), 1))
        changes += result is not candidate
        kept += [candidate, result]
        known[id(node)] = result
        count[id(result)] = count.get(id(result), 0) + read[id(node)]
    return [known[id(node)] for node in outputs], changes
