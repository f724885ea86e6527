"""The notation of cells: a function of a node and of weights, which `CellFunction.bind` records.

::

    @rec.cell(children=2, state={"h": 256, "c": 256}, inputs={"word": rec.embedding("words")})
    def tree_lstm(node, w):
        s = rec.total(node.children.h)
        i, o, u = rec.split(w.U @ s + w.W @ node.word + w.b, 3)
        f = [rec.sigmoid(w.Uf @ child.h + w.bf) for child in node.children]
        c = rec.sigmoid(i) * rec.tanh(u) + sum(g * child.c for g, child in zip(f, node.children))
        return {"h": rec.sigmoid(o) * rec.tanh(c), "c": c}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.cell import Cell, Input, Shape
from hbtvm.recursive.expressions import Expression, Recorder
from hbtvm.recursive.passes.leaves import leaf_cell
from hbtvm.recursive.validate import check

Function = Callable[[Any, Any], Mapping[str, Expression]]


@dataclass(frozen=True)
class Embedding:
    """A node's number, which picks a row of a weight."""

    weight: str  # name of the weight, (vocabulary, width)
    optional: bool = False  # whether a number of -1 stands for zeros
    shape: Shape = ()  # required shape of the weight; () for any


@dataclass(frozen=True)
class Vector:
    """A node's input vector, float32."""

    size: int


def embedding(weight: str | int, width: int | None = None, *, optional: bool = False) -> Embedding:
    """Declare an input: the row of a weight that a node's number picks; zeros for -1, if `optional`.

    `weight`: the weight's name; or its number of rows, each of `width` numbers, with the input's name.
    """
    if isinstance(weight, str):
        if width is not None:
            raise ModelError(f"embedding({weight!r}) takes its width from the weight")
        return Embedding(weight, optional)
    if type(weight) is not int or type(width) is not int or weight < 1 or width < 1:
        raise ModelError(f"embedding({weight!r}, {width!r}): expected a weight's name, or rows and width")
    return Embedding("", optional, (weight, width))


def vector(size: int) -> Vector:
    """Declare an input of `size` float32 numbers for each node."""
    return Vector(size)


class CellFunction:
    """A declared cell; `bind` records it as a `Cell`.

    `leaf` decorates a separate function for nodes without children.
    """

    def __init__(
        self,
        function: Function,
        children: int | None,
        state: Mapping[str, int | Shape],
        inputs: Mapping[str, Embedding | Vector],
    ) -> None:
        self.name = function.__name__
        self._function = function
        self._leaf: Function | None = None
        self._children = children
        self._inputs = {
            key: replace(input_, weight=input_.weight or key) if isinstance(input_, Embedding) else input_
            for key, input_ in inputs.items()
        }
        if children is not None and (type(children) is not int or not 1 <= children <= 64):
            raise ModelError(f"children is {children!r}; expected a number of places from 1 to 64, or None")
        if not state:
            raise ModelError(f"the cell {self.name} has no state")
        self._states = {name: _shape(name, size) for name, size in state.items()}
        for name in set(self._states) & set(self._inputs):
            raise ModelError(f"the cell {self.name} has a state and an input of the name {name!r}")
        if "children" in self._inputs:
            raise ModelError(f"the cell {self.name} has an input 'children', a name that is taken")

    def leaf(self, function: Function) -> Function:
        """Set the function for nodes without children."""
        self._leaf = function
        return function

    def bind(self, weights: Mapping[str, Any]) -> Cell:
        """Record the cell.

        `weights`: arrays by name: vectors and matrices; they are rounded to float32.
        Raises `ModelError` if shapes do not fit, a weight is missing, or a state is.
        """
        arrays = {name: _array(name, value) for name, value in weights.items()}
        inputs = {name: self._input(name, input_, arrays) for name, input_ in self._inputs.items()}
        recorder = Recorder(arrays, inputs, self._inputs)
        inner = self._outputs(recorder, self._function, self._children)
        leaf = None if self._leaf is None else self._outputs(recorder, self._leaf, 0)
        used = {value.name for value in recorder.values if value.op in ("weight", "embed")}
        used |= {input_.weight for input_ in self._inputs.values() if isinstance(input_, Embedding)}
        kept = {name: array for name, array in arrays.items() if name in used}
        cell = Cell(
            self.name, self._children, self._states, inputs, kept, tuple(recorder.values), inner, leaf
        )
        if leaf is not None:
            # The function may read children, whose states are zero here.
            cell = leaf_cell(cell)
        check(cell)
        return cell

    def _outputs(self, recorder: Recorder, function: Function, children: int | None) -> dict[str, int]:
        states = function(Node(recorder, self._states, children), _Weights(recorder))
        if not isinstance(states, Mapping) or set(states) != set(self._states):
            raise ModelError(
                f"the cell {self.name} returns "
                f"{sorted(states) if isinstance(states, Mapping) else states!r}; "
                f"expected a dict of its states {sorted(self._states)}"
            )
        numbers = {}
        for name, shape in self._states.items():
            value = recorder.of(states[name])
            if value.per_child or value.shape != shape:
                actual = "one value per child" if value.per_child else f"shape {value.shape}"
                raise ModelError(f"state {name!r} of the cell {self.name} has {actual}, expected {shape}")
            numbers[name] = value.number
        return numbers

    def _input(self, name: str, input_: Embedding | Vector, arrays: Mapping[str, np.ndarray]) -> Input:
        if isinstance(input_, Vector):
            return Input("vector", input_.size)
        if input_.weight not in arrays or arrays[input_.weight].ndim != 2:
            raise ModelError(
                f"input {name!r} picks rows of {input_.weight!r}, which is not a matrix of the weights"
            )
        shape = arrays[input_.weight].shape
        if input_.shape and shape != input_.shape:
            raise ModelError(
                f"weight {input_.weight!r} has shape {shape}; expected {input_.shape}, as input {name!r}"
            )
        return Input("number", len(arrays[input_.weight]), input_.optional)


