"""Operators that rearrange and reduce columns: `Select`, `Concat`, `Reduce`, `Repeat`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from hbtvm import codec
from hbtvm.operators.base import Node, Unary

Reduction = Literal["sum", "max", "min", "product", "argmax", "argmin"]


@dataclass(frozen=True, eq=False)
class Select(Unary):
    """Columns of x, in any order; columns may repeat."""

    indices: Annotated[  # int32, shape (width,)
        np.ndarray,
        codec.Via(
            tuple[codec.Index, ...],
            lambda indices: indices.tolist(),
            lambda indices: np.array(indices, np.int32),
        ),
    ]
    kind = "select"

    @property
    def width(self) -> int:
        return len(self.indices)

    def attributes(self) -> dict[str, Any]:
        first = int(self.indices[0])
        run = bool(np.array_equal(self.indices, np.arange(first, first + len(self.indices))))
        # Consecutive columns need no table: the first is part of the code.
        return {"first": first} if run else {}

    def tables(self) -> dict[str, np.ndarray]:
        return {} if "first" in self.attributes() else {"indices": self.indices}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return inputs[0][:, self.indices]

    def checked(self) -> Select:
        if not len(self.indices) or self.indices.max() >= self.x.width:
            raise ValueError(f"columns {self.indices.tolist()} of {self.x.width}")
        return self


def select(x: Node, indices: Sequence[int] | np.ndarray) -> Node:
    """Return some columns of a node; the node itself for all of its columns in order.

    Raises `ValueError` if there is no such column, or `indices` is empty.
    """
    chosen = np.asarray(indices, np.int32)
    if not len(chosen) or chosen.min() < 0 or chosen.max() >= x.width:
        raise ValueError(f"columns {chosen.tolist()} of {x.width}")
    return x if np.array_equal(chosen, np.arange(x.width)) else Select(x, chosen)


@dataclass(frozen=True, eq=False)
class Concat(Node):
    """Columns of several nodes side by side."""

    parts: tuple[Node, ...]
    kind = "concat"

    @property
    def width(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        rows = max(map(len, inputs))
        return np.concatenate([np.broadcast_to(x, (rows, x.shape[1])) for x in inputs], axis=1)

    def on(self, *inputs: Node) -> Concat:
        return Concat(inputs)


def concat(parts: Sequence[Node]) -> Node:
    """Return the columns of nodes side by side; a single node itself."""
    return parts[0] if len(parts) == 1 else Concat(tuple(parts))


@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """A number for each group of neighbouring columns."""

    function: Reduction  # ``"argmax"`` and ``"argmin"``: the position in the group, of the first of equals
    x: Node  # width G * W: W columns of the first group, then of the next
    groups: int = 1
    kind = "reduce"

    @property
    def width(self) -> int:
        return self.groups

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.x,)

    def attributes(self) -> dict[str, Any]:
        return {"function": self.function, "size": self.x.width // self.groups}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        grouped = inputs[0].reshape(len(inputs[0]), self.groups, self.x.width // self.groups)
        name = {"product": "prod"}.get(self.function, self.function)
        return np.asarray(getattr(grouped, name)(axis=2), np.float64)

    def on(self, *inputs: Node) -> Reduce:
        return Reduce(self.function, inputs[0], self.groups)

    def checked(self) -> Reduce:
        if self.groups < 1 or self.x.width % self.groups:
            raise ValueError(f"{self.x.width} columns in {self.groups} groups")
        return self


def reduce(function: Reduction, x: Node, groups: int = 1) -> Node:
    """Return a number for each group of columns; groups of one column stay as they are.

    Raises `ValueError` if the number of columns is not a multiple of `groups`.
    """
    if x.width == groups and not function.startswith("arg"):
        return x
    return Reduce(function, x, groups).checked()


@dataclass(frozen=True, eq=False)
class Repeat(Unary):
    """Each column several times: column ``i * times + j``, or (``tiled``) ``j * width + i``, is column i."""

    times: int
    tiled: bool = False
    kind = "repeat"

    @property
    def width(self) -> int:
        return self.x.width * self.times

    def attributes(self) -> dict[str, Any]:
        return {"times": self.times, "tiled": self.tiled}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.tile(inputs[0], self.times) if self.tiled else np.repeat(inputs[0], self.times, axis=1)
