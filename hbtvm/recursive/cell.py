"""Cells: a recursive model's computation at one node from its children's states and its inputs.

A cell is a list of values in the order of computation. Control flow depends on the structure alone, children
come before parents, and siblings do not depend on each other, so every cell has the properties P1 to P3 that
Cortex (MLSys'21, section 3.1) requires of recursive programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from hbtvm.runtime.recursive.vocabulary import Vocabulary

Shape = tuple[int, ...]

UNARY = ("neg", "abs", "exp", "relu", "sigmoid", "tanh")  # operators of one value, number by number

BINARY = ("add", "sub", "mul", "div", "max", "min")
"""Operators of two values of one shape, number by number; shape () broadcasts to any shape."""

OPERATORS = (
    "weight",  # a constant: `name` among the cell's weights
    "constant",  # the number `constant`, everywhere in `shape`
    "input",  # a node's vector: `name` among the cell's inputs of kind "vector"
    "embed",  # a row of the weight `name`: that of the node's number, input `start` among the cell's inputs
    "child",  # state `name` of the child in place `start`; zeros where there is none
    "children",  # state `name` of each child there is
    "matmul",  # (m, k) @ (k,) or (m, k) @ (k, n)
    "concat",  # along the first axis
    "slice",  # `start` to `stop` of the first axis
    "total",  # sum over the children there are; zeros without any
    "most",  # maximum over the children there are; zeros without any
    "softmax",  # of a vector
    "outer",  # (m,), (n,) -> (m, n)
    "reshape",  # to `shape`
    *UNARY,
    *BINARY,
)


@dataclass(frozen=True)
class Input:
    """An input of each node."""

    # ``"number"``: a whole number from 0 to `size` - 1, a row of an embedding; ``"vector"``: `size` float32
    # numbers
    kind: Literal["number", "vector"]
    size: int  # see `kind`
    optional: bool = False  # whether nodes may lack it: a number of -1 then stands for a row of zeros


@dataclass(frozen=True)
class Value:
    """One step of a cell."""

    op: str  # one of `OPERATORS`
    of: tuple[int, ...] = ()  # numbers of the operands, all smaller than the value's
    shape: Shape = ()  # of the result: one number, a vector or a matrix
    per_child: bool = False  # whether there is a result for each child
    # `name`, `start`, `stop`, `constant`: further arguments of the operator
    name: str = ""
    start: int = 0
    stop: int = 0
    constant: float = 0.0


@dataclass(frozen=True)
class Cell:
    """The computation at a node."""

    name: str  # the users' name
    # Places for children; None for any number of them, unordered (there is then no ``child``)
    children: int | None
    states: Mapping[str, Shape]  # shape of each state, a vector's or a matrix', by name
    inputs: Mapping[str, Input]  # inputs of each node, by name
    weights: Mapping[str, np.ndarray]  # constants, float32, by name
    values: tuple[Value, ...]  # in the order of computation
    # Number of each state's value at nodes with children, and at all nodes if `leaf` is None
    inner: Mapping[str, int]
    leaf: Mapping[str, int] | None = None  # the same at nodes without children; these values read no child


@dataclass(frozen=True)
class Readout:
    """The results of a structure's states."""

    state: str  # name of the state; a matrix is read row by row
    # ``"roots"``: of nodes without parents, a result for each, in the order of nodes (usually one per
    # structure); ``"nodes"``: of all nodes; ``"total"``, ``"mean"``, ``"most"``: sum, mean and maximum over a
    # structure's nodes, one result per structure
    over: Literal["roots", "nodes", "total", "mean", "most"] = "roots"


@dataclass(frozen=True)
class Layer:
    """A layer after the readout: ``"linear"`` (weight (m, k), bias (m,)) or a function of the outputs."""

    op: Literal["linear", "relu", "tanh", "sigmoid", "softmax"]
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class RecursiveModel:
    """A whole model: a cell, the readout of its states, and layers."""

    cell: Cell
    readout: Readout
    layers: tuple[Layer, ...] = ()
    # Labels, if the last layer's outputs are scores or probabilities of classes
    classes: tuple[str | int, ...] = field(default=())
    vocabulary: Vocabulary | None = None  # words that structures may have instead of numbers
