"""`Node`: an operator of a network, a function of whole rows; the leaves `Input` and `Constant`.

A network computes blocks of columns from blocks of columns, row by row: every edge is float64 of shape (n,
width). A kernel's code depends on a node's `form` only: kind and shapes, as JSON values. `Node.tables` are
the weights that the kernel reads. Two networks with the same forms can run each other's kernels.
`Node.reference` is the oracle, in plain numpy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm import codec

Form = dict[str, Any]
"""Kind and shapes of a node as JSON values; see `form`."""


class Node(ABC):
    """An operator with its inputs. Nodes are equal only if they are the same object."""

    kind: str  # the key of the kernel's expression

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of columns."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this node reads."""
        return ()

    @abstractmethod
    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """Return the values, float64, shape (n, width).

        `inputs`: the inputs' values, float64, shapes (n, their widths).
        """

    def attributes(self) -> dict[str, Any]:
        """Return further JSON values on which a kernel's code depends."""
        return {}

    def tables(self) -> dict[str, np.ndarray]:
        """Return weights by name, float64 or int32; they are arguments of kernels."""
        return {}

    @abstractmethod
    def on(self, *inputs: Node) -> Node:
        """Return the same operator on other inputs of the same widths."""

    def validate(self) -> None:
        """Raise `ValueError` if the widths of a package's node don't fit."""
        if self.checked().width < 1:
            raise ValueError(f"a node {self.kind!r} has no columns")

    def checked(self) -> Node:
        """Return this node.

        Raises `ValueError` if the widths of inputs and weights don't fit each other.
        """
        return self


def form(node: Node, names: dict[int, int]) -> Form:
    """Return a node's form; `names` has its inputs' numbers by their ids."""
    return {
        "kind": node.kind,
        "width": node.width,
        "inputs": [names[id(x)] for x in node.inputs],
        **node.attributes(),
        "tables": {name: list(table.shape) for name, table in node.tables().items()},
    }


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """An operator with the only input `x`."""

    x: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.x,)

    def on(self, *inputs: Node) -> Node:
        (x,) = inputs
        return replace(self, x=x)


@dataclass(frozen=True, eq=False)
class Leaf(Node):
    """A node without inputs, whose values the caller of `evaluate` supplies."""

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        raise ValueError(f"a leaf {self.kind!r} computes no values")

    def on(self, *inputs: Node) -> Node:
        return self


@dataclass(frozen=True, eq=False)
class Input(Leaf):
    """The rows that a kernel reads: numbers (NaN where missing), and codes of categories as whole numbers."""

    columns: codec.Count
    kind = "input"

    @property
    def width(self) -> int:
        return self.columns


@dataclass(frozen=True, eq=False)
class Constant(Leaf):
    """The same values in every row."""

    values: codec.Numbers  # float64, shape (width,)
    kind = "constant"

    @property
    def width(self) -> int:
        return len(self.values)

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        """Return the values, shape (1, width)."""
        return self.values[None, :]

    def tables(self) -> dict[str, np.ndarray]:
        return {"values": self.values}


def constant(values: Any) -> Constant:
    """Return the `Constant` of a number, or of an array's values."""
    return Constant(np.atleast_1d(np.asarray(values, np.float64)).ravel())


def in_order(*outputs: Node) -> list[Node]:
    """Return all nodes of a network, each once and behind its inputs."""
    visited: dict[int, Node] = {}
    stack: list[tuple[Node, Iterator[Node]]] = [(node, iter(node.inputs)) for node in reversed(outputs)]
    while stack:
        node, rest = stack[-1]
        if id(node) in visited:
            stack.pop()
            continue
        following = next((x for x in rest if id(x) not in visited), None)
        if following is None:
            visited[id(node)] = node
            stack.pop()
        else:
            stack.append((following, iter(following.inputs)))
    return list(visited.values())


def rewrite(outputs: Sequence[Node], change: Callable[[Node], Node]) -> list[Node]:
    """Rewrite networks bottom-up; sharing is preserved.

    `change`: returns the replacement of a node, whose inputs are replaced already, or the node itself.
    """
    known: dict[int, Node] = {}
    for node in in_order(*outputs):
        inputs = [known[id(x)] for x in node.inputs]
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        known[id(node)] = change(node if same else node.on(*inputs))
    return [known[id(node)] for node in outputs]


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
            (place, node.reference, [at[id(x)] for x in node.inputs])
            for place, node in enumerate(nodes)
            if node.inputs
        ]
        self._outputs = [at[id(node)] for node in outputs]

    def __call__(self, values: Callable[[Node], np.ndarray]) -> list[np.ndarray]:
        """Return the outputs, float64, shape (n, width), or (1, width) of a node that is equal in all rows.

        `values`: returns the values of a leaf that is not a constant.
        """
        known: list[Any] = [*self._constants]
        for place, leaf in self._leaves:
            known[place] = values(leaf)
        with np.errstate(all="ignore"):
            for place, reference, inputs in self._steps:
                known[place] = reference(*[known[i] for i in inputs])
        return [known[place] for place in self._outputs]


def evaluate(outputs: Sequence[Node], values: Callable[[Node], np.ndarray]) -> list[np.ndarray]:
    """Return the values of nodes by their references, as `Evaluation` does."""
    return Evaluation(outputs)(values)
