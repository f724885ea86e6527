"""A cell: what a recursive model computes at one node from its children's states and its own inputs.

A cell is a list of values in the order of computation. Control flow depends on the structure alone, children
come before parents, and siblings do not depend on one another: the properties P1 to P3 that Cortex (MLSys'21,
section 3.1) asks of a recursive program hold of a cell by its form.
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
"""Operators of two values of one shape, number by number; a value of shape () goes with any shape."""

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
    """What comes with each node."""

    # ``"number"``: a whole number from 0 to `size` - 1, a row of an embedding; ``"vector"``: `size` float32
    # numbers
    kind: Literal["number", "vector"]
    size: int  # see `kind`
    # Whether nodes may come without: a number of -1 then means zeros in place of the row
    optional: bool = False


@dataclass(frozen=True)
class Value:
    """One step of a cell."""

    op: str  # one of `OPERATORS`
    of: tuple[int, ...] = ()  # numbers of the values that it is computed from, all less than its own
    shape: Shape = ()  # of the result; one number, a vector or a matrix
    per_child: bool = False  # whether there is one result for each child
    # `name`, `start`, `stop`, `constant`: what the operator needs beside
    name: str = ""
    start: int = 0
    stop: int = 0
    constant: float = 0.0


@dataclass(frozen=True)
class Cell:
    """What is computed at a node."""

    name: str  # what users call it
    # Places for children; None for any number of them, in no order (there is then no ``child``)
    children: int | None
    states: Mapping[str, Shape]  # shape of each state, a vector's or a matrix', by name
    inputs: Mapping[str, Input]  # what comes with each node, by name
    weights: Mapping[str, np.ndarray]  # constants, float32, by name
    values: tuple[Value, ...]  # in the order of computation
    # Number of the value of each state, at nodes with children; at those without, too, if `leaf` is None
    inner: Mapping[str, int]
    leaf: Mapping[str, int] | None = None  # the same at nodes without children, of values that use no child


@dataclass(frozen=True)
class Readout:
    """What comes out of the states of a structure."""

    state: str  # which state; a matrix is read row by row
    # ``"roots"``: of nodes that are nobody's child, one result each, in the order of nodes (one root a
    # structure is usual); ``"nodes"``: of all nodes; ``"total"``, ``"mean"``, ``"most"``: sum, mean and
    # maximum over a structure's nodes, one result a structure
    over: Literal["roots", "nodes", "total", "mean", "most"] = "roots"


@dataclass(frozen=True)
class Layer:
    """A step behind the readout: ``"linear"`` (weight (m, k), bias (m,)) or a function of the outputs."""

    op: Literal["linear", "relu", "tanh", "sigmoid", "softmax"]
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class RecursiveModel:
    """A whole model: a cell, what is read of its states, and the layers behind."""

    cell: Cell
    readout: Readout
    layers: tuple[Layer, ...] = ()
    # Labels, where the last layer's outputs are scores or probabilities of classes
    classes: tuple[str | int, ...] = field(default=())
    vocabulary: Vocabulary | None = None  # words that structures may come with in place of numbers
