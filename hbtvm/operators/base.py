"""`Node`: an operator of a network, a function of whole rows; the leaves `Input` and `Constant`.

A network computes blocks of columns from blocks of columns, row by row: every edge is float64 of shape (n,
width). Nodes hold weights as arrays. What a kernel's code depends on is told apart from them: `Node.form`,
plain values of JSON that tell kind and shapes, and `Node.tables`, the arrays in the order of the form's
``tables``. Two networks with the same forms can run each other's kernels. `Node.reference` is the oracle:
plain numpy, written to be right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm import codec

Form = dict[str, Any]
"""Kind and shapes of a node in plain values; see `Node.form`."""


class Node(ABC):
    """An operator with its inputs. Nodes are equal only if they are the same object; it is shared so."""

    kind: str  # what kernels' expressions are found by

    @property
    @abstractmethod
    def width(self) -> int:
        """Columns that it makes."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that it reads."""
        return ()

    @abstractmethod
    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """From the inputs' values, float64, shapes (n, their widths), to float64, shape (n, width)."""

    def attributes(self) -> dict[str, Any]:
        """Plain values that decide about a kernel's code beside kind, width, inputs and shapes of tables."""
        return {}

    def tables(self) -> dict[str, np.ndarray]:
        """Weights by name, float64 or int32; kernels get them as arguments."""
        return {}

    @abstractmethod
    def on(self, *inputs: Node) -> Node:
        """The same operator on other inputs of the same widths."""

    def validate(self) -> None:
        """Refuse a node of a package whose widths don't fit, with a `ValueError`."""
        if self.checked().width < 1:
            raise ValueError(f"a {self.kind} has no column")

    def checked(self) -> Node:
        """Return this node after a look at widths.

        Raises `ValueError` if the inputs' widths don't fit each other, or the weights.
        """
        return self


def form(node: Node, names: dict[int, int]) -> Form:
    """A node's form; `names` has the numbers of its inputs by their ids."""
    return {
        "kind": node.kind,
        "width": node.width,
        "inputs": [names[id(one)] for one in node.inputs],
        **node.attributes(),
        "tables": {name: list(table.shape) for name, table in node.tables().items()},
    }


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """An operator of one input, `x`."""

    x: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.x,)

    def on(self, *inputs: Node) -> Node:
        (x,) = inputs
        return replace(self, x=x)


@dataclass(frozen=True, eq=False)
class Input(Node):
    """The rows that a kernel reads: numbers (NaN where missing), and codes of categories as whole numbers."""

    columns: codec.Count
    kind = "input"

    @property
    def width(self) -> int:
        return self.columns

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        raise ValueError("an input has no values of its own")

    def on(self, *inputs: Node) -> Node:
        return self


@dataclass(frozen=True, eq=False)
class Constant(Node):
    """The same values in every row."""

    values: codec.Numbers  # float64, shape (width,)
    kind = "constant"

    @property
    def width(self) -> int:
        return len(self.values)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """Shape (1, width)."""
        return self.values[None, :]

    def tables(self) -> dict[str, np.ndarray]:
        return {"values": self.values}

    def on(self, *inputs: Node) -> Node:
        return self


def constant(values: Any) -> Constant:
    """A `Constant` of a number, or of an array's values."""
    return Constant(np.atleast_1d(np.asarray(values, np.float64)).ravel())


def in_order(*outputs: Node) -> list[Node]:
    """All nodes that some nodes are computed from, each once and behind its inputs."""
    found: dict[int, Node] = {}
    stack: list[tuple[Node, Iterator[Node]]] = [(one, iter(one.inputs)) for one in reversed(outputs)]
    while stack:
        node, rest = stack[-1]
        if id(node) in found:
            stack.pop()
            continue
        following = next((one for one in rest if id(one) not in found), None)
        if following is None:
            found[id(node)] = node
            stack.pop()
        else:
            stack.append((following, iter(following.inputs)))
    return list(found.values())


def rewrite(outputs: Sequence[Node], change: Callable[[Node], Node]) -> list[Node]:
    """Networks in which `change` has had its way with each node, from the leaves on; what is shared stays so.

    `change`: from a node on inputs that are changed already to what takes its place, maybe itself.
    """
    known: dict[int, Node] = {}
    for node in in_order(*outputs):
        inputs = [known[id(one)] for one in node.inputs]
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        known[id(node)] = change(node if same else node.on(*inputs))
    return [known[id(one)] for one in outputs]


class Evaluation:
    """Evaluates nodes by their references; calls after the first need not order them again.

    `outputs`: the nodes to compute.
    """

    def __init__(self, outputs: Sequence[Node]) -> None:
        nodes = in_order(*outputs)
        at = {id(node): place for place, node in enumerate(nodes)}
        self._constants = [node.reference() if isinstance(node, Constant) else None for node in nodes]
        self._leaves = [
            (place, node)
            for place, node in enumerate(nodes)
            if not node.inputs and not isinstance(node, Constant)
        ]
        self._steps = [
            (place, node.reference, [at[id(one)] for one in node.inputs])
            for place, node in enumerate(nodes)
            if node.inputs
        ]
        self._outputs = [at[id(one)] for one in outputs]

    def __call__(self, values: Callable[[Node], np.ndarray]) -> list[np.ndarray]:
        """Return the outputs, float64, shape (n, width), or (1, width) of what is the same in all rows.

        `values`: returns the values of a leaf.
        """
        known: list[Any] = [*self._constants]
        for place, leaf in self._leaves:
            known[place] = values(leaf)
        with np.errstate(all="ignore"):
            for place, reference, inputs in self._steps:
                known[place] = reference(*[known[one] for one in inputs])
        return [known[place] for place in self._outputs]


def evaluate(outputs: Sequence[Node], values: Callable[[Node], np.ndarray]) -> list[np.ndarray]:
    """Return the values of nodes by their references, as `Evaluation` does."""
    return Evaluation(outputs)(values)