def cell(
    *,
    children: int | None,
    state: Mapping[str, int | Shape],
    inputs: Mapping[str, Embedding | Vector] | None = None,
) -> Callable[[Function], CellFunction]:
    """Declare a cell; a decorator of the function that computes a node.

    Parameters
    ----------
    children
        Places for children; None for any number of them, in no order.
    state
        Size of each state, or the shape of a matrix.
    inputs
        Inputs of a node by name: `embedding` or `vector`.
    """
    return lambda function: CellFunction(function, children, state, inputs or {})


class Node:
    """A node in a cell's function: ``children``, and each input by its name."""

    def __init__(self, recorder: Recorder, states: Mapping[str, Shape], children: int | None) -> None:
        self._recorder = recorder
        self.children = Children(recorder, states, children)

    def __getattr__(self, name: str) -> Expression:
        return self._recorder.input(name)


class Children:
    """The children of a node: a state's name gives each child's; a fixed number of children is iterable."""

    def __init__(self, recorder: Recorder, states: Mapping[str, Shape], places: int | None) -> None:
        self._recorder, self._states, self._places = recorder, states, places

    def __getattr__(self, name: str) -> Expression:
        if name not in self._states:
            raise ModelError(f"children have no state {name!r}; there are {sorted(self._states)}")
        return self._recorder.source("children", self._states[name], per_child=True, name=name)

    def __len__(self) -> int:
        if self._places is None:
            raise ModelError("a cell of any number of children cannot count them; use total or most")
        return self._places

    def __getitem__(self, place: int) -> Child:
        if not 0 <= place < len(self):
            raise IndexError(f"there are {len(self)} places for children, none of number {place}")
        return Child(self._recorder, self._states, place)

    def __iter__(self) -> Iterator[Child]:
        return (self[place] for place in range(len(self)))


class Child:
    """The child in a place: its states by name, zeros if it is absent."""

    def __init__(self, recorder: Recorder, states: Mapping[str, Shape], place: int) -> None:
        self._recorder, self._states, self._place = recorder, states, place

    def __getattr__(self, name: str) -> Expression:
        if name not in self._states:
            raise ModelError(f"a child has no state {name!r}; there are {sorted(self._states)}")
        return self._recorder.source("child", self._states[name], name=name, start=self._place)


class _Weights:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Expression:
        return self._recorder.weight(name)

    __getitem__ = __getattr__


def _shape(name: str, size: int | Shape) -> Shape:
    shape = (size,) if isinstance(size, int) else tuple(size)
    if not 1 <= len(shape) <= 2 or not all(type(size) is int and size >= 1 for size in shape):
        raise ModelError(f"state {name!r} has the shape {size!r}; expected a size, or rows and columns")
    return shape


def _array(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
    if array.dtype.kind not in "fiub" or not 1 <= array.ndim <= 2 or not array.size:
        raise ModelError(f"weight {name!r} is {array.dtype} of shape {array.shape}; expected numbers, as a "
                         "vector or a matrix")  # fmt: skip
    return np.ascontiguousarray(array, np.float32)
